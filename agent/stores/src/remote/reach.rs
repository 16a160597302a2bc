//! PURE. Since when a store is reached, or not.

use tenure_core::time::Boottime;
use tenure_wire::UpstreamState;

use crate::Health;

/// The present, and the last time that it was otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// When the store was reached, or was not any more.
    pub since: Boottime,
    pub is_reached: bool,
    /// The last time that it was away and came back.
    pub outage: Option<Outage>,
    /// True if it was reached at any time: to connect for the first time is no outage.
    has_been: bool,
}

/// A time in which a store was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    pub began: Boottime,
    pub ended: Boottime,
}

/// The same by two connections, each of which it takes: one that is lost is missed before the other.
#[derive(Debug)]
pub(super) struct ReachOfBoth {
    reach: Reach,
    up: [bool; 2],
}

impl ReachOfBoth {
    pub(super) fn new(now: Boottime) -> ReachOfBoth {
        ReachOfBoth { reach: Reach::new(now), up: [false; 2] }
    }

    pub(super) fn change(&mut self, now: Boottime, which: usize, is_up: bool) {
        self.up[which] = is_up;
        self.reach.change(now, self.up == [true; 2]);
    }

    pub(super) fn get(&self) -> Reach {
        self.reach
    }
}

/// A store that another one stands before, as that one tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind {
    /// Its kind, for people.
    pub kind: String,
    pub reach: Reach,
    /// The reason for its being away.
    pub error: Option<String>,
    /// The end of the store's quarantine, if the store lost data.
    pub grants_at: Option<Boottime>,
}

impl Behind {
    /// Adds it to the health of what stands before it.
    pub(super) fn show_in(self, health: &mut Health) {
        if !matches!(health.state, UpstreamState::Up | UpstreamState::Quarantined) {
            return;
        }
        health.reach = health.reach.map(|reach| reach.through(self.reach));
        if !self.reach.is_reached {
            health.state = UpstreamState::Down;
            health.last_error = self.error.or(health.last_error.take());
            // It is the error of now.
            health.last_error_at = None;
            health.behind = Some(self.kind);
        }
    }
}

impl Reach {
    /// Nobody has reached it.
    pub(super) fn new(now: Boottime) -> Reach {
        Reach { since: now, is_reached: false, outage: None, has_been: false }
    }

    /// It was reached until then.
    pub(crate) fn lost(since: Boottime) -> Reach {
        Reach { has_been: true, ..Reach::new(since) }
    }

    /// It is reached from now on, or not.
    pub(crate) fn change(&mut self, now: Boottime, is_reached: bool) {
        if self.is_reached == is_reached {
            return;
        }
        if is_reached && self.has_been {
            self.outage = Some(Outage { began: self.since, ended: now });
        }
        self.has_been |= is_reached;
        self.is_reached = is_reached;
        self.since = now;
    }

    /// The reach of something behind another: it is away while either is.
    pub(super) fn through(self, other: Reach) -> Reach {
        let since = match (self.is_reached, other.is_reached) {
            (true, false) => other.since,
            (false, true) => self.since,
            (true, true) => self.since.max(other.since),
            (false, false) => self.since.min(other.since),
        };
        let outages = [self.outage, other.outage].into_iter().flatten();
        Reach {
            since,
            is_reached: self.is_reached && other.is_reached,
            outage: outages.max_by_key(|outage| outage.ended),
            has_been: self.has_been && other.has_been,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_loss_to_the_next_success() {
        let at = |s: u64| Boottime::from_nanos(s * 1_000_000_000);
        let mut reach = Reach::new(at(1));
        reach.change(at(2), false);
        reach.change(at(3), true);
        assert_eq!((reach.since, reach.outage), (at(3), None), "the first time is no outage");
        reach.change(at(10), false);
        reach.change(at(11), false);
        assert_eq!((reach.since, reach.is_reached), (at(10), false));
        reach.change(at(22), true);
        assert_eq!(reach.outage, Some(Outage { began: at(10), ended: at(22) }));
        assert_eq!(reach.since, at(22));
    }

    #[test]
    fn it_is_away_as_soon_as_one_connection_is_lost() {
        let at = |s: u64| Boottime::from_nanos(s * 1_000_000_000);
        let mut both = ReachOfBoth::new(at(1));
        both.change(at(2), 0, true);
        assert!(!both.get().is_reached);
        both.change(at(3), 1, true);
        assert_eq!((both.get().is_reached, both.get().since), (true, at(3)));
        both.change(at(50), 1, false);
        both.change(at(55), 0, false);
        assert_eq!((both.get().is_reached, both.get().since), (false, at(50)));
        both.change(at(60), 1, true);
        both.change(at(61), 0, true);
        assert_eq!(both.get().outage, Some(Outage { began: at(50), ended: at(61) }));
    }

    #[test]
    fn what_is_reached_through_another_is_away_while_either_is() {
        let at = |s: u64| Boottime::from_nanos(s * 1_000_000_000);
        let reach = |changes: &[(u64, bool)]| {
            let mut reach = Reach::new(at(0));
            changes.iter().for_each(|(s, is_reached)| reach.change(at(*s), *is_reached));
            reach
        };
        let near = reach(&[(1, true), (2, false), (3, true)]);
        let far = reach(&[(4, true), (7, false)]);
        let both = near.through(far);
        assert_eq!((both.since, both.is_reached), (at(7), false));
        assert_eq!(far.through(near), both);
        let back = reach(&[(4, true), (7, false), (9, true)]);
        let both = near.through(back);
        assert_eq!((both.since, both.is_reached), (at(9), true));
        assert_eq!(both.outage, Some(Outage { began: at(7), ended: at(9) }));
        let away = reach(&[(4, true), (5, false)]);
        assert_eq!(away.through(far).since, at(5));
    }
}
