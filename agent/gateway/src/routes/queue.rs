//! Pure. What a proxy has not been told yet: the latest state of each mailbox, in the order of their changes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_wire::Route;

use super::refused::Refused;
use super::{Change, State};

/// How long a proxy may take to answer. One that takes longer never learns of anything.
pub const PUSH_WITHIN: Duration = Duration::from_secs(60);
/// A proxy that leaves a push unanswered for so long is slow: it is probed, so that nothing waits for old answers once it
/// is fast again.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How often a slow proxy is probed, and how long a probe may take.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Pushes that a proxy has at a time, each of another mailbox.
const UNDER_WAY_MAX: usize = 32;
/// First wait after a failure; doubles up to [`BACK_OFF_MAX`], so that a proxy that returns is right within a second.
const BACK_OFF_MIN: Duration = Duration::from_millis(50);
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

/// The changes that one proxy is to be told. It has at most three entries for each mailbox that the proxy knows, or is to know.
#[derive(Debug, Default)]
pub struct Queue {
    /// The routes that the proxy is to have.
    wanted: HashMap<Arc<str>, Arc<Route>>,
    /// The mailboxes of which it may have a route.
    told: HashSet<Arc<str>>,
    /// The mailboxes that wait, in order.
    order: BTreeMap<u64, Arc<str>>,
    waiting: HashMap<Arc<str>, Waiting>,
    under_way: HashMap<Arc<str>, UnderWay>,
    refused: Refused,
    /// A second push of a mailbox, which tells whether the proxy is fast again.
    probe: Option<Probe>,
    /// Pushes whose answers are not waited for any more.
    abandoned: Vec<u64>,
    next_attempt: u64,
    next_place: u64,
    trouble: Option<Trouble>,
    answers: Answers,
}

/// The answers of the proxy so far.
#[derive(Debug, Default)]
struct Answers {
    /// The number of pushes that it has taken.
    delivered: u64,
    /// When it took or refused one last.
    last_at: Option<Boottime>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    place: u64,
    /// The first change that it was not told.
    since: Boottime,
    /// As of this version there is no route; for a mailbox that has none.
    removed_at: u64,
    /// How often the proxy has refused this.
    pub(super) refusals: u32,
    /// The number of pushes that the proxy had taken when this one failed last.
    failed_after: Option<u64>,
}

/// A push that has no answer yet.
#[derive(Debug)]
struct UnderWay {
    waiting: Waiting,
    attempt: u64,
    sent_at: Boottime,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    attempt: u64,
    sent_at: Boottime,
}

/// A proxy that failed: it is asked one thing at a time, until it answers.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    failures: u32,
    retry_at: Boottime,
    /// The proxy answered nothing for [`PUSH_WITHIN`]; [`Queue::has_fallen_silent`] resets this.
    fell_silent: bool,
}

/// Something to tell the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// Tells the pushes of a queue apart.
    pub attempt: u64,
    pub mailbox: Arc<str>,
    pub state: State,
}

/// The outcome of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Delivered,
    /// The proxy does not want it. It is told the next change, and asked again later.
    Refused,
    /// It did not come, or its answer did not.
    Failed,
    /// There is no answer after [`PUSH_WITHIN`].
    Late,
}

impl Queue {
    /// The proxy may have routes of these mailboxes.
    pub fn may_know(&mut self, mailboxes: &[Arc<str>]) {
        self.told.extend(mailboxes.iter().cloned());
    }

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
                    self.forget(&mailbox);
                    return self.end_idle_trouble();
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

    /// The connection has ended: the proxy may be started again, and know nothing. All is told again in trouble, too:
    /// an answer that came before the end may be taken after it, and ends the trouble.
    pub fn lost_connection(&mut self, now: Boottime) {
        let trouble = Trouble { failures: 0, retry_at: now, fell_silent: false };
        self.trouble.get_or_insert(trouble);
        self.tell_all_again(now);
        self.end_idle_trouble();
    }

    /// Without anything to tell, nothing would show that the proxy is back.
    fn end_idle_trouble(&mut self) {
        if self.order.is_empty() && self.under_way.is_empty() {
            self.trouble = None;
        }
    }

    /// The next push; to be asked for until there is none.
    pub fn next(&mut self, now: Boottime) -> Option<Push> {
        let change = self.next_change(now).or_else(|| self.next_refused(now));
        change.or_else(|| self.next_probe(now))
    }

    fn next_change(&mut self, now: Boottime) -> Option<Push> {
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
        Some(self.send(now, mailbox, waiting))
    }

