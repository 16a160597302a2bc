//! The questions of administrators and gateways to a node, and their way to it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure_core::model::Failure;
use tenure_stores::keyring::KeyRecord;
use uuid::Uuid;

use crate::keys;
use crate::net::{Ask, Dial, Link, LinkError, PART, Tell, Trust, tcp};

/// The time for most answers.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The time in which a node that is added is given everything, and in which a backup is restored.
const LONG_MAX: Duration = Duration::from_secs(600);

/// The time in which a backup is taken, before it is fetched.
const BACKUP_TIME_MAX: Duration = Duration::from_secs(120);

/// A question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Control {
    Status,
    /// Found a cluster of this node alone.
    Init,
    /// Have the node at this address vote.
    Add {
        address: String,
        /// It comes from a node that asks again, and elsewhere, if this one does not lead.
        #[serde(default)]
        relayed: bool,
    },
    /// Take a node out.
    Remove {
        node: u64,
        /// It may be done already, by an earlier leader.
        #[serde(default)]
        begun: bool,
        /// As for a node that is added.
        #[serde(default)]
        relayed: bool,
    },
    /// Take a backup, to be fetched part by part.
    Backup,
    /// The text of the backup from this byte on.
    Part {
        backup: u64,
        from: usize,
    },
    /// Found a cluster of this node alone that goes on from a backup, which came in parts.
    Restore {
        /// Nothing is granted for so long; the longest ttl of the backup if it is not given.
        quarantine: Option<Duration>,
    },
    Keys(keys::Change),
    ReadKeys(ReadKeys),
}

impl Control {
    /// Have the node at this address vote.
    pub fn add(address: String) -> Control {
        Control::Add { address, relayed: false }
    }

    /// Take a node out.
    pub fn remove(node: u64) -> Control {
        Control::Remove { node, begun: false, relayed: false }
    }

    /// The time in which nodes change the members. Whoever asks waits a little longer.
    pub(crate) fn patience(&self) -> Duration {
        self.deadline() - Duration::from_secs(1)
    }

    /// The time for the answer.
    fn deadline(&self) -> Duration {
        match self {
            Control::Add { .. } | Control::Restore { .. } => LONG_MAX,
            // All that the cluster keeps is written down.
            Control::Backup => BACKUP_TIME_MAX,
            // A new leader may have to be found first.
            Control::Remove { .. } => ANSWER_MAX * 3,
            _ => ANSWER_MAX,
        }
    }

    /// A change of members has begun, and may be done by the time that somebody looks.
    pub(crate) fn mark_begun(&mut self) {
        if let Control::Remove { begun, .. } = self {
            *begun = true;
        }
    }

    /// A change of members, as a node relays it.
    pub(crate) fn relayed(&self) -> Control {
        let mut control = self.clone();
        if let Control::Add { relayed, .. } | Control::Remove { relayed, .. } = &mut control {
            *relayed = true;
        }
        control
    }

    pub(crate) fn is_relayed(&self) -> bool {
        matches!(self, Control::Add { relayed: true, .. } | Control::Remove { relayed: true, .. })
    }
}

/// A question about the keys of gateways.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ReadKeys {
    Version,
    Ids,
    All,
    One(String),
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Report {
    Status(Box<Status>),
    Founded(Uuid),
    Added(u64),
    Removed,
    /// The members are as they were, or are being changed: ask again. For nodes alone.
    NotYet,
    /// Taken, with this number and so many bytes.
    Backup {
        backup: u64,
        bytes: usize,
    },
    Part(String),
    Restored {
        cluster: Uuid,
        quarantine: Duration,
    },
    Keys(Result<keys::Changed, Failure>),
    KeysRead(Result<KeysRead, Failure>),
}

/// The answer to a question about keys.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum KeysRead {
    Version(String),
    Ids(Vec<String>),
    All(Vec<KeyRecord>),
}

