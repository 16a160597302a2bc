//! A disk that loses what was not synced when the power fails.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tenure_cluster::disk::{COMMITTED, Disk, Done, ImageFile, LogFile, PURGED, Place, Span, Write};

use crate::chance::Random;

/// The disk of a host. Cheap to clone: all are the same one.
#[derive(Clone)]
pub(crate) struct SimDisk(Arc<Shared>);

struct Shared {
    id: u64,
    /// It says that a write is synced before it is.
    lies: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: BTreeMap<u64, Vec<u8>>,
    kept: BTreeMap<&'static str, Vec<u8>>,
    image: Option<Vec<u8>>,
    /// Entries below this index are to be deleted. The process forgets it when it ends, as that of a real disk does.
    purge_below: u64,
    /// The latest value of [`COMMITTED`], until it is written with other writes. The process forgets it, too.
    committed: Option<Vec<u8>>,
    /// Writes that are not synced, with the instants of their syncs.
    under_way: VecDeque<(u64, Job)>,
    /// Draws the delays.
    chance: u64,
    now_us: u64,
}

/// Purged entries that are deleted with each write: fewer than a purge names, so that some are left when the process ends.
const PURGED_TOGETHER: usize = 3;
/// An append that leaves a multiple of this number of entries in the log writes [`COMMITTED`] as well.
const COMMITTED_EVERY: usize = 4;

enum Change {
    Log(Write),
    Image(Vec<u8>),
}

struct Job {
    change: Change,
    done: Option<Done>,
}

impl State {
    fn put(&mut self, change: Change) {
        match change {
            Change::Image(data) => self.image = Some(data),
            Change::Log(Write::Append(entries)) => {
                self.log.extend(entries);
                let is_due = self.log.len().is_multiple_of(COMMITTED_EVERY);
                if let Some(committed) = self.committed.take_if(|_| is_due) {
                    self.kept.insert(COMMITTED, committed);
                }
            }
            Change::Log(Write::Keep { key, value }) => {
                self.kept.insert(key, value);
            }
            Change::Log(Write::Committed(value)) => self.committed = Some(value),
            Change::Log(Write::Truncate { from }) => {
                self.log.split_off(&from);
            }
            Change::Log(Write::Purge { upto, value }) => {
                self.kept.insert(PURGED, value);
                self.purge_below = self.purge_below.max(upto + 1);
            }
        }
        for _ in 0..PURGED_TOGETHER {
            if self.log.first_key_value().is_some_and(|(index, _)| *index < self.purge_below) {
                self.log.pop_first();
            }
        }
    }
}

impl SimDisk {
    pub(crate) fn new(id: u64, lies: bool) -> SimDisk {
        let state = State { chance: id, ..State::default() };
        SimDisk(Arc::new(Shared { id, lies, state: Mutex::new(state) }))
    }

    pub(crate) fn lies(&self) -> bool {
        self.0.lies
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time passes: what is synced by now is said to be.
    pub(crate) fn pass(&self, now_us: u64) {
        let mut told = Vec::new();
        {
            let mut state = self.state();
            state.now_us = now_us;
            if self.0.lies {
                told.extend(state.under_way.iter_mut().filter_map(|(_, job)| job.done.take()));
            }
            while state.under_way.front().is_some_and(|(due, _)| *due <= now_us) {
                if let Some((_, job)) = state.under_way.pop_front() {
                    state.put(job.change);
                    told.extend(job.done);
                }
            }
        }
        for done in told {
            done(Ok(()));
        }
    }

    /// Time passes for this disk alone.
    pub(crate) fn go_on(&self, by: Duration) {
        let now_us = self.state().now_us + by.as_micros() as u64;
        self.pass(now_us);
    }

    /// The process ends: of what was under way, a part has been written, and nobody hears of it. What a disk that lies
    /// has taken is lost only in the dark.
    pub(crate) fn lose(&self, random: &mut Random, is_dark: bool) {
        let mut state = self.state();
        let some = random.index(state.under_way.len() + 1);
        let written = if self.0.lies && !is_dark { state.under_way.len() } else { some };
        let mut under_way = std::mem::take(&mut state.under_way);
        for (_, job) in under_way.drain(..written) {
            state.put(job.change);
        }
        (state.purge_below, state.committed) = (0, None);
        drop(state);
    }

    /// Nothing is left but its id, which a real folder would lose too.
    pub(crate) fn wipe(&self) {
        let mut state = self.state();
        (state.log, state.kept, state.image) = (BTreeMap::new(), BTreeMap::new(), None);
        (state.purge_below, state.committed) = (0, None);
    }

    fn submit(&self, change: Change, done: Done) {
        let mut state = self.state();
        // The generator of the run is not at hand here.
        state.chance = state.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let draw = state.chance >> 33;
        let delay = match draw % 400 {
            _ if self.0.lies => 5_000_000,
            0 => 300_000,
            _ => 500 + draw % 4_000,
        };
        let last = state.under_way.back().map_or(0, |(due, _)| *due);
        let due = last.max(state.now_us + delay);
        state.under_way.push_back((due, Job { change, done: Some(done) }));
    }
}

impl Disk for SimDisk {
    fn id(&self) -> u64 {
        self.0.id
    }

    fn log(&self) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(self.clone()))
    }

    fn images(&self) -> io::Result<Arc<dyn ImageFile>> {
        Ok(Arc::new(self.clone()))
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(self.clone())
    }
}

impl Place for SimDisk {
    fn leave(&self) {}

    fn condemn(&self, _: &str) -> io::Result<()> {
        // A node that has stopped is a violation.
        Ok(())
    }
}

impl LogFile for SimDisk {
    fn submit(&self, write: Write, done: Done) -> io::Result<()> {
        SimDisk::submit(self, Change::Log(write), done);
        Ok(())
    }

    fn kept(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state().kept.get(key).cloned())
    }

    fn entries(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Vec<u8>>> {
        let state = self.state();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (_, entry) in state.log.range(range) {
            if bytes >= most {
                break;
            }
            bytes += entry.len();
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn span(&self, from: u64) -> io::Result<Option<Span>> {
        let state = self.state();
        let mut entries = state.log.range(from..);
        let count = entries.clone().count() as u64;
        let first = entries.next().map(|(first, _)| *first);
        let last = entries.next_back().map(|(last, _)| *last).or(first);
        Ok(first.zip(last).map(|(first, last)| Span { first, last, count }))
    }

    fn name(&self) -> String {
        format!("the log of node {}", self.0.id)
    }
}

impl ImageFile for SimDisk {
    fn keep(&self, data: Vec<u8>) -> BoxFuture<'_, io::Result<()>> {
        let (done, is_done) = tokio::sync::oneshot::channel();
        let done = Box::new(|result| drop(done.send(result)));
        SimDisk::submit(self, Change::Image(data), done);
        Box::pin(async { is_done.await.map_err(io::Error::other)? })
    }

    fn kept(&self) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>> {
        let image = self.state().image.clone();
        Box::pin(async { Ok(image) })
    }
}