    /// What was refused, once it is due, one at a time: it delays nothing else.
    fn next_refused(&mut self, now: Boottime) -> Option<Push> {
        self.retry_refused_at().filter(|at| *at <= now)?;
        let (mailbox, waiting) = self.refused.take_due(now)?;
        Some(self.send(now, mailbox, waiting))
    }

    fn retry_refused_at(&self) -> Option<Boottime> {
        let is_full = self.under_way.len() >= UNDER_WAY_MAX;
        let is_retrying = || self.under_way.values().any(|it| it.waiting.refusals > 0);
        let may = self.trouble.is_none() && !is_full && !is_retrying();
        self.refused.poll_timeout().filter(|_| may)
    }

    fn send(&mut self, now: Boottime, mailbox: Arc<str>, waiting: Waiting) -> Push {
        let state = self.state(&mailbox, waiting.removed_at);
        self.told.insert(Arc::clone(&mailbox));
        let attempt = self.attempt();
        let under_way = UnderWay { waiting, attempt, sent_at: now };
        self.under_way.insert(Arc::clone(&mailbox), under_way);
        Push { attempt, mailbox, state }
    }

    /// A push of what has been under way for longest, once that is overdue.
    fn next_probe(&mut self, now: Boottime) -> Option<Push> {
        if self.probe_at().is_none_or(|at| now < at) {
            return None;
        }
        let (mailbox, oldest) = self.under_way.iter().min_by_key(|(_, it)| it.attempt)?;
        let (mailbox, removed_at) = (Arc::clone(mailbox), oldest.waiting.removed_at);
        let removed_at = self.waiting.get(&mailbox).map_or(removed_at, |it| it.removed_at);
        let state = self.state(&mailbox, removed_at);
        let attempt = self.attempt();
        let before = self.probe.replace(Probe { attempt, sent_at: now });
        self.abandoned.extend(before.map(|it| it.attempt));
        Some(Push { attempt, mailbox, state })
    }

    fn probe_at(&self) -> Option<Boottime> {
        let oldest = self.under_way.values().map(|it| it.sent_at).min()?;
        let again_at = self.probe.map(|it| it.sent_at + PROBE_EVERY);
        Some(again_at.map_or(oldest + SLOW_AFTER, |at| at.max(oldest + SLOW_AFTER)))
    }

    fn attempt(&mut self) -> u64 {
        self.next_attempt += 1;
        self.next_attempt
    }

    fn state(&self, mailbox: &str, removed_at: u64) -> State {
        match self.wanted.get(mailbox) {
            Some(route) => State::Routed(Arc::clone(route)),
            None => State::Removed(removed_at),
        }
    }

    /// Takes what became of a push; how long after the change it was delivered. `roll` is a random number, so that
    /// gateways do not try again together.
    pub fn done(
        &mut self,
        now: Boottime,
        push: &Push,
        outcome: Outcome,
        roll: u16,
    ) -> Option<Duration> {
        let Push { attempt, mailbox, state } = push;
        let is_probe = self.probe.is_some_and(|it| it.attempt == *attempt);
        let is_answer = matches!(outcome, Outcome::Delivered | Outcome::Refused);
        if is_probe {
            self.probe = None;
        }
        if is_answer {
            self.answers.last_at = Some(now);
        }
        let (mailbox, sent) = match self.under_way.remove_entry(mailbox) {
            Some((mailbox, sent)) if is_probe && is_answer => {
                self.abandoned.push(sent.attempt);
                (mailbox, sent)
            }
            Some((mailbox, sent)) if sent.attempt == *attempt => (mailbox, sent),
            Some((mailbox, sent)) => {
                self.under_way.insert(mailbox, sent);
                return None;
            }
            None => return None,
        };
        if is_probe {
            self.send_overdue_again(now);
        }
        if outcome == Outcome::Failed {
            self.failed(now, mailbox, sent.waiting, roll);
            return None;
        }
        if outcome == Outcome::Late {
            self.late(now, mailbox, &sent, roll);
            return None;
        }
        let is_delivered = outcome == Outcome::Delivered;
        self.answers.delivered += u64::from(is_delivered);
        let is_removal = matches!(state, State::Removed(_));
        if is_delivered && is_removal && !self.wanted.contains_key(&mailbox) {
            self.told.remove(&mailbox);
        }
        self.trouble = None;
        if !is_delivered && !self.waiting.contains_key(&mailbox) {
            self.refused.put(now, mailbox, sent.waiting);
        }
        is_delivered.then(|| now.since(sent.waiting.since))
    }

