//! The disk of a node: the log with its vote, and the latest image. A folder has both in SQLite.
//!
//! Invariant: nothing but [`Write::Committed`] is said to be kept before it is synced, and after an error nothing is kept any
//! more: the node stops. What a failed sync has left on the disk is not known.

mod folder;
mod images;
mod log;
mod seal;
mod sqlite;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use folder::{Folder, Unusable};
pub(crate) use images::Images;
pub(crate) use log::Log;

/// Hears what came of a write, once it is synced or has failed.
pub type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// The place where a node keeps what it must not forget.
pub trait Disk: Send + Sync {
    /// The node's id: made with the disk, so that a wiped one is another node.
    fn id(&self) -> u64;

    /// Opens the log.
    ///
    /// # Errors
    ///
    /// When it cannot be read or written.
    fn log(&self) -> io::Result<Arc<dyn LogFile>>;

    /// Opens the images.
    ///
    /// # Errors
    ///
    /// When they cannot be read or written.
    fn images(&self) -> io::Result<Arc<dyn ImageFile>>;

    /// The disk, for whoever does not keep others from it.
    fn place(&self) -> Box<dyn Place>;
}

/// A disk that its node may have left.
pub trait Place: Send + Sync {
    /// Lets the next process wait for the last writes.
    fn leave(&self);

    /// Has the disk refused from now on, for this reason.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    fn condemn(&self, cause: &str) -> io::Result<()>;
}

/// The file of a log.
pub trait LogFile: Send + Sync {
    /// Writes after all that was submitted before, and says so in the same order.
    ///
    /// # Errors
    ///
    /// When nothing is written any more.
    fn submit(&self, write: Write, done: Done) -> io::Result<()>;

    /// The value of a key.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    fn kept(&self, key: &str) -> io::Result<Option<Vec<u8>>>;

    /// The written entries of a range, in order, until their bytes reach `most`.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn entries(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Vec<u8>>>;

    /// The entries from this index on, when the log is opened.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn span(&self, from: u64) -> io::Result<Option<Span>>;

    /// Its name for people.
    fn name(&self) -> String;
}

/// A change of a log.
#[derive(Debug, Clone)]
pub enum Write {
    /// Entries with their indexes, in the place of those that have them.
    Append(Vec<(u64, Vec<u8>)>),
    Keep {
        key: &'static str,
        value: Vec<u8>,
    },
    /// The id of the latest entry that is known to be committed, for [`COMMITTED`]. The disk writes the id together with later
    /// writes, and says so at once: a node that has lost the latest id applies fewer entries at its start, and the leader tells
    /// the rest.
    Committed(Vec<u8>),
    /// Entries from this one on go.
    Truncate {
        from: u64,
    },
    /// Deletes entries up to this index, at once or with later writes; the value is the id of the last one. Nobody reads
    /// purged entries.
    Purge {
        upto: u64,
        value: Vec<u8>,
    },
}

impl Write {
    /// The bytes that it adds.
    fn bytes(&self) -> usize {
        match self {
            Write::Append(entries) => entries.iter().map(|(_, entry)| entry.len()).sum(),
            Write::Keep { value, .. } | Write::Committed(value) | Write::Purge { value, .. } => {
                value.len()
            }
            Write::Truncate { .. } => 0,
        }
    }
}

/// The key of the id of the last purged entry.
pub const PURGED: &str = "purged";
/// The key of the id of the latest entry that is known to be committed.
pub const COMMITTED: &str = "committed";

/// The entries of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub first: u64,
    pub last: u64,
    pub count: u64,
}

/// The file of the latest image.
pub trait ImageFile: Send + Sync {
    /// Keeps an image in the place of the one before.
    fn keep(&self, data: Vec<u8>) -> BoxFuture<'_, io::Result<()>>;

    /// The image that is kept.
    fn kept(&self) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>>;
}
