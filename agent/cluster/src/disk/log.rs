//! The log, and the vote that goes with it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::alias::{EntryOf, LogIdOf, VoteOf};
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{Semaphore, oneshot};

use super::folder::WAY_OUT;
use super::seal::{seal, unseal};
use super::{COMMITTED, Disk, LogFile, PURGED, Span, Write};
use crate::raft::Types;

pub(super) const FILE: &str = "log.sqlite";
/// How many entries, and how many bytes of entries, stay in memory for followers that keep up. Entries that are not synced
/// yet come on top.
const IN_MEMORY: usize = 1024;
const IN_MEMORY_BYTES: usize = 4 << 20;
/// KiB of entries that wait to be written. A disk that takes no more holds up the consensus of its node: the others elect a
/// leader without it.
const WAITING_KIB: u32 = 64 << 10;
/// Bytes of entries that go to another node together, unless one has more: some 100 ms of a slow network.
const TOGETHER_BYTES: usize = 256 << 10;
const VOTE: &str = "vote";

/// The log of a node. Cheap to clone: all are the same one.
#[derive(Clone)]
pub(crate) struct Log {
    file: Arc<dyn LogFile>,
    state: Arc<Mutex<State>>,
    /// Entries below this index are synced.
    synced_below: Arc<AtomicU64>,
    /// The room for entries that are not written yet, in KiB.
    room: Arc<Semaphore>,
}

struct State {
    recent: Recent,
    /// The highest entry that is written.
    last: Option<LogIdOf<Types>>,
    purged: Option<LogIdOf<Types>>,
    vote: Option<VoteOf<Types>>,
    committed: Option<LogIdOf<Types>>,
}

/// The latest entries, each with its bytes.
#[derive(Default)]
struct Recent {
    entries: BTreeMap<u64, (EntryOf<Types>, usize)>,
    bytes: usize,
}

impl Recent {
    /// `u64::MAX` when there is none.
    fn first(&self) -> u64 {
        self.entries.first_key_value().map_or(u64::MAX, |(index, _)| *index)
    }

    fn range(&self, range: Range<u64>) -> impl Iterator<Item = &(EntryOf<Types>, usize)> {
        self.entries.range(range.start..range.end.max(range.start)).map(|(_, it)| it)
    }

    fn insert(&mut self, entry: EntryOf<Types>, bytes: usize) {
        self.bytes += bytes;
        if let Some((_, before)) = self.entries.insert(entry.index(), (entry, bytes)) {
            self.bytes -= before;
        }
    }

    /// Forgets the oldest ones that are synced, those below this index, as far as there are too many.
    fn shrink(&mut self, synced_below: u64) {
        while (self.entries.len() > IN_MEMORY || self.bytes > IN_MEMORY_BYTES)
            && self.first() < synced_below
            && let Some((_, (_, bytes))) = self.entries.pop_first()
        {
            self.bytes -= bytes;
        }
    }

    /// Takes out those from this index on.
    fn split_off(&mut self, from: u64) -> Recent {
        let entries = self.entries.split_off(&from);
        let bytes = entries.values().map(|(_, bytes)| bytes).sum();
        self.bytes -= bytes;
        Recent { entries, bytes }
    }
}

impl Log {
    /// Opens the log on a disk, or begins one.
    ///
    /// # Errors
    ///
    /// When it cannot be read or written.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<Log> {
        let file = disk.log()?;
        let purged: Option<LogIdOf<Types>> = read(&*file, PURGED)?;
        let first = first_after(purged);
        let span = file.span(first)?;
        if span.is_some_and(|span| !is_whole(span, first)) {
            return Err(io::Error::other(format!("{} lacks entries{WAY_OUT}", file.name())));
        }
        let last = match span {
            Some(span) => file.entries(span.last..span.last + 1, usize::MAX)?.pop(),
            None => None,
        };
        let last = last.map(parse::<EntryOf<Types>>).transpose()?.map(|entry| entry.log_id());
        let state = State {
            recent: Recent::default(),
            last: last.or(purged),
            purged,
            vote: read(&*file, VOTE)?,
            committed: read(&*file, COMMITTED)?,
        };
        if let Some(id) = &purged {
            // The process may have ended before all purged rows were deleted.
            let write = Write::Purge { upto: id.index, value: bytes(id)? };
            file.submit(write, Box::new(drop))?;
        }
        let room = Arc::new(Semaphore::new(WAITING_KIB as usize));
        Ok(Log { file, state: Arc::new(Mutex::new(state)), synced_below: Arc::default(), room })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn in_memory(&self) -> usize {
        self.state().recent.entries.len()
    }

    /// Writes, and waits for the sync.
    async fn write(&self, write: Write) -> io::Result<()> {
        let (done, is_done) = oneshot::channel();
        // Whoever asked may have gone.
        self.file.submit(write, Box::new(|result| drop(done.send(result))))?;
        is_done.await.unwrap_or_else(|_| Err(io::Error::other("the log was not written")))
    }
}

fn read<T: DeserializeOwned>(file: &dyn LogFile, key: &str) -> io::Result<Option<T>> {
    file.kept(key)?.map(parse).transpose()
}

