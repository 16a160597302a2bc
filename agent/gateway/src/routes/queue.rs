//! Pure. What a proxy has not been told yet: the latest state of each mailbox, in the order of their changes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_wire::Route;

use super::{Change, State};

/// How long a proxy may take to answer.
pub const PUSH_WITHIN: Duration = Duration::from_secs(2);
/// Pushes that a proxy has at a time, each of another mailbox.
const UNDER_WAY_MAX: usize = 32;
/// First wait after a failure; doubles up to [`BACK_OFF_MAX`], so that a proxy that returns is right within a second.
const BACK_OFF_MIN: Duration = Duration::from_millis(50);
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

/// The changes that one proxy is to be told. It has at most two entries for each mailbox that the proxy knows, or is to know.
#[derive(Debug, Default)]
pub struct Queue {
    /// The routes that the proxy is to have.
    wanted: HashMap<Arc<str>, Arc<Route>>,
    /// The mailboxes of which it may have a route.
    told: HashSet<Arc<str>>,
    /// The mailboxes that wait, in order.
    order: BTreeMap<u64, Arc<str>>,
    waiting: HashMap<Arc<str>, Waiting>,
    under_way: HashMap<Arc<str>, (Waiting, State)>,
    next_place: u64,
    trouble: Option<Trouble>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    place: u64,
    /// The first change that it was not told.
    since: Boottime,
    /// As of this version there is no route; for a mailbox that has none.
    removed_at: u64,
}

/// A proxy that failed: it is asked one thing at a time, until it answers.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    failures: u32,
    retry_at: Boottime,
    /// It may have been started again since, and know nothing.
    forgot: bool,
}

/// Something to tell the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    pub mailbox: Arc<str>,
    pub state: State,
}

/// The outcome of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Delivered,
    /// The proxy does not want it. It is told the next change.
    Refused,
    Failed,
}

impl Queue {
    /// The proxy is to be told of a change.
    pub fn change(&mut self, now: Boottime, Change { mailbox, state }: Change) {
        let removed_at = match state {
            State::Routed(route) => {
                self.wanted.insert(Arc::clone(&mailbox), route);
                0
            }
            State::Removed(version) => {
                self.wanted.remove(&mailbox);
                if !self.told.contains(&mailbox) {
                    return self.forget(&mailbox);
                }
                version
            }
        };
        self.wait(now, mailbox, removed_at);
    }

    /// The proxy is to have these routes, and no others.
    pub fn replace(&mut self, now: Boottime, version: u64, routes: Vec<Arc<Route>>) {
        let kept: HashSet<&str> = routes.iter().map(|route| route.name.as_str()).collect();
        let gone = self.told.iter().chain(self.wanted.keys());
        let gone: Vec<_> = gone.filter(|mailbox| !kept.contains(&***mailbox)).cloned().collect();
        for mailbox in gone {
            self.change(now, Change { mailbox, state: State::Removed(version) });
        }
        for route in routes {
            if self.wanted.get(route.name.as_str()) != Some(&route) {
                self.change(now, route.into());
            }
        }
    }

    /// The connection has ended: the proxy may be started again, and know nothing.
    pub fn lost_connection(&mut self, now: Boottime) {
        if self.trouble.is_none() {
            self.trouble = Some(Trouble { failures: 0, retry_at: now, forgot: false });
            self.tell_all_again(now);
        }
    }

    /// The next push; to be asked for until there is none.
    pub fn next(&mut self, now: Boottime) -> Option<Push> {
        let most = if self.trouble.is_some() { 1 } else { UNDER_WAY_MAX };
        let is_early = self.trouble.is_some_and(|trouble| now < trouble.retry_at);
        if is_early || self.under_way.len() >= most {
            return None;
        }
        let (place, mailbox) =
            self.order.iter().find(|(_, mailbox)| !self.under_way.contains_key(*mailbox))?;
        let (place, mailbox) = (*place, Arc::clone(mailbox));
        self.order.remove(&place);
        let waiting = self.waiting.remove(&mailbox)?;
        let state = match self.wanted.get(&mailbox) {
            Some(route) => State::Routed(Arc::clone(route)),
            None => State::Removed(waiting.removed_at),
        };
        self.told.insert(Arc::clone(&mailbox));
        self.under_way.insert(Arc::clone(&mailbox), (waiting, state.clone()));
        Some(Push { mailbox, state })
    }

