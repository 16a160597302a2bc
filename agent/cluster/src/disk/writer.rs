//! The thread that writes the log.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use rusqlite::{Connection, OptionalExtension, params};
use tracing::warn;

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

/// Bytes in SQLite's write-ahead log (WAL) after which the checkpoint thread copies the WAL to the database.
const CHECKPOINT_BYTES: usize = 4 << 20;
/// Bytes written since the last request for a checkpoint with which the writing thread waits for the checkpoint thread.
const WAL_BYTES_MAX: usize = 32 << 20;
/// About what a transaction adds to the WAL beyond its entries, since SQLite writes whole pages.
const TRANSACTION_BYTES: usize = 12 << 10;

/// Purged entries are deleted with later writes. A write deletes so many rows and bytes at most …
const PURGED_ROWS: u64 = 64;
const PURGED_BYTES: u64 = 1 << 20;
/// … plus this multiple of what the write inserts: entries are deleted faster than inserted.
const PURGED_TIMES: u64 = 2;

/// Opens the file that a thread of its own writes.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 16000;",
    )?;
    Ok(connection)
}

pub(super) fn kept(connection: &Connection, key: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached("SELECT value FROM kept WHERE key = ?")?;
    statement.query_row([key], |row| row.get(0)).optional()
}

/// Writes until nobody can ask any more.
pub(super) fn run(mut connection: Connection, path: &Path, jobs: &mpsc::Receiver<Job>) {
    let (ask, asked) = mpsc::sync_channel(1);
    let (tell, told) = mpsc::sync_channel(1);
    thread::scope(|scope| {
        let checkpoint_when_asked = move || {
            while asked.recv().is_ok() {
                let copied = Connection::open(path).and_then(|it| checkpoint(&it));
                if let Err(error) = copied {
                    warn!(path = %path.display(), %error, "no checkpoint of the log's WAL, which grows");
                }
                if tell.send(()).is_err() {
                    return;
                }
            }
        };
        // If the thread cannot be started, SQLite makes checkpoints within writes (`wal_autocheckpoint`).
        let thread = thread::Builder::new().name("raft-checkpoint".to_owned());
        let _ = thread.spawn_scoped(scope, checkpoint_when_asked);
        let checkpoints = Checkpoints { ask, told, is_asked: false, bytes: 0 };
        write_all(&mut connection, jobs, checkpoints);
    });
}

/// The writing thread's side of the checkpoint thread: one checkpoint is under way at a time.
struct Checkpoints {
    ask: mpsc::SyncSender<()>,
    told: mpsc::Receiver<()>,
    is_asked: bool,
    /// Bytes written since the last request.
    bytes: usize,
}

impl Checkpoints {
    /// Counts bytes that were written, and asks for a checkpoint when it is time.
    fn written(&mut self, bytes: usize, connection: &Connection) {
        self.bytes += bytes;
        let is_told = match self.bytes >= WAL_BYTES_MAX {
            true => self.is_asked && self.told.recv().is_ok(),
            false => self.told.try_recv().is_ok(),
        };
        if is_told {
            self.is_asked = false;
            // Copies what was written during the checkpoint. SQLite reuses the WAL only when all of it is copied.
            if let Err(error) = checkpoint(connection) {
                warn!(%error, "no checkpoint of the log's WAL, which grows");
            }
        }
        if !self.is_asked && self.bytes >= CHECKPOINT_BYTES && self.ask.try_send(()).is_ok() {
            (self.is_asked, self.bytes) = (true, 0);
        }
    }
}

/// Copies the WAL to the database, without waiting for other connections.
fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

fn write_all(
    connection: &mut Connection,
    jobs: &mpsc::Receiver<Job>,
    mut checkpoints: Checkpoints,
) {
    let mut failure: Option<String> = None;
    let mut purge = None;
    while let Ok(first) = jobs.recv() {
        let batch = take_batch(first, jobs);
        if failure.is_none()
            && let Err(error) = write(connection, &batch, &mut purge)
        {
            let path = connection.path().unwrap_or_default();
            failure = Some(format!("{path} cannot be written: {error}"));
        }
        let bytes: usize = batch.iter().map(|job| job.write.bytes()).sum();
        for Job { done, .. } in batch {
            done(match &failure {
                None => Ok(()),
                Some(failure) => Err(io::Error::other(failure.clone())),
            });
        }
        checkpoints.written(TRANSACTION_BYTES + bytes, connection);
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

/// Writes a batch, and deletes some of the purged entries.
fn write(
    connection: &mut Connection,
    batch: &[Job],
    purge: &mut Option<u64>,
) -> rusqlite::Result<()> {
    let keep = "INSERT OR REPLACE INTO kept (key, value) VALUES (?, ?)";
    let transaction = connection.transaction()?;
    let mut written = 0;
    for job in batch {
        match &job.write {
            Write::Append(entries) => {
                let insert = "INSERT OR REPLACE INTO log (position, entry) VALUES (?, ?)";
                let mut insert = transaction.prepare_cached(insert)?;
                for (index, entry) in entries {
                    insert.execute(params![position(*index), entry])?;
                    written += 1;
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
                *purge = (*purge).max(Some(*upto));
            }
        }
    }
    if let Some(upto) = *purge {
        let bytes: usize = batch.iter().map(|job| job.write.bytes()).sum();
        let rows = PURGED_ROWS + PURGED_TIMES * written;
        let bytes = PURGED_BYTES + PURGED_TIMES * bytes as u64;
        if !purge_some(&transaction, upto, rows, bytes)? {
            *purge = None;
        }
    }
    transaction.commit()
}

/// Deletes the oldest entries up to this index: so many rows and bytes at most, but one row at least. False if none is left.
fn purge_some(of: &Connection, upto: u64, rows: u64, bytes: u64) -> rusqlite::Result<bool> {
    let select = "SELECT position, length(entry) FROM log WHERE position <= ? ORDER BY position";
    let mut select = of.prepare_cached(select)?;
    let mut found = select.query([position(upto)])?;
    let (mut last, mut count, mut length) = (None, 0, 0);
    let is_more = loop {
        let Some(row) = found.next()? else { break false };
        count += 1;
        length += row.get::<_, i64>(1)?.unsigned_abs();
        if last.is_some() && (count > rows || length > bytes) {
            break true;
        }
        last = Some(row.get::<_, i64>(0)?);
    };
    drop(found);
    if let Some(last) = last {
        of.prepare_cached("DELETE FROM log WHERE position <= ?")?.execute([last])?;
    }
    Ok(is_more)
}

/// SQLite's integers have a sign.
pub(super) fn position(index: u64) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}
