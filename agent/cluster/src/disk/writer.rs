//! The thread that writes the log.

use std::io;
use std::path::Path;
use std::sync::mpsc;

use rusqlite::{Connection, OptionalExtension, params};

use super::{Done, PURGED, Write};

/// Entries that are synced together, at most.
const TOGETHER_MAX: usize = 4096;

/// Something to be written. Answers come in the order of the questions, each after its sync.
pub(super) struct Job {
    pub(super) write: Write,
    pub(super) done: Done,
}

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

/// Writes until nobody can ask any more.
pub(super) fn run(mut connection: Connection, jobs: &mpsc::Receiver<Job>) {
    let mut failure: Option<String> = None;
    while let Ok(first) = jobs.recv() {
        let batch = take_batch(first, jobs);
        if failure.is_none()
            && let Err(error) = write(&mut connection, &batch)
        {
            let path = connection.path().unwrap_or_default();
            failure = Some(format!("{path} cannot be written: {error}"));
        }
        for Job { done, .. } in batch {
            done(match &failure {
                None => Ok(()),
                Some(failure) => Err(io::Error::other(failure.clone())),
            });
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
        if let Write::Append(more) = &next.write {
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
        match &job.write {
            Write::Append(entries) => {
                let insert = "INSERT OR REPLACE INTO log (position, entry) VALUES (?, ?)";
                let mut insert = transaction.prepare_cached(insert)?;
                for (index, entry) in entries {
                    insert.execute(params![position(*index), entry])?;
                }
            }
            Write::Keep { key, value } => {
                transaction.prepare_cached(keep)?.execute(params![key, value])?;
            }
            Write::Truncate { from } => {
                let delete = "DELETE FROM log WHERE position >= ?";
                transaction.prepare_cached(delete)?.execute([position(*from)])?;
            }
            Write::Purge { upto, value } => {
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
