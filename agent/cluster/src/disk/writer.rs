//! The thread that writes the log.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tracing::warn;

use super::{COMMITTED, Done, PURGED, Write};

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

/// Time between two writes of [`COMMITTED`].
const COMMITTED_EVERY: Duration = Duration::from_secs(1);

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
pub(super) fn run(connection: Connection, path: &Path, jobs: &mpsc::Receiver<Job>) {
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
        write_all(&connection, jobs, checkpoints);
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

fn write_all(connection: &Connection, jobs: &mpsc::Receiver<Job>, mut checkpoints: Checkpoints) {
    let mut failure: Option<String> = None;
    let mut later = Later::default();
    while let Ok(first) = jobs.recv() {
        let batch = take_batch(first, jobs);
        let mut bytes = 0;
        if failure.is_none() {
            match write(connection, &batch, &mut later) {
                Ok(written) => bytes = written,
                Err(error) => {
                    let path = connection.path().unwrap_or_default();
                    failure = Some(format!("{path} cannot be written: {error}"));
                }
            }
        }
        for Job { done, .. } in batch {
            done(match &failure {
                None => Ok(()),
                Some(failure) => Err(io::Error::other(failure.clone())),
            });
        }
        checkpoints.written(bytes, connection);
    }
    if let (None, Some(committed)) = (failure, later.committed)
        && let Err(error) = keep(connection, COMMITTED, &committed)
    {
        warn!(%error, "the log's last committed entry is not noted, and is learned from the leader");
    }
}

/// The parts of writes that later transactions do.
#[derive(Default)]
struct Later {
    /// Entries up to this index are to be deleted.
    purge: Option<u64>,
    /// The latest value of [`COMMITTED`] that is not written.
    committed: Option<Vec<u8>>,
    /// The time of the last one that was written.
    committed_at: Option<Boottime>,
}

impl Later {
    fn put_off(&mut self, batch: &[Job]) {
        for job in batch {
            if let Write::Committed(value) = &job.write {
                self.committed = Some(value.clone());
            }
        }
    }

    /// The value of [`COMMITTED`], if it is to be written now.
    fn take_committed(&mut self, now: Boottime) -> Option<Vec<u8>> {
        let is_due = self.committed_at.is_none_or(|at| now.since(at) >= COMMITTED_EVERY);
        let committed = self.committed.take_if(|_| is_due)?;
        self.committed_at = Some(now);
        Some(committed)
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

/// Writes a batch, and deletes some of the purged entries. Returns about the bytes that this adds to the WAL.
fn write(connection: &Connection, batch: &[Job], later: &mut Later) -> rusqlite::Result<usize> {
    later.put_off(batch);
    if batch.iter().all(|job| matches!(job.write, Write::Committed(_))) {
        return Ok(0);
    }
    connection.prepare_cached("BEGIN")?.execute([])?;
    let written = write_within(connection, batch, later).and_then(|bytes| {
        connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(TRANSACTION_BYTES + bytes)
    });
    if written.is_err() {
        // ROLLBACK fails where SQLite has ended the transaction by itself.
        let _ = connection.execute_batch("ROLLBACK");
    }
    written
}

/// Writes a batch within a transaction that is open. Returns the bytes of the batch.
fn write_within(
    connection: &Connection,
    batch: &[Job],
    later: &mut Later,
) -> rusqlite::Result<usize> {
    let bytes: usize = batch.iter().map(|job| job.write.bytes()).sum();
    let mut written = 0;
    for job in batch {
        match &job.write {
            Write::Append(entries) => {
                let insert = "INSERT OR REPLACE INTO log (position, entry) VALUES (?, ?)";
                let mut insert = connection.prepare_cached(insert)?;
                for (index, entry) in entries {
                    insert.execute(params![position(*index), entry])?;
                    written += 1;
                }
            }
            Write::Keep { key, value } => {
                keep(connection, key, value)?;
            }
            Write::Committed(_) => {}
            Write::Truncate { from } => {
                let delete = "DELETE FROM log WHERE position >= ?";
                connection.prepare_cached(delete)?.execute([position(*from)])?;
            }
            Write::Purge { upto, value } => {
                keep(connection, PURGED, value)?;
                later.purge = later.purge.max(Some(*upto));
            }
        }
    }
    if let Some(committed) = later.take_committed(clock::now()) {
        keep(connection, COMMITTED, &committed)?;
    }
    if let Some(upto) = later.purge {
        let rows = PURGED_ROWS + PURGED_TIMES * written;
        let purged_bytes = PURGED_BYTES + PURGED_TIMES * bytes as u64;
        if !purge_some(connection, upto, rows, purged_bytes)? {
            later.purge = None;
        }
    }
    Ok(bytes)
}

fn keep(connection: &Connection, key: &str, value: &[u8]) -> rusqlite::Result<()> {
    let insert = "INSERT OR REPLACE INTO kept (key, value) VALUES (?, ?)";
    connection.prepare_cached(insert)?.execute(params![key, value]).map(drop)
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
