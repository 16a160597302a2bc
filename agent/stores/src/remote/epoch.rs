//! The epoch of a store, by which agents notice a store that came back empty or older. The store compares the agent's
//! view with its own epoch, and grants nothing for as long as lost grants may be valid.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_host::clock;

/// A position in a store's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochPosition {
    /// The id of the epoch: another one after each loss that was noticed.
    pub id: Arc<str>,
    /// Writes so far; a store that was set back has fewer.
    pub writes: u64,
}

/// What an agent knows of its store's epoch.
#[derive(Debug, Default)]
struct Epoch {
    known: Option<EpochPosition>,
    /// The longest ttl in use, and the last time that it was asked for, as far as this agent knows.
    longest: Option<(Duration, Boottime)>,
    /// The longest ttl that the store has noted, and since when.
    noted: Option<(Duration, Boottime)>,
    /// The quarantine, by the store's latest report.
    quarantine: Quarantine,
}

/// A store that lost data grants nothing for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Quarantine {
    #[default]
    None,
    /// The expected end. An agent that notices a loss later may prolong the quarantine: only the store's report ends
    /// it.
    Until(Boottime),
}

/// An agent's view of the epoch when a call leaves.
#[derive(Debug, Clone)]
pub struct EpochView {
    pub known: Option<EpochPosition>,
    /// The longest ttl in use.
    pub longest: Duration,
    /// The longest ttl that the call asks for.
    pub ttl: Duration,
    /// True if no quarantine is known, and the store has nothing new to note.
    pub is_calm: bool,
}

/// The part of a reply that is about the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EpochReport {
    /// The count of writes alone.
    Counted(EpochPosition),
    Whole {
        known: Option<EpochPosition>,
        /// The longest ttl in use; zero if the store does not tell.
        longest: Duration,
        /// What is left of the quarantine.
        grants_in: Duration,
    },
}

impl Epoch {
    fn ask(&mut self, now: Boottime, ttl: Duration) -> EpochView {
        self.uses(now, ttl);
        let longest = self.longest.filter(|(ttl, at)| now <= *at + *ttl).map(|(ttl, _)| ttl);
        // The store forgets a ttl after that time: halfway there, the agent has it noted again.
        let notes = |(noted, at): (Duration, Boottime)| {
            ttl > noted || ttl == noted && now > at + noted / 2 || now > at + noted
        };
        let has_news = !ttl.is_zero() && self.noted.is_none_or(notes);
        let is_known = self.known.as_ref().is_some_and(|known| known.writes > 0);
        EpochView {
            known: self.known.clone(),
            longest: longest.unwrap_or_default(),
            ttl,
            is_calm: is_known && !has_news && self.quarantine == Quarantine::None,
        }
    }

    fn hear(&mut self, now: Boottime, view: &EpochView, report: EpochReport) {
        let (known, longest, grants_in) = match report {
            EpochReport::Counted(EpochPosition { id, writes }) => {
                return self.saw_writes(&id, writes);
            }
            EpochReport::Whole { known, longest, grants_in } => (known, longest, grants_in),
        };
        let id = |known: &Option<EpochPosition>| known.as_ref().map(|known| Arc::clone(&known.id));
        let is_late = id(&self.known) != id(&view.known);
        match (&mut self.known, known) {
            // Calls overtake each other: the greatest count is the latest.
            (Some(known), Some(told)) if known.id == told.id => {
                known.writes = known.writes.max(told.writes);
            }
            // The reply is older than the epoch that this agent has learned of meanwhile.
            _ if is_late => return,
            (known, Some(told)) => *known = Some(told),
            (_, None) => {}
        }
        self.uses(now, longest);
        self.noted = Some((longest, now)).filter(|_| !longest.is_zero());
        self.quarantine = match grants_in.is_zero() {
            true => Quarantine::None,
            false => Quarantine::Until(now + grants_in),
        };
    }

    /// Takes a count of writes, if the epoch is still that of `id`.
    fn saw_writes(&mut self, id: &str, writes: u64) {
        if let Some(known) = self.known.as_mut().filter(|known| *known.id == *id) {
            known.writes = known.writes.max(writes);
        }
    }

    /// The expected end of the quarantine; `None` if there is none, or its time is over.
    fn grants_at(&self, now: Boottime) -> Option<Boottime> {
        match self.quarantine {
            Quarantine::Until(at) if now < at => Some(at),
            Quarantine::Until(_) | Quarantine::None => None,
        }
    }

    /// The store has confirmed that an administrator ended the quarantine.
    fn end_quarantine(&mut self) {
        self.quarantine = Quarantine::None;
    }

