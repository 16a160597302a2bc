//! The one timer table.

use std::collections::BTreeSet;

use crate::model::{ClaimId, SessionId};
use crate::time::Boottime;

/// Deadlines that are likely to move are looked at on a grid of this, ns.
const GRID_NS: u64 = 32_000_000;

/// A queue of waiters for a resource, as timers name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueueId(pub(super) u64);

/// A watched resource, as timers name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WatchId(pub(super) u64);

/// The purpose of a timer. The order breaks ties: losses come before renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    /// A hold's valid-until, or the end of its longest duration.
    Deadline(ClaimId),
    /// A connection tether without a stream, or a keepalive tether without a call.
    Tether(SessionId),
    /// A program's promise of progress.
    Progress(SessionId),
    /// The end of a client's patience, or of an orphaned wait after a restart.
    Patience(ClaimId),
    /// A hold's, or a waiter's, next renewal.
    Beat(ClaimId),
    /// An announced session's next renewal.
    SessionBeat(SessionId),
    /// The next attempt of a release.
    Release(ClaimId),
    /// The next asking for places in a queue.
    Places(QueueId),
    /// The end of the rest between two standings of a watched resource.
    Watch(WatchId),
    /// The next attempt to end a session upstream.
    SessionEnd(SessionId),
    /// The next batch of changes for the history.
    Records,
    /// The next part of what is asked for since hints were lost.
    Missed,
    /// The next part of what ends.
    Ends,
    /// The oldest ended hold or session may be forgotten.
    Forget,
    /// The agent makes itself known again.
    Show,
}

/// A deadline that somebody keeps, and the entry of the table that will remind of it.
///
/// Deadlines mostly move away: the entry stays where it is until it fires, and is then moved, so
/// that a renewal costs no work on the table.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Alarm {
    due: Option<Boottime>,
    armed: Option<Boottime>,
}

impl Alarm {
    /// When it is due.
    pub(super) fn due(&self) -> Option<Boottime> {
        self.due
    }
}

impl Timer {
    /// True if holds depend on it: it must not wait behind thousands of others that came due
    /// before.
    fn is_urgent(self) -> bool {
        matches!(self, Timer::Deadline(_) | Timer::Beat(_) | Timer::SessionBeat(_))
    }
}

/// Every deadline of the keeper, in order.
#[derive(Debug, Default)]
pub(super) struct Timers {
    urgent: BTreeSet<(Boottime, Timer)>,
    others: BTreeSet<(Boottime, Timer)>,
}

impl Timers {
    /// When the next entry fires. May be earlier than the deadline it stands for.
    pub(super) fn next(&self) -> Option<Boottime> {
        [&self.urgent, &self.others].into_iter().filter_map(first).min()
    }

    /// When the next entry fires on which holds depend.
    pub(super) fn next_urgent(&self) -> Option<Boottime> {
        first(&self.urgent)
    }

    /// Takes the next entry that is due: what holds depend on before all others.
    pub(super) fn pop(&mut self, now: Boottime) -> Option<(Boottime, Timer)> {
        let is_due = |entries: &BTreeSet<_>| first(entries).is_some_and(|at| at <= now);
        if is_due(&self.urgent) {
            self.urgent.pop_first()
        } else if is_due(&self.others) {
            self.others.pop_first()
        } else {
            None
        }
    }

    fn entries(&mut self, timer: Timer) -> &mut BTreeSet<(Boottime, Timer)> {
        if timer.is_urgent() { &mut self.urgent } else { &mut self.others }
    }

    /// When to look whether a deadline has moved. Valid-untils do at every beat: those of thousands of
    /// holds meet on a grid, which saves a wake-up for each.
    fn look_at(timer: Timer, due: Boottime) -> Boottime {
        match timer {
            Timer::Deadline(_) => Boottime::from_nanos(due.as_nanos() / GRID_NS * GRID_NS),
            _ => due,
        }
    }

    /// Sets, moves or (with `None`) clears a deadline.
    pub(super) fn set(&mut self, alarm: &mut Alarm, timer: Timer, due: Option<Boottime>) {
        alarm.due = due;
        match (due, alarm.armed) {
            (Some(due), Some(armed)) if armed <= due => {}
            (Some(due), armed) => {
                if let Some(armed) = armed {
                    self.entries(timer).remove(&(armed, timer));
                }
                self.arm(alarm, timer, Timers::look_at(timer, due));
            }
            (None, Some(armed)) => {
                self.entries(timer).remove(&(armed, timer));
                alarm.armed = None;
            }
            (None, None) => {}
        }
    }

