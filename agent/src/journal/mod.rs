//! What the agent keeps on disk.
//!
//! - [`Database`], in the runtime directory: sessions, holds, and what the embedded store granted.
//!   Survives the agent, not the boot. The heart and the embedded upstream share one connection, so
//!   that everything of a turn of the heart is one transaction.
//! - [`TokenLedger`], in the state directory: how far fencing tokens may have been used, and what a
//!   start must know if the database is gone. Survives everything but its own deletion.
//!
//! Invariant: only the ledger waits for a disk.

mod database;
mod engine;
mod keeper;
mod ledger;
mod redo;
mod reserve;
mod superseded;
#[cfg(test)]
mod tests;

pub use database::{CommitError, Database, Fresh, OpenError};
pub use ledger::{LedgerError, Opened, TOKENS_PER_RANGE, TokenLedger};

/// SQLite's integers are signed; nothing stored here comes near the end of them.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The way back from [`signed`].
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
