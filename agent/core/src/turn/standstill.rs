//! PURE. Notices when whoever runs a keeper did not run, though it was to.

use std::time::Duration;

use crate::time::Boottime;

/// While there are sessions a turn is taken this often at least, so that one that is missed is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// To run later than it was to by this much was a standstill of the process, or of the whole machine.
const LATE_MIN: Duration = Duration::from_millis(250);

/// Compares when turns begin with when they were to.
#[derive(Debug)]
pub struct Standstills {
    /// When the last turn began.
    ran: Boottime,
    /// When the next one is to begin at the latest.
    runs_by: Option<Boottime>,
}

/// A standstill that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standstill {
    /// At most so long: it began when the last turn had begun.
    pub length: Duration,
    /// By how much the turn is late.
    pub late: Duration,
}

impl Standstills {
    /// Begins to run.
    pub fn new(now: Boottime) -> Standstills {
        Standstills { ran: now, runs_by: None }
    }

    /// Something is due then. Gives the instant at which the next turn is to begin at the latest.
    pub fn wait(&mut self, due: Option<Boottime>, has_sessions: bool) -> Option<Boottime> {
        let look = has_sessions.then_some(self.ran + LOOK_EVERY);
        self.runs_by = due.into_iter().chain(look).min();
        self.runs_by
    }

    /// A turn begins: the standstill that ends with it, if there was one.
    pub fn turn_begins(&mut self, now: Boottime) -> Option<Standstill> {
        let length = now.since(self.ran);
        self.ran = now;
        let late = self.runs_by.map_or(Duration::ZERO, |by| now.since(by));
        // What is overdue because there is much to do is no standstill.
        (late.min(length) >= LATE_MIN).then_some(Standstill { length, late })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Boottime {
        Boottime::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn only_a_turn_that_is_late_ends_a_standstill() {
        let mut standstills = Standstills::new(at(0));
        assert_eq!(standstills.wait(Some(at(400)), false), Some(at(400)));
        assert_eq!(standstills.turn_begins(at(649)), None);
        assert_eq!(standstills.wait(Some(at(700)), false), Some(at(700)));
        let standstill = standstills.turn_begins(at(1700)).unwrap();
        assert_eq!(standstill.length, Duration::from_millis(1051));
        assert_eq!(standstill.late, Duration::from_secs(1));
    }

    #[test]
    fn without_sessions_nothing_is_counted_that_was_not_due() {
        let mut standstills = Standstills::new(at(0));
        assert_eq!(standstills.wait(None, false), None);
        assert_eq!(standstills.turn_begins(at(60_000)), None);
        assert_eq!(standstills.wait(Some(at(90_000)), true), Some(at(61_000)));
        assert!(standstills.turn_begins(at(61_250)).is_some());
    }

    #[test]
    fn what_is_overdue_for_long_is_no_standstill() {
        let mut standstills = Standstills::new(at(1000));
        assert_eq!(standstills.wait(Some(at(200)), true), Some(at(200)));
        assert_eq!(standstills.turn_begins(at(1005)), None);
    }
}
