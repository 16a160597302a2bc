//! How far fencing tokens may have been used, and how long grants may live that a lost journal knew.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_core::engine::TokenRange;
use tenure_core::time::Boottime;
use uuid::Uuid;

use super::ahead::Ahead;
use super::disk::{Disk, is_full};
use super::note::{BYTES, Note, SLOT};
use super::scribe::{self, Scribe};

/// The ledger's file in the state directory.
pub(super) const FILE: &str = "ledger";
/// How long after a failure the next attempt is made.
const RETRY: Duration = Duration::from_secs(1);

/// The ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file cannot be read or written.
    #[error(
        "the ledger of tokens ({FILE}) cannot be used: check the space and the rights of state_dir"
    )]
    Disk(#[from] io::Error),
    /// It is something else.
    #[error(
        "the file {FILE} in state_dir is no ledger of tokens, or damaged: move it away, and tokens go on \
         from the clock; wait until no hold of an earlier agent can be valid before you do"
    )]
    Damaged,
}

/// The ledger as a start finds it.
#[derive(Debug, Default)]
pub struct Start {
    last: Option<Note>,
    /// One of the slots is damaged: a later note may have been there.
    is_patchy: bool,
}

impl Start {
    /// Reads the ledger.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is none.
    pub fn read(disk: &mut dyn Disk) -> Result<Start, LedgerError> {
        if disk.length(FILE)?.is_none() {
            return Ok(Start::default());
        }
        let mut notes = Vec::new();
        let mut is_patchy = false;
        for slot in [0, SLOT as u64] {
            let mut bytes = [0; BYTES];
            let mut filled = 0;
            while filled < BYTES {
                match disk.read_at(FILE, slot + filled as u64, &mut bytes[filled..])? {
                    0 => break,
                    count => filled += count,
                }
            }
            match Note::parse(&bytes) {
                Some(note) => notes.push(note),
                None => is_patchy |= bytes != [0; BYTES],
            }
        }
        let last = notes.into_iter().max_by_key(|note| note.sequence);
        if last.is_none() && is_patchy {
            return Err(LedgerError::Damaged);
        }
        Ok(Start { last, is_patchy })
    }

    /// The generation of the journal that may be taken up; `None` if nothing is known of this boot.
    pub fn generation(&self, boot_id: Uuid) -> Option<u64> {
        self.last.filter(|note| note.boot_id == boot_id).map(|note| note.generation)
    }
}

/// Facts besides the ledger that an agent knows at its start.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    /// The boot.
    pub boot_id: Uuid,
    /// The instant.
    pub now: Boottime,
    /// Tokens start here at least: stands in for a ledger that was deleted.
    pub wall_clock_us: u64,
    /// The greatest token of the journal.
    pub token_max: u64,
    /// The longest ttl of the journal.
    pub longest_ttl: Duration,
    /// The generation of this agent's journal.
    pub generation: u64,
    /// True if everything that an earlier agent granted is in the journal.
    pub is_known: bool,
    /// How much it keeps ahead.
    pub ahead: Ahead,
}

/// The ledger of a running agent: what is durable, and what is to be.
///
/// A [`Scribe`] writes notes, one at a time; nothing here waits for it.
#[derive(Debug)]
pub struct Ledger {
    scribe: Box<dyn Scribe>,
    ahead: Ahead,
    /// On the medium.
    durable: Note,
    writing: Option<Note>,
    /// The contents of the next note.
    wanted: Note,
    /// When a shorter ttl is noted, if it does by then.
    lower_at: Option<Boottime>,
    /// How long before that a shorter ttl must do.
    lower_after: Duration,
    /// When a shorter ttl was noted, until a longer one is.
    lowered_at: Option<Boottime>,
    retry_at: Option<Boottime>,
    failure: Option<String>,
}

