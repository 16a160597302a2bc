//! The log, and the vote that goes with it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use openraft::alias::{EntryOf, LogIdOf, VoteOf};
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use rusqlite::{Connection, OptionalExtension};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;

use super::folder::{Folder, WAY_OUT};
use super::seal::{seal, unseal};
use super::writer::{self, Job, PURGED, position};
use crate::raft::Types;

pub(super) const FILE: &str = "log.sqlite";
/// Entries that stay in memory, for the followers that keep up; those that are not written yet come on top.
const IN_MEMORY: usize = 1024;
const VOTE: &str = "vote";
const COMMITTED: &str = "committed";

/// The log of a node. Cheap to clone: all are the same one.
#[derive(Clone)]
pub(crate) struct Log {
    jobs: mpsc::Sender<Job>,
    state: Arc<Mutex<State>>,
    /// The index of the last entry that is synced.
    written: Arc<AtomicU64>,
    /// For what is in memory no more.
    reader: Arc<Mutex<Connection>>,
}

struct State {
    /// The latest entries.
    recent: BTreeMap<u64, EntryOf<Types>>,
    /// The highest entry that is written.
    last: Option<LogIdOf<Types>>,
    purged: Option<LogIdOf<Types>>,
    vote: Option<VoteOf<Types>>,
    committed: Option<LogIdOf<Types>>,
}

impl Log {
    /// Opens the log in a folder, or begins one.
    ///
    /// # Errors
    ///
    /// When it cannot be read or written.
    pub(crate) fn open(folder: &Folder) -> io::Result<Log> {
        let path = folder.path().join(FILE);
        let connection = writer::open(&path).map_err(failed)?;
        let reader = Connection::open(&path).map_err(failed)?;
        let purged: Option<LogIdOf<Types>> = read(&connection, PURGED)?;
        if !is_whole(&connection, purged.map(|id| id.index)).map_err(failed)? {
            return Err(io::Error::other(format!("{} lacks entries{WAY_OUT}", path.display())));
        }
        let last = last_entry(&connection)?.map(|entry| entry.log_id());
        let state = State {
            recent: BTreeMap::new(),
            last: last.or(purged),
            purged,
            vote: read(&connection, VOTE)?,
            committed: read(&connection, COMMITTED)?,
        };
        let (jobs, queue) = mpsc::channel();
        let thread = std::thread::Builder::new().name("raft-log".to_owned());
        let written = Arc::new(AtomicU64::new(0));
        let tell = Arc::clone(&written);
        let lock = folder.lock();
        thread.spawn(move || {
            writer::run(connection, &queue, &tell);
            // As long as anybody could ask for something to be written, the folder is this node's.
            drop(lock);
        })?;
        let (state, reader) = (Arc::new(Mutex::new(state)), Arc::new(Mutex::new(reader)));
        Ok(Log { jobs, state, written, reader })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, job: Job) -> io::Result<()> {
        self.jobs
            .send(job)
            .map_err(|_| io::Error::other("the thread that writes the log has ended"))
    }

    async fn done(
        &self,
        job: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Job,
    ) -> io::Result<()> {
        let (done, is_done) = oneshot::channel();
        self.submit(job(done))?;
        is_done.await.unwrap_or_else(|_| Err(io::Error::other("the log was not written")))
    }

    /// Entries of a range that are in the file.
    fn read_file(&self, range: &(u64, u64)) -> io::Result<Vec<EntryOf<Types>>> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let select = "SELECT entry FROM log WHERE position >= ? AND position < ? ORDER BY position";
        let mut select = reader.prepare_cached(select).map_err(failed)?;
        let bounds = [position(range.0), position(range.1)];
        let rows = select.query_map(bounds, |row| row.get::<_, Vec<u8>>(0)).map_err(failed)?;
        rows.map(|row| parse(row.map_err(failed)?)).collect()
    }
}

fn failed(error: rusqlite::Error) -> io::Error {
    io::Error::other(error)
}

fn read<T: DeserializeOwned>(connection: &Connection, key: &str) -> io::Result<Option<T>> {
    let value = writer::kept(connection, key).map_err(failed)?;
    value.map(parse).transpose()
}

