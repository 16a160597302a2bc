//! The directories of a host: what the processes of its agents wrote, and what is left of that.
//!
//! The runtime directory is in memory and ends with the machine; the state directory is on a medium that
//! keeps what was synced. Both are full, fail and are damaged as the seed decides.

mod file;
mod harm;
mod process;
mod processes;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_stores::journal::{Disk, Note, write_note};
use uuid::Uuid;

use file::{File, put};
use harm::Harm;
pub(crate) use process::{Clerk, Handle};
use processes::{KERNEL, Processes};

use super::planted::Planted;
use super::random::Random;
use super::time::TrueTime;

/// A write within one of these is done wholly or not at all.
const SECTOR: u64 = 512;
/// Longer writes are records.
const MARK_MAX: usize = 32;
/// Space is given in these.
const PAGE: u64 = 4096;
/// A disk that has nothing else to do syncs within so many µs.
const SYNC_US: (u64, u64) = (50, 4000);

/// A directory of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In memory.
    Runtime,
    /// On the medium.
    State,
}

/// A fault of a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ailment {
    /// Nothing is free.
    Full,
    /// Every write and sync fails.
    Broken,
    /// So many writes and syncs fail.
    Errors(u32),
    /// Syncs take so much longer.
    Slow(Duration),
}

/// The directories of one host. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Storage(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    now: TrueTime,
    random: Random,
    boot: u64,
    wall_us: u64,
    processes: Processes,
    runtime: Directory,
    state: Directory,
    /// The note that a process is writing, and until when.
    writing: Option<(u64, Note, TrueTime)>,
    planted: Option<Planted>,
    /// Planted: records that are written after their mark.
    held_back: Option<(&'static str, u64, Vec<u8>)>,
    harm: Harm,
    /// Since when nothing is wrong with either.
    well_since: TrueTime,
}

#[derive(Debug, Default)]
struct Directory {
    files: BTreeMap<&'static str, File>,
    /// Nothing can grow beyond what is reserved.
    full: bool,
    /// Every write and sync fails.
    broken: bool,
    /// So many more do.
    errors: u32,
    /// Space cannot be reserved.
    reserves_nothing: bool,
    /// A sync takes so much longer.
    slow: Duration,
}

