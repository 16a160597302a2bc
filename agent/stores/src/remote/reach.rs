//! PURE. Since when a store is reached, or not.

use tenure_core::time::Boottime;

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

impl Reach {
    /// Nobody has reached it.
    pub(super) fn new(now: Boottime) -> Reach {
        Reach { since: now, is_reached: false, outage: None, has_been: false }
    }

    /// It is reached from now on, or not.
    pub(super) fn change(&mut self, now: Boottime, is_reached: bool) {
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
}