    /// Takes what became of a push; how long after the change it was delivered. `roll` is a random number, so that
    /// gateways do not try again together.
    pub fn done(
        &mut self,
        now: Boottime,
        mailbox: &str,
        outcome: Outcome,
        roll: u16,
    ) -> Option<Duration> {
        let (mailbox, (sent, state)) = self.under_way.remove_entry(mailbox)?;
        if outcome == Outcome::Failed {
            self.repeat(mailbox, sent);
            let failures = self.trouble.map_or(0, |trouble| trouble.failures) + 1;
            let retry_at = now + back_off(failures, roll);
            self.trouble = Some(Trouble { failures, retry_at, forgot: true });
            return None;
        }
        if matches!(state, State::Removed(_)) && !self.wanted.contains_key(&mailbox) {
            self.told.remove(&mailbox);
        }
        if self.trouble.take().is_some_and(|trouble| trouble.forgot) {
            self.tell_all_again(now);
            if matches!((&state, self.wanted.get(&mailbox)), (State::Routed(sent), Some(it)) if sent == it)
            {
                self.forget(&mailbox);
            }
        }
        (outcome == Outcome::Delivered).then(|| now.since(sent.since))
    }

    /// When there may be a push, though nothing changes.
    pub fn poll_timeout(&self) -> Option<Boottime> {
        let is_to_retry = !self.order.is_empty() && self.under_way.is_empty();
        self.trouble.filter(|_| is_to_retry).map(|trouble| trouble.retry_at)
    }

    /// True as long as the proxy is not known to be away.
    pub fn is_reached(&self) -> bool {
        self.trouble.is_none()
    }

    /// The first change that the proxy has not confirmed.
    pub fn behind_since(&self) -> Option<Boottime> {
        let first = self.order.values().next().and_then(|mailbox| self.waiting.get(mailbox));
        first.into_iter().chain(self.under_way.values().map(|(it, _)| it)).map(|it| it.since).min()
    }

    /// How many mailboxes it has not been told of.
    pub fn behind(&self) -> usize {
        self.order.len() + self.under_way.len()
    }

    /// Puts a mailbox at the end, or leaves it where it waits: it is told the latest state.
    fn wait(&mut self, now: Boottime, mailbox: Arc<str>, removed_at: u64) {
        if let Some(waiting) = self.waiting.get_mut(&mailbox) {
            waiting.removed_at = removed_at;
            return;
        }
        let place = self.next_place;
        self.next_place += 1;
        self.order.insert(place, Arc::clone(&mailbox));
        self.waiting.insert(mailbox, Waiting { place, since: now, removed_at });
    }

    /// Puts a mailbox back to where it was; with what has become of it since.
    fn repeat(&mut self, mailbox: Arc<str>, mut sent: Waiting) {
        if let Some(later) = self.waiting.get(&mailbox) {
            self.order.remove(&later.place);
            sent.removed_at = later.removed_at;
        }
        self.order.insert(sent.place, Arc::clone(&mailbox));
        self.waiting.insert(mailbox, sent);
    }

    fn forget(&mut self, mailbox: &str) {
        if let Some(waiting) = self.waiting.remove(mailbox) {
            self.order.remove(&waiting.place);
        }
    }

    fn tell_all_again(&mut self, now: Boottime) {
        // A removal is told to one that has forgotten the route, too, which costs little.
        let mut all: Vec<_> =
            self.wanted.iter().map(|(mailbox, it)| (it.version, Arc::clone(mailbox))).collect();
        all.sort_unstable();
        for (_, mailbox) in all {
            self.wait(now, mailbox, 0);
        }
    }
}

