//! Pure. How much of the store's time each principal takes, and which of them has to leave some to others.
//!
//! A store answers the calls of one connection in their order: the service time of a call is the time from the previous answer
//! to its own. A greedy principal, one with far more than its share, has few calls under way at a time, and rests after a long
//! one, so that a call of another principal waits for one call at most. Beats are neither counted nor held back.

use std::time::Duration;

use tenure_core::model::Request;
use tenure_core::time::Boottime;
use tenure_stores::gateway::scope::{Mark, MarkMap};

/// Time between two judgements of all shares. Each share loses a quarter then, so that it is the service time of about the
/// last second.
const PERIOD: Duration = Duration::from_millis(250);
/// A principal takes too much with so much of a second, and with so many halves of the mean share of all …
const GREEDY_TIME: Duration = Duration::from_millis(200);
const GREEDY_HALVES: u32 = 3;
/// … and has others wait for no more than about this.
const UNDER_WAY: Duration = Duration::from_millis(1);
/// What a call of a greedy principal takes beyond this is followed by a rest of so many times as much.
const LONG: Duration = Duration::from_micros(500);
const REST_TIMES: u32 = 8;
/// The most that one call counts: a store that stood still, or a machine that slept, is nobody's fault.
const CALL_MAX: Duration = Duration::from_millis(125);
/// A principal that makes no call for so long is forgotten.
const ACTIVE: Duration = Duration::from_secs(2);

/// What principals take.
#[derive(Debug)]
pub(super) struct Shares {
    of: MarkMap<Share>,
    has_greedy: bool,
    looked_at: Boottime,
    /// When the last call was answered, of those with long answers and of the others: they have connections of their own.
    answered_at: [Boottime; 2],
    /// The time that the quickest calls take of late, which is spent on the way to the store.
    way: Duration,
}

#[derive(Debug, Default)]
struct Share {
    taken: Duration,
    /// What a call takes, on average of the last ones.
    call: Duration,
    under_way: u32,
    answered_at: Boottime,
    is_greedy: bool,
    rests_until: Boottime,
}

/// A call that the store has.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreCall {
    mark: Mark,
    is_aside: bool,
    at: Boottime,
}

/// Whether a principal's next call may go to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    At(Boottime),
    /// With the answer to one that is under way.
    WithAnswer,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares {
            of: MarkMap::default(),
            has_greedy: false,
            looked_at: Boottime::ZERO,
            answered_at: [Boottime::ZERO; 2],
            way: Duration::MAX,
        }
    }
}

impl Shares {
    /// A call goes to the store.
    pub(super) fn send(&mut self, now: Boottime, mark: Mark, request: &Request) -> StoreCall {
        self.of.entry(mark).or_default().under_way += 1;
        StoreCall { mark, is_aside: request.is_aside(), at: now }
    }

    /// It was answered.
    pub(super) fn answered(&mut self, now: Boottime, StoreCall { mark, is_aside, at }: StoreCall) {
        let [of_others, aside] = &mut self.answered_at;
        let last = if is_aside { aside } else { of_others };
        let latency = now.since(at);
        self.way = self.way.min(latency);
        // The time on the way to the store delays no other call.
        let taken = now.since(at.max(*last)).min(latency.saturating_sub(self.way)).min(CALL_MAX);
        *last = now;
        let share = self.of.entry(mark).or_default();
        share.under_way = share.under_way.saturating_sub(1);
        share.answered_at = now;
        share.taken += taken;
        share.call = (share.call * 7 + taken) / 8;
        if share.is_greedy {
            share.rests_until = now + taken.saturating_sub(LONG) * REST_TIMES;
        }
    }

    /// Looks who takes too much, now and then.
    pub(super) fn look(&mut self, now: Boottime) {
        if now.since(self.looked_at) < PERIOD {
            return;
        }
        self.looked_at = now;
        // The way may have become longer.
        self.way = self.way.saturating_add(self.way / 16 + Duration::from_micros(10));
        self.of.retain(|_, it| it.under_way > 0 || now.since(it.answered_at) < ACTIVE);
        let active = u32::try_from(self.of.len()).unwrap_or(u32::MAX);
        let all: Duration = self.of.values().map(|share| share.taken).sum();
        let mean = all.checked_div(active).unwrap_or_default();
        for share in self.of.values_mut() {
            let Share { taken, is_greedy, .. } = share;
            // Once held back it takes less.
            *is_greedy = active > 1
                && *taken > mean
                && (*is_greedy || (*taken >= GREEDY_TIME && *taken * 2 > mean * GREEDY_HALVES));
            *taken = *taken * 3 / 4;
        }
        self.has_greedy = self.of.values().any(|share| share.is_greedy);
    }

