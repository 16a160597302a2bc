//! PURE. The time that all nodes agree on.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::time::Boottime;

/// An instant of the cluster: ns that its leaders have counted since it was founded.
///
/// It stands still while no majority runs, and never runs ahead of the time that has really passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterTime(u64);

impl ClusterTime {
    /// That many ns after the founding.
    pub const fn from_nanos(ns: u64) -> ClusterTime {
        ClusterTime(ns)
    }

    /// ns since the founding.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This long after.
    pub fn after(self, by: Duration) -> ClusterTime {
        ClusterTime::from(self.of_engine() + by)
    }

    /// The time from `earlier` to this; zero if that is later.
    pub fn since(self, earlier: ClusterTime) -> Duration {
        self.of_engine().since(earlier.of_engine())
    }

    /// The same instant as the engine counts: it knows no other clock.
    pub const fn of_engine(self) -> Boottime {
        Boottime::from_nanos(self.0)
    }
}

impl From<Boottime> for ClusterTime {
    fn from(engine: Boottime) -> ClusterTime {
        ClusterTime(engine.as_nanos())
    }
}

/// A node's estimate of the cluster's time: the latest stamp that it heard, and the time since by its own clock.
///
/// It goes by each stamp of another node, which leads. One that led before may be ahead of its successor, which heard
/// its stamps late: if it led again by its own count, what the successor granted would end early.
///
/// A leader's own stamp comes back to it a little later, when it is applied; what it has counted on since stays.
/// To start again from each of them would make time stand still under a steady load.
#[derive(Debug, Clone, Copy)]
pub struct ClusterClock {
    stamp: ClusterTime,
    heard_at: Boottime,
}

impl ClusterClock {
    /// A clock that goes on from the latest stamp that is known.
    pub fn new(stamp: ClusterTime, now: Boottime) -> ClusterClock {
        ClusterClock { stamp, heard_at: now }
    }

    /// Another node has stamped an entry.
    pub fn follow(&mut self, stamp: ClusterTime, now: Boottime) {
        *self = ClusterClock::new(stamp, now);
    }

    /// A stamp of this node, or of a time before it ran, comes back.
    pub fn hear(&mut self, stamp: ClusterTime, now: Boottime) {
        if stamp > self.at(now) {
            self.follow(stamp, now);
        }
    }

    /// The cluster's time at an instant of this host.
    pub fn at(&self, now: Boottime) -> ClusterTime {
        let passed = u64::try_from(now.since(self.heard_at).as_nanos()).unwrap_or(u64::MAX);
        ClusterTime(self.stamp.0.saturating_add(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Boottime {
        Boottime::from_nanos(ms * 1_000_000)
    }

    fn stamp_ms(ms: u64) -> ClusterTime {
        ClusterTime(ms * 1_000_000)
    }

    #[test]
    fn time_goes_on_while_stamps_come_back_late() {
        let mut clock = ClusterClock::new(ClusterTime::default(), at_ms(1000));
        for ms in 1000..2000 {
            let stamp = clock.at(at_ms(ms));
            clock.hear(stamp, at_ms(ms + 1));
        }
        assert_eq!(clock.at(at_ms(2000)), stamp_ms(1000));
    }

    #[test]
    fn a_leader_that_was_ahead_goes_by_its_successor() {
        let mut first = ClusterClock::new(stamp_ms(1000), at_ms(0));
        let mut second = ClusterClock::new(stamp_ms(900), at_ms(0));
        second.hear(second.at(at_ms(10)), at_ms(11));
        first.follow(second.at(at_ms(10)), at_ms(12));
        assert!(first.at(at_ms(12)) <= second.at(at_ms(12)));
    }

    #[test]
    fn a_follower_is_never_ahead_of_its_leader() {
        let leader = ClusterClock::new(stamp_ms(5000), at_ms(0));
        let mut follower = ClusterClock::new(stamp_ms(1000), at_ms(0));
        for ms in [0, 10, 500, 501] {
            follower.follow(leader.at(at_ms(ms)), at_ms(ms + 3));
            assert!(follower.at(at_ms(ms + 3)) <= leader.at(at_ms(ms + 3)));
            let behind = leader.at(at_ms(ms + 3)).since(follower.at(at_ms(ms + 3)));
            assert!(behind <= Duration::from_millis(3));
        }
    }
}