    fn arm(&mut self, alarm: &mut Alarm, timer: Timer, at: Boottime) {
        self.entries(timer).insert((at, timer));
        alarm.armed = Some(at);
    }

    /// An entry fired: whether the deadline itself is due. If not, it is armed again.
    pub(super) fn fired(&mut self, alarm: &mut Alarm, timer: Timer, now: Boottime) -> bool {
        alarm.armed = None;
        match alarm.due {
            Some(due) if due <= now => {
                alarm.due = None;
                true
            }
            Some(due) => {
                // A deadline that has not moved by now is armed exactly.
                let early = Timers::look_at(timer, due);
                self.arm(alarm, timer, if early > now { early } else { due });
                false
            }
            None => false,
        }
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.others.len()
    }
}

fn first(entries: &BTreeSet<(Boottime, Timer)>) -> Option<Boottime> {
    entries.first().map(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Boottime {
        Boottime::from_nanos(ns)
    }

    #[test]
    fn a_deadline_that_moves_away_is_armed_again_when_it_fires() {
        let mut timers = Timers::default();
        let mut alarm = Alarm::default();
        timers.set(&mut alarm, Timer::Forget, Some(at(10)));
        timers.set(&mut alarm, Timer::Forget, Some(at(30)));
        assert_eq!(timers.next(), Some(at(10)), "moving away costs nothing");
        assert_eq!(timers.pop(at(10)), Some((at(10), Timer::Forget)));
        assert!(!timers.fired(&mut alarm, Timer::Forget, at(10)));
        assert_eq!(timers.next(), Some(at(30)));
        assert_eq!(timers.pop(at(29)), None);
        assert!(timers.pop(at(30)).is_some());
        assert!(timers.fired(&mut alarm, Timer::Forget, at(30)));
        assert_eq!(timers.len(), 0);
    }

    #[test]
    fn what_holds_depend_on_overtakes_what_came_due_before() {
        let mut timers = Timers::default();
        let mut alarms = [Alarm::default(), Alarm::default()];
        let (beat, patience) =
            (Timer::Beat(ClaimId(uuid::Uuid::nil())), Timer::Patience(ClaimId(uuid::Uuid::nil())));
        timers.set(&mut alarms[0], patience, Some(at(10)));
        timers.set(&mut alarms[1], beat, Some(at(20)));
        assert_eq!((timers.next(), timers.next_urgent()), (Some(at(10)), Some(at(20))));
        assert_eq!(timers.pop(at(20)), Some((at(20), beat)));
        assert_eq!(timers.pop(at(20)), Some((at(10), patience)));
    }

    #[test]
    fn a_deadline_that_comes_nearer_replaces_its_entry() {
        let mut timers = Timers::default();
        let mut alarm = Alarm::default();
        timers.set(&mut alarm, Timer::Forget, Some(at(30)));
        timers.set(&mut alarm, Timer::Forget, Some(at(10)));
        assert_eq!((timers.next(), timers.len()), (Some(at(10)), 1));
    }

    #[test]
    fn a_cleared_deadline_leaves_nothing() {
        let mut timers = Timers::default();
        let mut alarm = Alarm::default();
        timers.set(&mut alarm, Timer::Forget, Some(at(30)));
        timers.set(&mut alarm, Timer::Forget, None);
        assert_eq!((timers.next(), timers.len(), alarm.due()), (None, 0, None));
    }

    #[test]
    fn a_valid_until_is_looked_at_early_and_fires_exactly() {
        let mut timers = Timers::default();
        let mut alarm = Alarm::default();
        let timer = Timer::Deadline(ClaimId(uuid::Uuid::nil()));
        let due = at(10 * GRID_NS + 5);
        timers.set(&mut alarm, timer, Some(due));
        let early = at(10 * GRID_NS);
        assert_eq!(timers.next(), Some(early));
        assert!(timers.pop(early).is_some());
        assert!(!timers.fired(&mut alarm, timer, early));
        assert_eq!(timers.next(), Some(due));
        assert!(timers.pop(due).is_some());
        assert!(timers.fired(&mut alarm, timer, due));
        assert_eq!(timers.len(), 0);
    }
}