    fn uses(&mut self, now: Boottime, ttl: Duration) {
        if !ttl.is_zero() && self.longest.is_none_or(|(it, at)| ttl >= it || at + it < now) {
            self.longest = Some((ttl, now));
        }
    }
}

/// The epoch as all connections of a store share it.
#[derive(Debug, Clone, Default)]
pub struct SharedEpoch(Arc<Mutex<Epoch>>);

impl SharedEpoch {
    /// The view for a call that asks for holds of that ttl.
    pub fn ask(&self, ttl: Duration) -> EpochView {
        self.get().ask(clock::now(), ttl)
    }

    /// Takes the report in the reply to a call that left with `view`.
    pub fn hear(&self, view: &EpochView, report: EpochReport) {
        self.get().hear(clock::now(), view, report);
    }

    /// Takes a count of writes, if the epoch is still that of `id`.
    pub fn saw_writes(&self, id: &str, writes: u64) {
        self.get().saw_writes(id, writes);
    }

    /// The expected end of the quarantine; `None` if there is none, or its time is over.
    pub fn grants_at(&self, now: Boottime) -> Option<Boottime> {
        self.get().grants_at(now)
    }

    /// The store has confirmed that an administrator ended the quarantine.
    pub fn end_quarantine(&self) {
        self.get().end_quarantine();
    }

    fn get(&self) -> MutexGuard<'_, Epoch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(seconds: u64) -> Boottime {
        Boottime::ZERO + s(seconds)
    }

    fn report(id: &str, writes: u64, grants_in: u64) -> EpochReport {
        let known = Some(EpochPosition { id: id.into(), writes });
        EpochReport::Whole { known, longest: Duration::ZERO, grants_in: s(grants_in) }
    }

    #[test]
    fn a_late_reply_takes_nothing_back() {
        let mut epoch = Epoch::default();
        let first = epoch.ask(at(1), s(30));
        epoch.hear(at(1), &first, report("a", 7, 0));
        let (early, late) = (epoch.ask(at(2), s(30)), epoch.ask(at(2), s(30)));
        epoch.hear(at(3), &early, report("a", 9, 0));
        epoch.hear(at(3), &late, report("a", 8, 0));
        assert_eq!(epoch.known.as_ref().map(|it| it.writes), Some(9));
        // One call finds a loss while another is on its way.
        let (early, late) = (epoch.ask(at(4), s(30)), epoch.ask(at(4), s(30)));
        epoch.hear(at(5), &early, report("b", 10, 30));
        assert_eq!(epoch.grants_at(at(5)), Some(at(35)));
        epoch.hear(at(5), &late, report("a", 11, 0));
        assert_eq!(epoch.known.as_ref().map(|it| &*it.id), Some("b"));
        assert_eq!(epoch.grants_at(at(36)), None);
    }

    #[test]
    fn the_longest_ttl_counts_until_it_would_have_run_out() {
        let mut epoch = Epoch::default();
        assert_eq!(epoch.ask(at(1), s(60)).longest, s(60));
        assert_eq!(epoch.ask(at(50), s(10)).longest, s(60));
        assert_eq!(epoch.ask(at(62), s(10)).longest, s(10));
    }

    #[test]
    fn the_counter_is_enough_while_nothing_is_wrong() {
        let mut epoch = Epoch::default();
        let is_calm = |epoch: &mut Epoch, now, ttl| epoch.ask(at(now), s(ttl)).is_calm;
        let whole = |epoch: &mut Epoch, now, writes, grants_in| {
            let view = epoch.ask(at(now), s(30));
            let known = Some(EpochPosition { id: "a".into(), writes });
            let (longest, grants_in) = (s(30), s(grants_in));
            epoch.hear(at(now), &view, EpochReport::Whole { known, longest, grants_in });
        };
        assert!(!is_calm(&mut epoch, 1, 30), "nothing is known");
        whole(&mut epoch, 1, 0, 0);
        assert!(!is_calm(&mut epoch, 1, 30), "a counter that is not there tells nothing");
        whole(&mut epoch, 2, 1, 0);
        assert!(is_calm(&mut epoch, 3, 30) && is_calm(&mut epoch, 3, 0));
        assert!(!is_calm(&mut epoch, 3, 60), "the store does not know that ttl");
        assert!(!is_calm(&mut epoch, 18, 30), "it may forget that ttl");
        whole(&mut epoch, 20, 2, 10);
        assert_eq!(epoch.grants_at(at(29)), Some(at(30)));
        assert!(!is_calm(&mut epoch, 31, 10), "it may have been prolonged: the store must say");
        whole(&mut epoch, 32, 3, 0);
        assert!(is_calm(&mut epoch, 33, 10));
    }
}
