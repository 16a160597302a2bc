//! The log of a folder, in SQLite.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use rusqlite::Connection;

use super::folder::Folder;
use super::writer::{self, Job, position};
use super::{Done, LogFile, Span, Write, log};

/// A log that a thread of its own writes.
pub(super) struct SqliteLog {
    jobs: mpsc::Sender<Job>,
    reader: Mutex<Connection>,
    name: String,
}

impl SqliteLog {
    pub(super) fn open(folder: &Folder) -> io::Result<SqliteLog> {
        let path = folder.path().join(log::FILE);
        let connection = writer::open(&path).map_err(io::Error::other)?;
        let reader = Mutex::new(Connection::open(&path).map_err(io::Error::other)?);
        let (jobs, queue) = mpsc::channel();
        let thread = std::thread::Builder::new().name("raft-log".to_owned());
        let (lock, at) = (Arc::clone(folder.held()), path.clone());
        thread.spawn(move || {
            writer::run(connection, &at, &queue);
            // As long as anybody could ask for something to be written, the folder is this node's.
            drop(lock);
        })?;
        Ok(SqliteLog { jobs, reader, name: path.display().to_string() })
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries_here(&self, range: &Range<u64>, most: usize) -> rusqlite::Result<Vec<Vec<u8>>> {
        let reader = self.reader();
        let select = "SELECT entry FROM log WHERE position >= ? AND position < ? ORDER BY position";
        let mut select = reader.prepare_cached(select)?;
        let bounds = [position(range.start), position(range.end)];
        let (mut entries, mut length) = (Vec::new(), 0);
        let mut rows = select.query(bounds)?;
        while length < most
            && let Some(row) = rows.next()?
        {
            let entry: Vec<u8> = row.get(0)?;
            length += entry.len();
            entries.push(entry);
        }
        Ok(entries)
    }
}

impl LogFile for SqliteLog {
    fn submit(&self, write: Write, done: Done) -> io::Result<()> {
        self.jobs
            .send(Job { write, done })
            .map_err(|_| io::Error::other("the thread that writes the log has ended"))
    }

    fn kept(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        writer::kept(&self.reader(), key).map_err(io::Error::other)
    }

    fn entries(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Vec<u8>>> {
        self.entries_here(&range, most).map_err(io::Error::other)
    }

    fn span(&self, from: u64) -> io::Result<Option<Span>> {
        let select = "SELECT min(position), max(position), count(*) FROM log WHERE position >= ?";
        let span = self.reader().query_row(select, [position(from)], |row| {
            let bounds: (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
            let count: i64 = row.get(2)?;
            Ok(bounds.0.zip(bounds.1).map(|(first, last)| Span {
                first: first.unsigned_abs(),
                last: last.unsigned_abs(),
                count: count.unsigned_abs(),
            }))
        });
        span.map_err(io::Error::other)
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
