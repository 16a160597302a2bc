//! Files that the agent keeps.
//!
//! - [`Journal`], in the runtime directory: sessions, holds, and what the embedded store granted.
//!   Survives the agent, not the boot. The heart and the embedded upstream share it, so that everything of
//!   a turn of the heart is in it or nothing.
//! - [`Ledger`], in the state directory: how far fencing tokens may have been used, and what a
//!   start must know if the journal is gone. Survives everything but its own deletion.
//!
//! Both reach their files through a [`Disk`].
//!
//! Invariant: only the thread of the ledger waits for a disk.

mod ahead;
mod disk;
mod fold;
mod format;
mod found;
mod ledger;
mod log;
mod note;
mod read;
mod rewrite;
mod rows;
mod scribe;
#[cfg(test)]
pub(crate) mod tests;

pub use ahead::Ahead;
pub use disk::{Disk, Files};
pub use found::{Found, Fresh, Notice, OpenError};
pub use ledger::{Ledger, LedgerError, Opened, Start};
pub use log::{FILE, Journal, look};
pub use note::Note;
pub use rows::LiveRows;
pub use scribe::{Scribe, Thread, write_note};
use serde::{Deserialize, Serialize};
pub use tenure_core::keeper::journal::Saved as SavedKeeper;
use tenure_core::{engine, keeper};

/// A change of the journal, whoever made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The keeper.
    Keeper(keeper::journal::Entry),
    /// The engine.
    Engine(engine::journal::Entry),
}

/// A row, by whoever has it in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The keeper.
    Keeper(keeper::journal::Key),
    /// The engine.
    Engine(engine::journal::Key),
}

/// Everything that a journal written anew must have.
pub trait Rows {
    /// The keys of all rows, in an order in which they can be taken up.
    fn keys(&self) -> Vec<Key>;

    /// Gives the row as it is now; nothing if it has ended.
    fn write(&self, key: &Key, into: &mut dyn FnMut(Entry));

    /// About how many rows there are. Takes no time.
    fn count(&self) -> usize;
}