/// A cluster as one of its nodes sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The node that was asked.
    pub node: u64,
    /// `None` before one is founded, or the node was added to one.
    pub cluster: Option<Uuid>,
    pub leader: Option<u64>,
    /// The reason for which the node serves nobody.
    pub stopped: Option<String>,
    /// The version of the entries by which the cluster goes.
    #[serde(default)]
    pub version: Option<u32>,
    pub members: BTreeMap<u64, MemberStatus>,
    /// Bytes that the cluster keeps, about, and those that it may; 0 from an earlier release.
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub bytes_max: u64,
}

/// One of its nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MemberStatus {
    pub address: String,
    /// False while it is given everything.
    pub votes: bool,
    /// The index of the latest entry that it has applied; `None` if it does not answer.
    pub applied: Option<u64>,
    /// The version of the entries that its program knows; `None` if it does not answer.
    #[serde(default)]
    pub known: Option<u32>,
    /// The reason for which it has not taken its image, as the node that leads knows.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// The way of an administrator to a node.
pub struct Client(Link);

impl Client {
    /// The way to whichever node listens there.
    pub fn new(address: &str, trust: Trust) -> Client {
        Client::over(address, tcp(trust))
    }

    pub(crate) fn over(address: &str, dial: Arc<dyn Dial>) -> Client {
        Client(Link::to_any(address, dial))
    }

    /// The answer to a question.
    ///
    /// # Errors
    ///
    /// In the words of the node, or when it cannot be reached.
    pub async fn ask(&self, control: Control) -> io::Result<Report> {
        let patience = control.deadline();
        match self.send(Ask::Control(control), Bytes::new(), patience).await? {
            Tell::Control(report) => report.map_err(io::Error::other),
            _ => Err(astray()),
        }
    }

    async fn send(&self, ask: Ask, body: Bytes, patience: Duration) -> io::Result<Tell> {
        match tokio::time::timeout(patience, self.0.ask(ask, body)).await {
            Ok(Ok(Tell::Failed(cause))) => Err(io::Error::other(cause)),
            Ok(Ok(tell)) => Ok(tell),
            Ok(Err(LinkError::Unreachable { ref cause, ref address }))
                if cause.kind() == io::ErrorKind::InvalidData =>
            {
                Err(io::Error::other(format!("the node at {address} is not spoken to: {cause}")))
            }
            Ok(Err(error @ LinkError::Unreachable { .. })) => {
                Err(io::Error::new(io::ErrorKind::NotConnected, error.to_string()))
            }
            Ok(Err(error)) => Err(io::Error::other(error.to_string())),
            Err(_) => {
                let address = self.0.address();
                let cause = format!("the node at {address} gave no answer within {patience:?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, cause))
            }
        }
    }

    /// The text of a backup that is taken now.
    ///
    /// # Errors
    ///
    /// As [`Client::ask`].
    pub async fn backup(&self) -> io::Result<String> {
        let Report::Backup { backup, bytes } = self.ask(Control::Backup).await? else {
            return Err(astray());
        };
        let mut text = String::with_capacity(bytes);
        while text.len() < bytes {
            match self.ask(Control::Part { backup, from: text.len() }).await? {
                Report::Part(part) if !part.is_empty() => text.push_str(&part),
                _ => return Err(astray()),
            }
        }
        Ok(text)
    }

    /// Has the node found a cluster that goes on from a backup.
    ///
    /// # Errors
    ///
    /// As [`Client::ask`].
    pub async fn restore(&self, text: Vec<u8>, quarantine: Option<Duration>) -> io::Result<Report> {
        let mut text = Bytes::from(text);
        while !text.is_empty() {
            let part = text.split_to(text.len().min(PART));
            self.send(Ask::Part, part, ANSWER_MAX).await?;
        }
        self.ask(Control::Restore { quarantine }).await
    }
}

fn astray() -> io::Error {
    io::Error::other("the node answers another question: it is of another release")
}