    /// False if every call may go to the store now.
    pub(super) fn has_greedy(&self) -> bool {
        self.has_greedy
    }

    /// When the next call of a principal may go to the store.
    pub(super) fn turn(&self, now: Boottime, mark: Mark) -> Turn {
        // Mostly there is none, and each call asks several times.
        let share = if self.has_greedy() { self.of.get(&mark) } else { None };
        let Some(share) = share.filter(|share| share.is_greedy) else { return Turn::Now };
        if share.under_way > 0 && share.call * (share.under_way + 1) > UNDER_WAY {
            return Turn::WithAnswer;
        }
        if share.rests_until > now { Turn::At(share.rests_until) } else { Turn::Now }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::model::{ClaimId, Resource};
    use tenure_wire::Kind;
    use uuid::Uuid;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A store that answers one call after the other.
    struct Line {
        shares: Shares,
        now: Boottime,
    }

    impl Line {
        fn new() -> Line {
            Line { shares: Shares::default(), now: Boottime::from_nanos(5_000_000_000) }
        }

        fn call(&mut self, of: &str, time: Duration) {
            let resource = Resource { tenant: "t".into(), kind: Kind::Leader, name: "n".into() };
            let release = Request::Release { claim: ClaimId(Uuid::nil()), resource };
            let sent = self.shares.send(self.now, Mark::of(of), &release);
            self.now = self.now + time;
            self.shares.answered(self.now, sent);
            self.shares.look(self.now);
        }

        fn turn(&self, of: &str) -> Turn {
            self.shares.turn(self.now, Mark::of(of))
        }
    }

    #[test]
    fn one_that_takes_most_of_the_time_rests_and_others_do_not() {
        let mut line = Line::new();
        for _ in 0..1000 {
            line.call("greedy", MS * 10);
            line.call("other", MS / 2);
        }
        let rest = (MS * 10 - LONG - line.shares.way) * REST_TIMES;
        line.call("greedy", MS * 10);
        assert_eq!(line.turn("other"), Turn::Now);
        let Turn::At(at) = line.turn("greedy") else { panic!("{:?}", line.turn("greedy")) };
        assert!(at.since(line.now) >= rest - MS, "{:?}", at.since(line.now));
        line.now = at;
        assert_eq!(line.turn("greedy"), Turn::Now);
    }

    #[test]
    fn one_that_takes_most_has_a_ms_of_calls_under_way() {
        let mut line = Line::new();
        for _ in 0..10_000 {
            for _ in 0..9 {
                line.call("greedy", MS / 5);
            }
            line.call("other", MS / 50);
        }
        let request =
            Request::Resources { page: tenure_core::model::Page { after: None, limit: 1 } };
        let mut sent = 0;
        while line.turn("greedy") == Turn::Now && sent < 100 {
            line.shares.send(line.now, Mark::of("greedy"), &request);
            sent += 1;
        }
        assert!((5..=6).contains(&sent), "{sent}");
        assert_eq!(line.turn("greedy"), Turn::WithAnswer);
    }

    #[test]
    fn one_alone_and_two_alike_are_not_held_back() {
        let mut line = Line::new();
        for _ in 0..1000 {
            line.call("alone", MS * 10);
            assert_eq!(line.turn("alone"), Turn::Now);
        }
        for _ in 0..1000 {
            line.call("alone", MS * 10);
            line.call("another", MS * 9);
        }
        assert_eq!((line.turn("alone"), line.turn("another")), (Turn::Now, Turn::Now));
    }

    #[test]
    fn the_way_to_a_distant_store_counts_for_nobody() {
        let mut line = Line::new();
        for _ in 0..1000 {
            line.call("far", MS * 20);
            line.call("far", MS * 20);
            line.call("other", MS * 20);
        }
        assert_eq!(line.turn("far"), Turn::Now);
        assert!(line.shares.of.len() <= 2);
    }

    #[test]
    fn a_store_that_stood_still_costs_a_greedy_principal_a_second_at_most() {
        let mut line = Line::new();
        for _ in 0..100 {
            line.call("greedy", MS * 20);
            line.call("other", MS);
        }
        line.call("greedy", MS * 1500);
        let Turn::At(at) = line.turn("greedy") else { panic!("{:?}", line.turn("greedy")) };
        assert!(at.since(line.now) <= Duration::from_secs(1), "{:?}", at.since(line.now));
    }

    #[test]
    fn one_that_stops_is_forgotten() {
        let mut line = Line::new();
        for _ in 0..100 {
            line.call("greedy", MS * 50);
            line.call("other", MS);
        }
        for _ in 0..20_000 {
            line.call("other", MS);
            line.call("third", MS);
        }
        assert!(!line.shares.of.contains_key(&Mark::of("greedy")));
    }
}
