//! The state in the folder of a node that has stopped, for a cluster that goes on from it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use openraft::alias::EntryOf;
use openraft::storage::RaftLogStorage;
use openraft::{EntryPayload, RaftLogReader};
use tenure_host::clock;
use uuid::Uuid;

use crate::backup::Backup;
use crate::clock::ClusterTime;
use crate::disk::{Folder, Images, Log};
use crate::machine::{Machine, Operation, VERSION};
use crate::raft::{Snapshot, Types};

/// A node that has stopped, and everything that it knew.
#[derive(Debug)]
pub struct Survivor {
    folder: Folder,
    /// The index of the latest entry.
    pub last: u64,
    /// The nodes of its cluster, with their addresses.
    pub members: BTreeMap<u64, String>,
    pub backup: Backup,
}

/// The image that follows from entries.
struct Replay {
    machine: Machine,
    stamp: ClusterTime,
    members: BTreeMap<u64, String>,
    /// The index of the next entry.
    next: u64,
}

impl Survivor {
    /// Reads the folder of a node. No other process uses the folder until this is dropped.
    ///
    /// # Errors
    ///
    /// When the folder cannot be used (see [`Folder::survivor`]), lacks entries, or is of a node without a cluster.
    pub async fn read(path: &Path) -> io::Result<Survivor> {
        let folder = Folder::survivor(path)?;
        let (images, mut log) = (Images::open(&folder)?, Log::open(&folder)?);
        let mut replay = Replay::of(images.kept().await?)?;
        let last = log.get_log_state().await?.last_log_id.map(|id| id.index);
        let end = last.map_or(0, |last| last + 1);
        // Entries that may be uncommitted count, too: the lost majority may have committed and answered them, and to
        // the clients of the others the outcome is unknown.
        while replay.next < end {
            let entries = log.limited_get_log_entries(replay.next, end).await?;
            if entries.is_empty() {
                let (path, next) = (path.display(), replay.next);
                return Err(io::Error::other(format!("the folder {path} lacks entry {next}")));
            }
            entries.into_iter().try_for_each(|entry| replay.apply(entry))?;
        }
        let Replay { machine, stamp, members, next } = replay;
        let none = || {
            let path = path.display();
            io::Error::other(format!("the folder {path} is of a node that belongs to no cluster"))
        };
        let image = machine.freeze().ok_or_else(none)?;
        let backup = Backup { taken_at_us: clock::wall_us(), stamp, image };
        Ok(Survivor { folder, last: next.saturating_sub(1), members, backup })
    }

    /// The node's id.
    pub fn node(&self) -> u64 {
        self.folder.id()
    }

    /// Its cluster.
    pub fn cluster(&self) -> Uuid {
        self.backup.image.cluster()
    }

    /// Retires the node for good: another cluster was recovered from its data.
    ///
    /// # Errors
    ///
    /// When the mark cannot be written.
    pub fn retire(&self) -> io::Result<()> {
        let own = self.cluster();
        self.folder.retire(&format!(
            "it was recovered from: another cluster goes on in the place of cluster {own}, whose nodes must not run any \
             more. Take an empty folder"
        ))
    }
}

impl Replay {
    /// Begins with the image of a folder, if it has one.
    fn of(data: Option<Vec<u8>>) -> io::Result<Replay> {
        let Some(data) = data else {
            let (machine, stamp) = (Machine::default(), ClusterTime::default());
            return Ok(Replay { machine, stamp, members: BTreeMap::new(), next: 0 });
        };
        let Snapshot { meta, stamp, image } = serde_json::from_slice(&data)?;
        let machine = Machine::thaw(image, VERSION).map_err(io::Error::other)?;
        let members = meta.last_membership.nodes();
        let members = members.map(|(id, member)| (*id, member.address.clone())).collect();
        let next = meta.last_log_id.map_or(0, |last| last.index + 1);
        Ok(Replay { machine, stamp, members, next })
    }

    fn apply(&mut self, entry: EntryOf<Types>) -> io::Result<()> {
        self.next = entry.log_id.index + 1;
        match entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Membership(members) => {
                let members = members.nodes();
                self.members = members.map(|(id, it)| (*id, it.address.clone())).collect();
            }
            EntryPayload::Normal(command) => {
                // As on a running node the time is the leader's. A cluster begins once: a second `Found` sets no time.
                let is_another = matches!(command.operation, Operation::Found(_));
                if !is_another || self.machine.cluster().is_none() {
                    self.stamp = command.at;
                }
                self.machine.apply(command).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}