impl Ledger {
    /// Takes up what a start found, and makes a first note durable. Waits for the disk. The tokens that may
    /// be granted, besides: none yet where a first ledger finds no space, which is tried again.
    ///
    /// An agent whose journal is gone, although the same boot is running, must grant nothing as long as
    /// what the last one granted may live ([`Ledger::quarantined_until`]).
    ///
    /// # Errors
    ///
    /// When the note cannot be written for another reason than want of space.
    pub fn open(
        mut disk: Box<dyn Disk + Send>,
        start: Start,
        opened: Opened,
        scribe: impl FnOnce(Box<dyn Disk + Send>) -> io::Result<Box<dyn Scribe>>,
    ) -> Result<(Ledger, TokenRange), LedgerError> {
        let last = start.last;
        let used = last.map_or(0, |note| note.high_water);
        // The note that is damaged may have been of the next range.
        let ahead = opened.ahead;
        let used = used + if start.is_patchy { ahead.tokens } else { 0 };
        let first = (used + 1).max(opened.wall_clock_us).max(opened.token_max + 1);
        let of_this_boot = last.filter(|note| note.boot_id == opened.boot_id);
        let mut quarantined_until =
            of_this_boot.map_or(Boottime::ZERO, |note| note.quarantined_until);
        if let Some(note) = of_this_boot.filter(|_| !opened.is_known) {
            let may_live = match note.longest_ttl {
                Duration::ZERO => Boottime::ZERO,
                ttl => opened.now + ttl,
            };
            quarantined_until = quarantined_until.max(may_live);
        }
        let mut note = Note {
            sequence: last.map_or(0, |note| note.sequence) + 1,
            high_water: first + ahead.tokens - 1,
            boot_id: opened.boot_id,
            generation: opened.generation,
            longest_ttl: round_up(opened.longest_ttl.max(ahead.ttl)),
            quarantined_until,
        };
        let mut written = scribe::write_note(&mut *disk, &note);
        // Who finds it damaged goes on from the note before, which knows nothing of how far the clock went: so both say it.
        if written.is_ok() && first > used + 1 {
            note.sequence += 1;
            written = scribe::write_note(&mut *disk, &note);
        }
        let (durable, failure) = match written {
            Ok(()) => (note, None),
            // One that was there has its space: nothing is known, and nothing is granted until this is noted.
            Err(error) if is_full(&error) => {
                let durable = Note {
                    sequence: note.sequence - 1,
                    high_water: first - 1,
                    longest_ttl: Duration::ZERO,
                    ..note
                };
                (durable, Some(cause_of(&error)))
            }
            Err(error) => return Err(error.into()),
        };
        let tokens = TokenRange { first, last: durable.high_water };
        let ledger = Ledger {
            scribe: scribe(disk)?,
            ahead,
            durable,
            writing: None,
            wanted: note,
            lower_at: None,
            lower_after: ahead.lower_after,
            lowered_at: None,
            retry_at: failure.is_some().then(|| opened.now + RETRY),
            failure,
        };
        Ok((ledger, tokens))
    }

    /// Until when earlier grants may live that nobody knows.
    pub fn quarantined_until(&self) -> Boottime {
        self.wanted.quarantined_until
    }

    /// Why the last note was not written.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// True if a grant of this ttl may be told: a start without the journal would wait for it.
    pub fn covers(&self, ttl: Duration) -> bool {
        let lowering = self.writing.map_or(Duration::MAX, |note| note.longest_ttl);
        ttl <= self.durable.longest_ttl.min(lowering)
    }

    /// Asks for that.
    pub fn cover(&mut self, now: Boottime, ttl: Duration) {
        let ttl = round_up(ttl);
        if self.wanted.longest_ttl < ttl {
            self.wanted.longest_ttl = ttl;
            if let Some(at) = self.lowered_at.take() {
                let Ahead { lower_after, lower_after_max: most, .. } = self.ahead;
                let is_back = now < at + most;
                self.lower_after =
                    if is_back { most.min(self.lower_after * 2) } else { lower_after };
            }
        }
        self.go_on();
    }

    /// Asks for another range of tokens.
    pub fn ask_tokens(&mut self) {
        self.wanted.high_water = self.durable.high_water + self.ahead.tokens;
        self.go_on();
    }

