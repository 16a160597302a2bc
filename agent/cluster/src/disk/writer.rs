//! The thread that writes the log.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use openraft::storage::IOFlushed;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;

use crate::raft::Types;

/// Entries that are synced together, at most.
const TOGETHER_MAX: usize = 4096;

/// Something to be written. Answers come in the order of the questions, each after its sync.
pub(super) enum Job {
    Append {
        entries: Vec<(u64, Vec<u8>)>,
        done: IOFlushed<Types>,
    },
    Keep {
        key: &'static str,
        value: Vec<u8>,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Entries from this one on go.
    Truncate {
        from: u64,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Entries up to this one go, and the value says which was the last of them.
    Purge {
        upto: u64,
        value: Vec<u8>,
        done: oneshot::Sender<io::Result<()>>,
    },
}

impl Job {
    fn last_entry(&self) -> Option<u64> {
        match self {
            Job::Append { entries, .. } => entries.last().map(|(index, _)| *index),
            Job::Keep { .. } | Job::Truncate { .. } | Job::Purge { .. } => None,
        }
    }
}

/// The key of the id of the last purged entry.
pub(super) const PURGED: &str = "purged";

pub(super) const TABLES: &str =
    "CREATE TABLE log (position INTEGER PRIMARY KEY, entry BLOB NOT NULL);
     CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";

/// Opens the file that a thread of its own writes.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000;",
    )?;
    Ok(connection)
}

pub(super) fn kept(connection: &Connection, key: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached("SELECT value FROM kept WHERE key = ?")?;
    statement.query_row([key], |row| row.get(0)).optional()
}

/// Writes until nobody can ask any more, and says up to which entry it has.
pub(super) fn run(mut connection: Connection, jobs: &mpsc::Receiver<Job>, written: &AtomicU64) {
    let mut failure: Option<String> = None;
    while let Ok(first) = jobs.recv() {
        let batch = take_batch(first, jobs);
        if failure.is_none()
            && let Err(error) = write(&mut connection, &batch)
        {
            let path = connection.path().unwrap_or_default();
            failure = Some(format!("{path} cannot be written: {error}"));
        }
        let last = batch.iter().rev().find_map(Job::last_entry);
        if let (None, Some(last)) = (&failure, last) {
            written.store(last, Ordering::Release);
        }
        for job in batch {
            let result = match &failure {
                None => Ok(()),
                Some(failure) => Err(io::Error::other(failure.clone())),
            };
            match job {
                Job::Append { done, .. } => done.io_completed(result),
                // Whoever asked may have gone.
                Job::Keep { done, .. } | Job::Truncate { done, .. } | Job::Purge { done, .. } => {
                    drop(done.send(result));
                }
            }
        }
    }
}

/// All that waits, to be written in one transaction and synced once.
fn take_batch(first: Job, jobs: &mpsc::Receiver<Job>) -> Vec<Job> {
    let mut batch = vec![first];
    let mut entries = 0;
    while entries < TOGETHER_MAX
        && let Ok(next) = jobs.try_recv()
    {
        if let Job::Append { entries: more, .. } = &next {
            entries += more.len();
        }
        batch.push(next);
    }
    batch
}

fn write(connection: &mut Connection, batch: &[Job]) -> rusqlite::Result<()> {
    let keep = "INSERT OR REPLACE INTO kept (key, value) VALUES (?, ?)";
    let transaction = connection.transaction()?;
    for job in batch {
        match job {
            Job::Append { entries, .. } => {
                let insert = "INSERT OR REPLACE INTO log (position, entry) VALUES (?, ?)";
                let mut insert = transaction.prepare_cached(insert)?;
                for (index, entry) in entries {
                    insert.execute(params![position(*index), entry])?;
                }
            }
            Job::Keep { key, value, .. } => {
                transaction.prepare_cached(keep)?.execute(params![key, value])?;
            }
            Job::Truncate { from, .. } => {
                let delete = "DELETE FROM log WHERE position >= ?";
                transaction.prepare_cached(delete)?.execute([position(*from)])?;
            }
            Job::Purge { upto, value, .. } => {
                transaction.prepare_cached(keep)?.execute(params![PURGED, value])?;
                let delete = "DELETE FROM log WHERE position <= ?";
                transaction.prepare_cached(delete)?.execute([position(*upto)])?;
            }
        }
    }
    transaction.commit()
}

/// SQLite's integers have a sign.
pub(super) fn position(index: u64) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}