impl Storage {
    /// Empty directories.
    pub(crate) fn new(seed: u64, planted: Option<Planted>) -> Storage {
        let mut random = Random::new(seed);
        let mut directory =
            || Directory { reserves_nothing: random.per_mille(250), ..Directory::default() };
        let (runtime, state) = (directory(), directory());
        Storage(Arc::new(Mutex::new(State {
            now: TrueTime::default(),
            random,
            boot: 1,
            wall_us: 1_000_000,
            processes: Processes::default(),
            runtime,
            state,
            writing: None,
            planted,
            held_back: None,
            harm: Harm::default(),
            well_since: TrueTime::default(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_now(&self, now: TrueTime) {
        self.state().now = now;
    }

    /// The boot that is running.
    pub(crate) fn boot_id(&self) -> Uuid {
        Uuid::from_u128(self.state().boot.into())
    }

    /// A new process of an agent.
    pub(crate) fn begin(&self) -> u64 {
        self.state().processes.begin()
    }

    /// Takes the lock on the directories for a process; whether it has it.
    pub(crate) fn lock(&self, process: u64) -> bool {
        let mut state = self.state();
        state.planted == Some(Planted::NoLock) || state.processes.lock(process)
    }

    /// A process is over. If it was killed, what it was syncing may be done or not.
    pub(crate) fn end(&self, process: u64, killed: bool) {
        let mut state = self.state();
        state.processes.end(process);
        let Some((_, note, _)) = state.writing.take_if(|(of, ..)| *of == process) else { return };
        // A process that ends by itself waits for it.
        let is_done = !killed || state.random.per_mille(500);
        drop(state);
        if is_done {
            // Nobody is there to hear that it failed.
            let _ = write_note(&mut self.directory(Place::State, KERNEL), &note);
        }
    }

    /// True if a process was not killed.
    pub(crate) fn is_alive(&self, process: u64) -> bool {
        self.state().processes.is_alive(process)
    }

    /// A process is to be killed at its so many-eth write from now on; never, with `None`.
    pub(crate) fn die_at(&self, process: u64, writes: Option<u64>) {
        self.state().processes.die_at(process, writes);
    }

    /// A directory as a process has it.
    pub(crate) fn directory(&self, place: Place, process: u64) -> Handle {
        Handle { storage: self.clone(), place, process }
    }

    /// The writer of a process's notes to the ledger, on that disk.
    pub(crate) fn scribe(&self, process: u64, disk: Box<dyn Disk + Send>) -> Clerk {
        Clerk { storage: self.clone(), process, disk }
    }

    /// When the note that a process is writing is on the medium.
    pub(crate) fn note_due(&self, process: u64) -> Option<TrueTime> {
        self.state().writing.filter(|(of, ..)| *of == process).map(|(_, _, due)| due)
    }

    /// The wall clock's time, µs.
    pub(crate) fn wall_clock_us(&self) -> u64 {
        let state = self.state();
        state.wall_us + state.now.as_nanos() / 1000
    }

    /// Somebody sets the wall clock.
    pub(crate) fn step_wall_clock(&self, us: u64) {
        self.state().wall_us = us;
    }

    /// Somebody removes everything from the runtime directory.
    pub(crate) fn clear_runtime(&self) {
        let mut state = self.state();
        state.runtime.files.clear();
        state.harm.damage();
    }

    /// Something is wrong with a directory from now on.
    pub(crate) fn ail(&self, place: Place, ailment: Ailment) {
        let mut state = self.state();
        let directory = state.directory(place);
        match ailment {
            Ailment::Full => directory.full = true,
            Ailment::Broken => directory.broken = true,
            Ailment::Errors(count) => directory.errors += count,
            Ailment::Slow(by) => directory.slow = by,
        }
    }

    /// Nothing is wrong any more.
    pub(crate) fn heal(&self) {
        let mut state = self.state();
        let for_good = state.planted == Some(Planted::NeverRecovers);
        for place in [Place::Runtime, Place::State] {
            let directory = state.directory(place);
            (directory.full, directory.errors, directory.slow) = (false, 0, Duration::ZERO);
            directory.broken &= for_good;
        }
        let now = state.now;
        state.well_since = now;
        if let Some((_, _, due)) = &mut state.writing {
            *due = (*due).min(now + Duration::from_micros(SYNC_US.1));
        }
    }

    /// Since when nothing is wrong; `None` while something is.
    pub(crate) fn well_since(&self) -> Option<TrueTime> {
        let state = self.state();
        let is_well = |directory: &Directory| {
            let broken = directory.broken && state.planted != Some(Planted::NeverRecovers);
            !directory.full && !broken && directory.errors == 0 && directory.slow.is_zero()
        };
        (is_well(&state.runtime) && is_well(&state.state)).then_some(state.well_since)
    }

    /// A bit of a file turns over; `false` if there is none to turn.
    pub(crate) fn damage(&self, place: Place) -> bool {
        let mut state = self.state();
        if place == Place::State && !state.harm.may_damage_ledger() {
            return false;
        }
        let State { random, runtime, state: lasting, harm, .. } = &mut *state;
        let directory = if place == Place::State { lasting } else { runtime };
        let files = directory.files.values_mut().filter(|file| !file.bytes.is_empty());
        let mut files: Vec<_> = files.collect();
        if files.is_empty() {
            return false;
        }
        let which = random.below(files.len() as u64) as usize;
        let file = &mut files[which];
        let (at, bit) = (random.below(file.bytes.len() as u64) as usize, random.below(8));
        file.bytes[at] ^= 1 << bit;
        if let Some(byte) = file.durable.as_mut().and_then(|durable| durable.get_mut(at)) {
            *byte ^= 1 << bit;
        }
        harm.damage();
        true
    }

    /// The machine loses its power, and starts.
    pub(crate) fn reboot(&self) {
        let mut state = self.state();
        state.boot += 1;
        state.runtime.files.clear();
        state.harm.damage();
        let State { random, state: lasting, .. } = &mut *state;
        lasting.files.retain(|_, file| {
            if file.durable.is_none() && random.per_mille(500) {
                return false;
            }
            let mut left = file.durable.take().unwrap_or_default();
            for (at, bytes) in std::mem::take(&mut file.unsynced) {
                if random.per_mille(500) {
                    put(&mut left, at, &bytes);
                }
            }
            (file.bytes, file.durable, file.reserved) = (left.clone(), Some(left), 0);
            true
        });
    }

    /// Failed writes are on the medium after all.
    pub(crate) fn mend(&self) {
        self.state().harm.mend();
    }

    /// True if a journal that is not found whole was lost by a fault of its directory, and not by the
    /// death of an agent. Forgets it.
    pub(crate) fn take_harm(&self) -> bool {
        self.state().harm.take()
    }
}

impl State {
    fn directory(&mut self, place: Place) -> &mut Directory {
        match place {
            Place::Runtime => &mut self.runtime,
            Place::State => &mut self.state,
        }
    }

    /// Fails if a fault says so, and counts it.
    fn fails(&mut self, place: Place) -> io::Result<()> {
        let directory = self.directory(place);
        let has_error = directory.errors > 0;
        directory.errors = directory.errors.saturating_sub(1);
        if !directory.broken && !has_error {
            return Ok(());
        }
        if self.planted == Some(Planted::NeverRecovers) {
            self.directory(place).broken = true;
        }
        self.harm(place);
        Err(io::Error::other("EIO"))
    }

    fn harm(&mut self, place: Place) {
        self.harm.is_harmed |= place == Place::Runtime;
    }

    /// How much is done of a write that is cut short.
    fn cut(&mut self, at: u64, length: usize) -> usize {
        let first = SECTOR - at % SECTOR;
        if length as u64 <= first {
            return 0;
        }
        let more = self.random.below((length as u64 - first) / SECTOR + 1);
        let whole = self.random.below(2) * (first + more * SECTOR);
        usize::try_from(whole).map_or(length, |whole| whole.min(length))
    }

    fn write(&mut self, place: Place, file: &'static str, at: u64, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.fails(place) {
            let cut = self.cut(at, bytes.len());
            self.put(place, file, at, &bytes[..cut]);
            return Err(error);
        }
        let directory = self.directory(place);
        let is_full = directory.full;
        let Some(known) = directory.files.get(file) else {
            return Err(ErrorKind::NotFound.into());
        };
        let space = known.space();
        if is_full && at + bytes.len() as u64 > space {
            if self.planted == Some(Planted::FullUnnoticed) {
                return Ok(());
            }
            self.harm(place);
            let fits = usize::try_from(space.saturating_sub(at)).unwrap_or(usize::MAX);
            self.put(place, file, at, &bytes[..fits.min(bytes.len())]);
            return Err(ErrorKind::StorageFull.into());
        }
        self.put(place, file, at, bytes);
        Ok(())
    }

    fn put(&mut self, place: Place, file: &'static str, at: u64, bytes: &[u8]) {
        let Some(file) = self.directory(place).files.get_mut(file).filter(|_| !bytes.is_empty())
        else {
            return;
        };
        put(&mut file.bytes, at, bytes);
        if place == Place::State {
            file.unsynced.push((at, bytes.to_vec()));
        }
    }

    fn sync(&mut self, place: Place, file: &'static str) -> io::Result<()> {
        let failed = self.fails(place);
        if self.planted == Some(Planted::UnsyncedTokens) {
            return failed;
        }
        let State { state, random, .. } = self;
        let Some(file) = state.files.get_mut(file).filter(|_| place == Place::State) else {
            return failed;
        };
        // The kernel never retries pages that a failed sync did not write.
        let unsynced = std::mem::take(&mut file.unsynced);
        if failed.is_ok() || random.per_mille(500) {
            let durable = file.durable.get_or_insert_default();
            for (at, bytes) in unsynced {
                if failed.is_ok() || random.per_mille(500) {
                    put(durable, at, &bytes);
                }
            }
        }
        failed
    }
}