    /// Notes that a journal of an earlier generation must not be taken up.
    pub fn follow(&mut self, generation: u64) {
        if self.wanted.generation < generation {
            self.wanted.generation = generation;
            self.go_on();
        }
    }

    /// Notes that nobody waits any more for what an earlier agent granted.
    pub fn end_quarantine(&mut self) {
        self.wanted.quarantined_until = Boottime::ZERO;
        self.go_on();
    }

    /// Notes that nothing is granted any more. Whoever drops the ledger waits for it.
    pub fn close(&mut self) {
        self.wanted.longest_ttl = Duration::ZERO;
        self.go_on();
    }

    /// The last token that is durable now, whenever something was written; or why it was not.
    pub fn poll(&mut self, now: Boottime, context: &mut Context<'_>) -> Poll<Result<u64, String>> {
        if self.writing.is_none() {
            return Poll::Pending;
        }
        let written = std::task::ready!(self.scribe.poll(context));
        let Some(note) = self.writing.take() else { return Poll::Pending };
        Poll::Ready(match written {
            Ok(()) => {
                self.durable = note;
                self.failure = None;
                self.go_on();
                Ok(note.high_water)
            }
            Err(error) => {
                // It may be on the medium in part or wholly: the next one goes to the same slot.
                self.durable.longest_ttl = self.durable.longest_ttl.min(note.longest_ttl);
                let cause = cause_of(&error);
                self.failure = Some(cause.clone());
                self.retry_at = Some(now + RETRY);
                Err(cause)
            }
        })
    }

    /// When [`Ledger::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Boottime> {
        [self.retry_at, self.lower_at].into_iter().flatten().min()
    }

    /// Does what is due. `longest` is the longest ttl of what is granted or waits now.
    pub fn handle_timeout(&mut self, now: Boottime, longest: Duration) {
        if self.lower_at.is_some_and(|at| at <= now) {
            self.lower_at = None;
            let needed = round_up(longest.max(self.ahead.ttl));
            if needed < self.wanted.longest_ttl {
                self.wanted.longest_ttl = needed;
                self.lowered_at = Some(now);
                self.go_on();
            }
        }
        self.look_at(now, longest);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.go_on();
        }
    }

    /// Notices that a shorter ttl would do, to note that in a while.
    pub fn look_at(&mut self, now: Boottime, longest: Duration) {
        if self.lower_at.is_none()
            && self.wanted.longest_ttl > round_up(longest.max(self.ahead.ttl))
        {
            self.lower_at = Some(now + self.lower_after);
        }
    }

    fn go_on(&mut self) {
        let is_done = Note { sequence: self.durable.sequence, ..self.wanted } == self.durable;
        if self.writing.is_some() || self.retry_at.is_some() || is_done {
            return;
        }
        let note = Note { sequence: self.durable.sequence + 1, ..self.wanted };
        self.writing = Some(note);
        self.scribe.start(note);
    }
}

fn cause_of(error: &io::Error) -> String {
    format!("the ledger in state_dir cannot be written ({error})")
}

/// To the next number of ns with only three leading bits set: at most a quarter more.
fn round_up(ttl: Duration) -> Duration {
    let ns = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX / 2);
    let step = 1_u64 << ns.checked_ilog2().unwrap_or(0).saturating_sub(2);
    Duration::from_nanos(ns.div_ceil(step).saturating_mul(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_up_adds_at_most_a_quarter() {
        for ms in [1_u64, 300, 999, 1_000, 30_000, 90_000, 300_000, 86_400_000] {
            let ttl = Duration::from_millis(ms);
            let rounded = round_up(ttl);
            assert!(rounded >= ttl && rounded <= ttl + ttl / 4, "{ttl:?} to {rounded:?}");
            assert_eq!(round_up(rounded), rounded);
        }
        assert_eq!(round_up(Duration::ZERO), Duration::ZERO);
        assert_eq!(round_up(Duration::from_nanos(9)), Duration::from_nanos(10));
    }
}