    /// A mailbox that fails alone, while others are taken, is no trouble of the proxy's: it counts as refused.
    fn failed(&mut self, now: Boottime, mailbox: Arc<str>, mut sent: Waiting, roll: u16) {
        let is_taken_since = |before| before < self.answers.delivered;
        if sent.refusals > 0 || sent.failed_after.is_some_and(is_taken_since) {
            match self.waiting.get_mut(&mailbox) {
                Some(later) => later.failed_after = sent.failed_after,
                None => self.refused.put(now, mailbox, sent),
            }
            return;
        }
        let failures = self.trouble.map_or(0, |trouble| trouble.failures) + 1;
        if failures == 1 {
            // It may be started again, and know nothing.
            self.tell_all_again(now);
        }
        let retry_at = now + back_off(failures, roll);
        self.trouble = Some(Trouble { failures, retry_at, fell_silent: false });
        sent.failed_after = Some(self.answers.delivered);
        // Behind all others: those tell whether it fails alone.
        sent.place = self.place();
        self.repeat(mailbox, sent);
    }

    /// A push was not answered in time. If nothing else was answered either, the proxy counts as away: it hangs, or its
    /// connection leads nowhere.
    fn late(&mut self, now: Boottime, mailbox: Arc<str>, sent: &UnderWay, roll: u16) {
        if self.answers.last_at.is_some_and(|at| at >= sent.sent_at) {
            return self.repeat(mailbox, sent.waiting);
        }
        self.failed(now, mailbox, sent.waiting, roll);
        let Some(trouble) = &mut self.trouble else { return };
        trouble.fell_silent = true;
        self.abandoned.extend(self.probe.take().map(|it| it.attempt));
        for (mailbox, sent) in std::mem::take(&mut self.under_way) {
            self.abandoned.push(sent.attempt);
            self.repeat(mailbox, sent.waiting);
        }
    }

    /// True, once, if the proxy has fallen silent: its connection is to be made anew.
    pub fn has_fallen_silent(&mut self) -> bool {
        self.trouble.as_mut().is_some_and(|trouble| std::mem::take(&mut trouble.fell_silent))
    }

    /// The proxy is fast again: what it was sent while it was slow is sent again.
    fn send_overdue_again(&mut self, now: Boottime) {
        let overdue = self.under_way.extract_if(|_, it| now.since(it.sent_at) >= SLOW_AFTER);
        for (mailbox, sent) in overdue.collect::<Vec<_>>() {
            self.abandoned.push(sent.attempt);
            self.repeat(mailbox, sent.waiting);
        }
    }

    /// The pushes whose answers are not waited for any more: they are to be broken off.
    pub fn take_abandoned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.abandoned)
    }

    /// When there may be a push, though nothing changes.
    pub fn poll_timeout(&self) -> Option<Boottime> {
        let is_to_retry = !self.order.is_empty() && self.under_way.is_empty();
        let retry_at = self.trouble.filter(|_| is_to_retry).map(|trouble| trouble.retry_at);
        let all = [retry_at, self.probe_at(), self.retry_refused_at()];
        all.into_iter().flatten().min()
    }

    /// True as long as the proxy is not known to be away.
    pub fn is_reached(&self) -> bool {
        self.trouble.is_none()
    }

    /// The first change that the proxy has not answered.
    pub fn behind_since(&self) -> Option<Boottime> {
        let mut waiting = self.order.values().filter_map(|mailbox| self.waiting.get(mailbox));
        let first = waiting.find(|it| it.refusals == 0);
        let under_way = self.under_way.values().map(|it| &it.waiting);
        let all = first.into_iter().chain(under_way.filter(|it| it.refusals == 0));
        all.map(|it| it.since).min()
    }

    /// How many mailboxes it lacks: it has not been told of them, or has refused them.
    pub fn behind(&self) -> usize {
        self.order.len() + self.under_way.len() + self.refused.len()
    }

    /// Puts a mailbox at the end, or leaves it where it waits: it is told the latest state.
    fn wait(&mut self, now: Boottime, mailbox: Arc<str>, removed_at: u64) {
        self.refused.remove(&mailbox);
        if let Some(waiting) = self.waiting.get_mut(&mailbox) {
            waiting.removed_at = removed_at;
            return;
        }
        let place = self.place();
        self.order.insert(place, Arc::clone(&mailbox));
        let waiting = Waiting { place, since: now, removed_at, refusals: 0, failed_after: None };
        self.waiting.insert(mailbox, waiting);
    }

    fn place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
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
#[path = "queue_tests.rs"]
mod tests;