fn back_off(failures: u32, roll: u16) -> Duration {
    let longest = BACK_OFF_MIN.saturating_mul(1 << failures.min(8)).min(BACK_OFF_MAX);
    longest / 2 + longest / 2 * u32::from(roll) / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::route;
    use super::*;

    const NOW: Boottime = Boottime::from_nanos(1_000_000_000);

    fn routed(name: &str, version: u64) -> Change {
        Change { mailbox: name.into(), state: State::Routed(Arc::new(route(name, version))) }
    }

    fn removed(name: &str, version: u64) -> Change {
        Change { mailbox: name.into(), state: State::Removed(version) }
    }

    fn drain(queue: &mut Queue, now: Boottime) -> Vec<(Arc<str>, u64)> {
        let pushes = std::iter::from_fn(|| queue.next(now));
        pushes.map(|push| (push.mailbox, push.state.version())).collect()
    }

    fn queue_of(names: &[&str]) -> Queue {
        let mut queue = Queue::default();
        queue.replace(NOW, 1, names.iter().map(|name| Arc::new(route(name, 1))).collect());
        queue
    }

    #[test]
    fn a_mailbox_waits_once_and_is_told_the_latest() {
        let mut queue = Queue::default();
        for change in [routed("a", 1), routed("b", 2), routed("a", 3)] {
            queue.change(NOW, change);
        }
        let later = NOW + Duration::from_millis(30);
        assert_eq!(drain(&mut queue, later), [("a".into(), 3), ("b".into(), 2)]);
        // A change while it is told comes after the answer.
        queue.change(later, removed("a", 4));
        assert_eq!(drain(&mut queue, later), []);
        assert_eq!(queue.behind_since(), Some(NOW));
        let lag = queue.done(later, "a", Outcome::Delivered, 0);
        assert_eq!(lag, Some(Duration::from_millis(30)));
        assert_eq!(drain(&mut queue, later), [("a".into(), 4)]);
        queue.done(later, "a", Outcome::Delivered, 0);
        queue.done(later, "b", Outcome::Delivered, 0);
        assert_eq!((queue.behind(), queue.told.len(), queue.behind_since()), (0, 1, None));
    }

    #[test]
    fn a_route_that_was_never_told_is_not_removed() {
        let mut queue = Queue::default();
        queue.change(NOW, routed("a", 1));
        queue.change(NOW, removed("a", 2));
        queue.change(NOW, removed("never heard of", 3));
        assert_eq!((queue.next(NOW), queue.behind()), (None, 0));
    }

    #[test]
    fn a_proxy_that_fails_is_asked_one_thing_at_a_time_and_then_told_all() {
        let mut queue = queue_of(&["a", "b", "c"]);
        assert_eq!(drain(&mut queue, NOW).len(), 3);
        queue.done(NOW, "b", Outcome::Delivered, 0);
        for name in ["a", "c"] {
            assert_eq!(queue.done(NOW, name, Outcome::Failed, u16::MAX), None);
        }
        let retry_at = queue.poll_timeout().unwrap();
        assert!(retry_at > NOW && !queue.is_reached());
        assert_eq!(drain(&mut queue, retry_at.before(Duration::from_nanos(1))), []);
        assert_eq!(drain(&mut queue, retry_at), [("a".into(), 1)]);
        queue.done(retry_at, "a", Outcome::Delivered, 0);
        assert!(queue.is_reached());
        let mut told = drain(&mut queue, retry_at);
        told.sort();
        assert_eq!(told, [("b".into(), 1), ("c".into(), 1)], "it may have forgotten b");
    }

    #[test]
    fn after_a_lost_connection_everything_is_told_again_at_once() {
        let mut queue = queue_of(&["a", "b"]);
        for (mailbox, _) in drain(&mut queue, NOW) {
            queue.done(NOW, &mailbox, Outcome::Delivered, 0);
        }
        queue.lost_connection(NOW);
        queue.lost_connection(NOW);
        assert_eq!(drain(&mut queue, NOW), [("a".into(), 1)], "whether it is there");
        queue.done(NOW, "a", Outcome::Delivered, 0);
        assert_eq!(drain(&mut queue, NOW), [("b".into(), 1)]);
    }

    #[test]
    fn what_is_not_among_all_routes_is_taken_away() {
        let mut queue = queue_of(&["a", "b", "c"]);
        queue.next(NOW);
        queue.replace(NOW, 9, vec![Arc::new(route("c", 1)), Arc::new(route("d", 9))]);
        queue.done(NOW, "a", Outcome::Delivered, 0);
        let mut told = drain(&mut queue, NOW);
        told.sort();
        assert_eq!(told, [("a".into(), 9), ("c".into(), 1), ("d".into(), 9)]);
    }

    #[test]
    fn waits_after_failures_grow_to_a_bound_and_differ() {
        for failures in 1..100 {
            let [least, most] = [0, u16::MAX].map(|roll| back_off(failures, roll));
            assert!(least < most && most <= BACK_OFF_MAX && least >= BACK_OFF_MIN / 2);
        }
        assert_eq!(back_off(99, u16::MAX), BACK_OFF_MAX);
    }
}
