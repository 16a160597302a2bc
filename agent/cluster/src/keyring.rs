//! The keys of gateways, by way of a node: in this process, or in another one of this host.

use std::fmt;
use std::io;

use tenure_core::model::Failure;
use tenure_stores::keyring::{Asking, Joined, KeyRecord, Keyring};

use crate::control::{Client, Control, KeysRead, ReadKeys, Report};
use crate::keys::{Change, Changed};

/// The keys in a cluster.
pub(crate) struct ClusterKeyring(Client);

impl fmt::Debug for ClusterKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKeyring")
    }
}

impl ClusterKeyring {
    pub(crate) fn new(client: Client) -> ClusterKeyring {
        ClusterKeyring(client)
    }

    async fn change(&self, change: Change) -> Result<Changed, Failure> {
        match self.0.ask(Control::Keys(change)).await.map_err(failure)? {
            Report::Keys(changed) => changed,
            _ => Err(astray()),
        }
    }

    async fn read(&self, read: ReadKeys) -> Result<KeysRead, Failure> {
        match self.0.ask(Control::ReadKeys(read)).await.map_err(failure)? {
            Report::KeysRead(read) => read,
            _ => Err(astray()),
        }
    }

    async fn records(&self, read: ReadKeys) -> Result<Vec<KeyRecord>, Failure> {
        match self.read(read).await? {
            KeysRead::All(keys) => Ok(keys),
            _ => Err(astray()),
        }
    }
}

fn failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotConnected => Failure::Unavailable(error.to_string()),
        _ => Failure::Unknown(error.to_string()),
    }
}

fn astray() -> Failure {
    Failure::Unknown("the node answers another question".to_owned())
}

impl Keyring for ClusterKeyring {
    fn version(&self) -> Asking<'_, String> {
        Box::pin(async {
            match self.read(ReadKeys::Version).await? {
                KeysRead::Version(version) => Ok(version),
                _ => Err(astray()),
            }
        })
    }

    fn ids(&self) -> Asking<'_, Vec<String>> {
        Box::pin(async {
            match self.read(ReadKeys::Ids).await? {
                KeysRead::Ids(ids) => Ok(ids),
                _ => Err(astray()),
            }
        })
    }

    fn all(&self) -> Asking<'_, Vec<KeyRecord>> {
        Box::pin(self.records(ReadKeys::All))
    }

    fn one(&self, id: String) -> Asking<'_, Option<KeyRecord>> {
        Box::pin(async { Ok(self.records(ReadKeys::One(id)).await?.pop()) })
    }

    fn add(&self, key: KeyRecord, join: Option<String>) -> Asking<'_, Joined> {
        Box::pin(async {
            match self.change(Change::Add { key, join }).await? {
                Changed::Added(joined) => Ok(joined),
                _ => Err(astray()),
            }
        })
    }

    fn remove(&self, ids: Vec<String>) -> Asking<'_, u64> {
        Box::pin(async {
            match self.change(Change::Remove(ids)).await? {
                Changed::Removed(count) => Ok(count),
                _ => Err(astray()),
            }
        })
    }

    fn used(&self, keys: Vec<(String, u64)>) -> Asking<'_, ()> {
        Box::pin(async {
            if keys.is_empty() {
                return Ok(());
            }
            self.change(Change::Used(keys)).await.map(drop)
        })
    }
}