fn last_entry(connection: &Connection) -> io::Result<Option<EntryOf<Types>>> {
    let select = "SELECT entry FROM log ORDER BY position DESC LIMIT 1";
    let row = connection.query_row(select, [], |row| row.get::<_, Vec<u8>>(0));
    let entry = row.optional().map_err(failed)?;
    entry.map(parse).transpose()
}

/// True if no entry is missing after those that were purged.
fn is_whole(connection: &Connection, purged: Option<u64>) -> rusqlite::Result<bool> {
    let select = "SELECT count(*), min(position), max(position) FROM log";
    let (count, first, last): (i64, Option<i64>, Option<i64>) =
        connection.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let expected = purged.map_or(0, |purged| position(purged) + 1);
    Ok(match (first, last) {
        (Some(first), Some(last)) => first == expected && last - first + 1 == count,
        _ => true,
    })
}

fn parse<T: DeserializeOwned>(bytes: Vec<u8>) -> io::Result<T> {
    Ok(serde_json::from_slice(&unseal(bytes).map_err(io::Error::other)?)?)
}

fn bytes(value: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(seal(serde_json::to_vec(value)?))
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<EntryOf<Types>>> {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        if from >= end {
            return Ok(Vec::new());
        }
        let (first_recent, recent): (u64, Vec<_>) = {
            let state = self.state();
            let first = state.recent.first_key_value().map_or(u64::MAX, |(index, _)| *index);
            (first, state.recent.range(from..end).map(|(_, entry)| entry.clone()).collect())
        };
        if from >= first_recent {
            return Ok(recent);
        }
        // The others are written.
        let mut entries = self.read_file(&(from, end.min(first_recent)))?;
        entries.extend(recent);
        Ok(entries)
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<Types>>> {
        Ok(self.state().vote)
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let state = self.state();
        let (last_purged_log_id, last_log_id) = (state.purged, state.last);
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<Types>) -> io::Result<()> {
        let value = bytes(vote)?;
        self.done(|done| Job::Keep { key: VOTE, value, done }).await?;
        self.state().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<Types>>) -> io::Result<()> {
        let value = bytes(&committed)?;
        let (done, _) = oneshot::channel();
        // Nobody waits: to know less of it after a restart does no harm.
        self.submit(Job::Keep { key: COMMITTED, value, done })?;
        self.state().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<Types>>> {
        Ok(self.state().committed)
    }

    async fn append<I>(&mut self, entries: I, done: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = EntryOf<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut written = Vec::new();
        {
            let mut state = self.state();
            for entry in entries {
                written.push((entry.index(), bytes(&entry)?));
                state.last = Some(entry.log_id());
                state.recent.insert(entry.index(), entry);
            }
            let synced = self.written.load(Ordering::Acquire);
            while state.recent.len() > IN_MEMORY
                && state.recent.first_key_value().is_some_and(|(index, _)| *index <= synced)
            {
                state.recent.pop_first();
            }
        }
        self.submit(Job::Append { entries: written, done })
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<Types>>) -> io::Result<()> {
        let from = last.as_ref().map_or(0, |last| last.index.saturating_add(1));
        {
            let mut state = self.state();
            drop(state.recent.split_off(&from));
            state.last = state.last.take().min(last);
        }
        self.done(|done| Job::Truncate { from, done }).await?;
        // Entries of these places come again, and are not written yet.
        self.written.fetch_min(from.saturating_sub(1), Ordering::AcqRel);
        Ok(())
    }

    async fn purge(&mut self, last: LogIdOf<Types>) -> io::Result<()> {
        let value = bytes(&last)?;
        let upto = last.index;
        {
            let mut state = self.state();
            state.recent = state.recent.split_off(&upto.saturating_add(1));
            if state.last.as_ref().is_none_or(|known| known.index <= upto) {
                state.last = Some(last);
            }
            state.purged = Some(last);
        }
        self.done(|done| Job::Purge { upto, value, done }).await
    }
}