/// PURE. The index after that of the last purged entry.
fn first_after(purged: Option<LogIdOf<Types>>) -> u64 {
    purged.map_or(0, |id| id.index + 1)
}

/// PURE. True if no entry of a span from this index on is missing.
fn is_whole(span: Span, first: u64) -> bool {
    span.first == first && span.last - span.first + 1 == span.count
}

fn parse<T: DeserializeOwned>(bytes: Vec<u8>) -> io::Result<T> {
    Ok(serde_json::from_slice(&unseal(bytes).map_err(io::Error::other)?)?)
}

fn bytes(value: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(seal(serde_json::to_vec(value)?))
}

/// Bytes that are left for entries that go together; the first one is always taken.
struct Room(usize);

impl Room {
    fn takes(&mut self, length: usize) -> bool {
        let is_first = self.0 == TOGETHER_BYTES;
        let fits = is_first || length <= self.0;
        self.0 = if fits { self.0.saturating_sub(length.max(1)) } else { 0 };
        fits
    }
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
        let from = from.max(first_after(self.state().purged));
        if from >= end {
            return Ok(Vec::new());
        }
        let (first_recent, recent): (u64, Vec<_>) = {
            let state = self.state();
            let recent = state.recent.range(from..end).map(|(entry, _)| entry.clone());
            (state.recent.first(), recent.collect())
        };
        if from >= first_recent {
            return Ok(recent);
        }
        // The others are written.
        let written = self.file.entries(from..end.min(first_recent), usize::MAX)?;
        let mut entries: Vec<_> = written.into_iter().map(parse).collect::<io::Result<_>>()?;
        entries.extend(recent);
        Ok(entries)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> io::Result<Vec<EntryOf<Types>>> {
        // Replication must not skip purged entries: an empty answer has the follower sent an image.
        if start >= end || start < first_after(self.state().purged) {
            return Ok(Vec::new());
        }
        let mut room = Room(TOGETHER_BYTES);
        let (first_recent, recent): (u64, Vec<_>) = {
            let state = self.state();
            let mut room = Room(TOGETHER_BYTES);
            let those = state.recent.range(start..end);
            let those = those.take_while(|(_, length)| room.takes(*length));
            (state.recent.first(), those.cloned().collect())
        };
        let mut entries = Vec::new();
        // The others are written.
        if start < first_recent {
            for entry in self.file.entries(start..end.min(first_recent), TOGETHER_BYTES)? {
                if !room.takes(entry.len()) {
                    break;
                }
                entries.push(parse(entry)?);
            }
        }
        let recent = recent.into_iter().take_while(|(_, length)| room.takes(*length));
        entries.extend(recent.map(|(entry, _)| entry));
        // A purge may have deleted the first ones between the check above and the read.
        let is_whole = entries.first().is_none_or(|entry| entry.index() == start);
        Ok(if is_whole { entries } else { Vec::new() })
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
        self.write(Write::Keep { key: VOTE, value }).await?;
        self.state().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<Types>>) -> io::Result<()> {
        let value = bytes(&committed)?;
        self.file.submit(Write::Committed(value), Box::new(drop))?;
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
        let entries: Vec<_> = entries.into_iter().collect();
        let written: Vec<_> = entries
            .iter()
            .map(|entry| Ok((entry.index(), bytes(entry)?)))
            .collect::<io::Result<_>>()?;
        let length: usize = written.iter().map(|(_, entry)| entry.len()).sum();
        let kib = u32::try_from(length / 1024 + 1).unwrap_or(WAITING_KIB).min(WAITING_KIB);
        let room =
            Arc::clone(&self.room).acquire_many_owned(kib).await.map_err(io::Error::other)?;
        {
            let mut state = self.state();
            for (entry, (_, encoded)) in entries.into_iter().zip(&written) {
                state.last = Some(entry.log_id());
                state.recent.insert(entry, encoded.len());
            }
        }
        let end = written.last().map(|(index, _)| index + 1);
        let (state, synced_below) = (Arc::clone(&self.state), Arc::clone(&self.synced_below));
        let tell = move |result: io::Result<()>| {
            drop(room);
            if let (Ok(()), Some(end)) = (&result, end) {
                synced_below.store(end, Ordering::Release);
                state.lock().unwrap_or_else(PoisonError::into_inner).recent.shrink(end);
            }
            done.io_completed(result);
        };
        self.file.submit(Write::Append(written), Box::new(tell))
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<Types>>) -> io::Result<()> {
        let from = last.as_ref().map_or(0, |last| last.index.saturating_add(1));
        {
            let mut state = self.state();
            drop(state.recent.split_off(from));
            state.last = state.last.take().min(last);
        }
        self.write(Write::Truncate { from }).await?;
        // Entries of these places come again, and are not written yet.
        self.synced_below.fetch_min(from, Ordering::AcqRel);
        Ok(())
    }

    async fn purge(&mut self, last: LogIdOf<Types>) -> io::Result<()> {
        let value = bytes(&last)?;
        let upto = last.index;
        {
            let mut state = self.state();
            state.recent = state.recent.split_off(upto.saturating_add(1));
            if state.last.as_ref().is_none_or(|known| known.index <= upto) {
                state.last = Some(last);
            }
            state.purged = Some(last);
        }
        self.write(Write::Purge { upto, value }).await
    }
}
