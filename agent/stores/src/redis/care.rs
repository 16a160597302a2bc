//! Pure. The semaphores to look after, and when.
//!
//! The programs that share a semaphore's keys wake nobody when they release, leave dead entries to
//! whoever comes next, and shorten the expiry of keys that others need. A look purges, grants, and
//! keeps keys that clients need from expiring.
//!
//! Tenure's own scripts grant whenever they free a permit, so an agent looks by itself only when the first
//! holder runs out, and only if the first waiter is its own. What other programs do is looked after
//! by one agent of the fleet, the caretaker, and only where one of their members was seen. A beat of a
//! permit wakes nobody.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tenure_core::model::Resource;
use tenure_core::time::Boottime;
use tenure_wire::Kind;

use super::exchange::{CareOf, Cared};

/// Semaphores in one call, so that it takes Redis no longer than a millisecond.
pub(super) const CARE_PER_CALL_MAX: usize = 16;
/// How long Redis takes for one semaphore, roughly …
const COST: Duration = Duration::from_micros(50);
/// … and how many times as long it is left alone after a call.
const REST: u32 = 10;
/// Semaphores looked after at most, those of own clients not counted; beyond, one that is new is left
/// to its users.
const CARED_MAX: usize = 20_000;
/// A semaphore of which nothing is known is looked at this long after somebody came to wait, however
/// many come meanwhile.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// A semaphore whose next permit is an own client's is looked at this much later, to know when the first of
/// its holders runs out.
const IS_NEXT: Duration = Duration::from_millis(500);
/// A semaphore of other programs that nobody waits for is looked at this long after a change: its last
/// user may have left, and leaves its limit behind.
const CLEAR_AWAY: Duration = Duration::from_secs(1);
/// A semaphore that other programs used is theirs for so long after their last member was seen.
const REMEMBER: Duration = Duration::from_secs(60);
/// After a call that failed; doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(500);
/// Longest wait after calls that failed.
const RETRY_MAX: Duration = Duration::from_secs(16);
/// Agents that wait for the same permit look within this time of each other.
const SPREAD_MS: u64 = 4;
/// Redis keeps a key through the very ms of its expiry.
const JUST_AFTER: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct Watched {
    due: Option<Boottime>,
    /// That is because somebody came to wait or left.
    heard: bool,
    /// Claims of own clients.
    shares: usize,
    /// One of them is the first that waits.
    is_next: bool,
    /// When a member of another program was seen last.
    foreign_at: Option<Boottime>,
    /// Somebody waited at the last look.
    contended: bool,
    /// A call about it is on its way.
    asked: bool,
    /// When to look after that call, if sooner than it will say.
    again: Option<Boottime>,
}

impl Watched {
    fn is_foreign(&self, now: Boottime) -> bool {
        self.foreign_at.is_some_and(|at| now.since(at) < REMEMBER)
    }
}

/// Semaphores in need of care.
#[derive(Debug, Default)]
pub(super) struct Care {
    /// Those of others too.
    is_caretaker: bool,
    cared: HashMap<Resource, Watched>,
    due: BTreeSet<(Boottime, Resource)>,
    strangers: usize,
    /// When the call that is on its way began.
    calling: Option<Boottime>,
    rest_until: Boottime,
    failures: u32,
    /// A part of its own that this agent adds to instants that all agents know.
    spread: Duration,
}

impl Care {
    /// `seed` differs between agents.
    pub(super) fn new(seed: u64) -> Care {
        Care { spread: Duration::from_millis(seed % (SPREAD_MS + 1)), ..Care::default() }
    }

    /// This agent looks after semaphores of other programs from now on, or no longer does.
    pub(super) fn appoint(&mut self, is_caretaker: bool) {
        if std::mem::replace(&mut self.is_caretaker, is_caretaker) && !is_caretaker {
            let strangers = self.cared.iter().filter(|(_, it)| it.shares == 0 && !it.asked);
            let strangers: Vec<_> = strangers.map(|(name, _)| name.clone()).collect();
            for semaphore in strangers {
                self.forget(&semaphore);
            }
        }
    }

    /// A permit came, went or was renewed.
    pub(super) fn permits_changed(&mut self, now: Boottime, semaphore: &Resource) {
        let Some(cared) = self.cared.get(semaphore).filter(|_| self.is_caretaker) else { return };
        if cared.is_foreign(now) {
            let after = if cared.contended { Duration::ZERO } else { CLEAR_AWAY };
            self.look_by(now + after, semaphore);
        }
    }

    /// Somebody came to wait, or left, or was found waiting.
    pub(super) fn queue_changed(&mut self, now: Boottime, semaphore: &Resource) {
        if !self.is_caretaker {
            return;
        }
        let known = self.cared.get(semaphore);
        let after = match known {
            Some(cared) if cared.is_foreign(now) => Duration::ZERO,
            _ => FIRST_LOOK,
        };
        if known.is_none() {
            if self.strangers >= CARED_MAX {
                return;
            }
            self.strangers += 1;
            self.cared.insert(semaphore.clone(), Watched::default());
        }
        if let Some(cared) = self.cared.get_mut(semaphore) {
            cared.heard = true;
        }
        self.look_by(now + after, semaphore);
    }

    /// Keys that an own client needs were seen to expire before long.
    pub(super) fn expires_soon(&mut self, now: Boottime, semaphore: &Resource) {
        self.look_by(now, semaphore);
    }

    /// A claim of an own client needs its keys.
    pub(super) fn share(&mut self, semaphore: &Resource) {
        if let Some(cared) = self.cared.get_mut(semaphore) {
            self.strangers -= usize::from(cared.shares == 0);
            cared.shares += 1;
        } else {
            self.cared.insert(semaphore.clone(), Watched { shares: 1, ..Watched::default() });
        }
    }

    /// A claim of an own client is over.
    pub(super) fn unshare(&mut self, semaphore: &Resource) {
        let Some(cared) = self.cared.get_mut(semaphore) else { return };
        cared.shares = cared.shares.saturating_sub(1);
        if cared.shares > 0 {
            return;
        }
        self.strangers += 1;
        let may_be_theirs = cared.heard || cared.foreign_at.is_some();
        let needs_care = cared.asked || (self.is_caretaker && may_be_theirs);
        if !needs_care {
            self.forget(semaphore);
        }
    }

    /// The first that waits is an own client, which shares the semaphore.
    pub(super) fn is_next(&mut self, now: Boottime, semaphore: &Resource) {
        if let Some(cared) = self.cared.get_mut(semaphore) {
            cared.is_next = true;
            self.look_by(now + IS_NEXT, semaphore);
        }
    }

    /// It does not wait any more.
    pub(super) fn is_next_no_more(&mut self, semaphore: &Resource) {
        let Some(cared) = self.cared.get_mut(semaphore) else { return };
        cared.is_next = false;
        // Short waits, which are most, cost no look.
        if cared.foreign_at.is_none()
            && !cared.heard
            && let Some(due) = cared.due.take()
        {
            self.due.remove(&(due, semaphore.clone()));
        }
    }

    /// When [`Care::take`] has something.
    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        if self.calling.is_some() {
            return None;
        }
        self.due.first().map(|(due, _)| (*due).max(self.rest_until))
    }

    /// The work that is due. One call at a time, and a rest after it.
    pub(super) fn take(&mut self, now: Boottime) -> Vec<CareOf> {
        let mut taken = Vec::new();
        if self.calling.is_some() || now < self.rest_until {
            return taken;
        }
        while taken.len() < CARE_PER_CALL_MAX && self.due.first().is_some_and(|(at, _)| *at <= now)
        {
            let Some((_, semaphore)) = self.due.pop_first() else { break };
            let Some(cared) = self.cared.get_mut(&semaphore) else { continue };
            cared.due = None;
            cared.heard = false;
            cared.asked = true;
            let Resource { tenant, name, .. } = semaphore;
            taken.push(CareOf { tenant, name, shared: cared.shares > 0 });
        }
        self.calling = (!taken.is_empty()).then_some(now);
        taken
    }

    /// The call was answered, or not. `asked` as it was taken.
    pub(super) fn handle_answer(
        &mut self,
        now: Boottime,
        asked: Vec<CareOf>,
        found: Option<Vec<Cared>>,
    ) {
        let took = self.calling.take().map_or(Duration::ZERO, |began| now.since(began));
        let cost = COST * u32::try_from(asked.len()).unwrap_or(u32::MAX);
        self.rest_until = now + (cost * REST).max(took);
        let found = found.filter(|found| found.len() == asked.len());
        let retry = RETRY_MIN.saturating_mul(1 << self.failures.min(8)).min(RETRY_MAX);
        self.failures = if found.is_some() { 0 } else { self.failures.saturating_add(1) };
        for (place, CareOf { tenant, name, .. }) in asked.into_iter().enumerate() {
            let semaphore = Resource { tenant, kind: Kind::Semaphore, name };
            let Some(cared) = self.cared.get_mut(&semaphore) else { continue };
            cared.asked = false;
            let again = cared.again.take();
            let due = match found.as_ref().map(|found| found[place]) {
                None => Some(now + retry + self.spread),
                Some(found) => {
                    cared.contended = found.waiting > 0;
                    if found.foreign {
                        cared.foreign_at = Some(now);
                    }
                    let foreign = cared.foreign_at.filter(|_| self.is_caretaker);
                    let until = foreign.map(|at| at + REMEMBER).filter(|at| now < *at);
                    let next = found.next.filter(|_| cared.is_next || until.is_some());
                    let next = next.map(|next| now + next + JUST_AFTER + self.spread);
                    [next, until].into_iter().flatten().min()
                }
            };
            match [due, again].into_iter().flatten().min() {
                Some(due) => self.look_by(due, &semaphore),
                None if cared.shares == 0 => self.forget(&semaphore),
                None => {}
            }
        }
    }

    fn look_by(&mut self, at: Boottime, semaphore: &Resource) {
        let Some(cared) = self.cared.get_mut(semaphore) else { return };
        let due = if cared.asked { &mut cared.again } else { &mut cared.due };
        if due.is_some_and(|due| due <= at) {
            return;
        }
        let earlier = due.replace(at);
        if cared.asked {
            return;
        }
        if let Some(earlier) = earlier {
            self.due.remove(&(earlier, semaphore.clone()));
        }
        self.due.insert((at, semaphore.clone()));
    }

    /// Forgets a semaphore without clients of this agent.
    fn forget(&mut self, semaphore: &Resource) {
        let Some(cared) = self.cared.remove(semaphore) else { return };
        self.strangers -= 1;
        if let Some(due) = cared.due {
            self.due.remove(&(due, semaphore.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Boottime = Boottime::from_nanos(1_000_000_000_000);

    fn semaphore(name: &str) -> Resource {
        Resource { tenant: "default".into(), kind: Kind::Semaphore, name: name.into() }
    }

    fn caretaker() -> Care {
        let mut care = Care::new(0);
        care.appoint(true);
        care
    }

    fn names(taken: &[CareOf]) -> Vec<(&str, bool)> {
        taken.iter().map(|care| (&*care.name, care.shared)).collect()
    }

    fn ours(holders: u64, waiting: u64, next_ms: u64) -> Cared {
        let next = (holders + waiting > 0).then(|| Duration::from_millis(next_ms));
        Cared { holders, waiting, next, foreign: false }
    }

    fn theirs(holders: u64, waiting: u64, next_ms: u64) -> Cared {
        Cared { foreign: true, ..ours(holders, waiting, next_ms) }
    }

    /// Takes what is due next, which is one semaphore, and answers at once. Returns when that was.
    #[track_caller]
    fn look(care: &mut Care, found: Cared) -> Boottime {
        let now = care.poll_timeout().unwrap();
        let taken = care.take(now);
        assert_eq!(taken.len(), 1);
        care.handle_answer(now, taken, Some(vec![found]));
        now
    }

    #[test]
    fn what_agents_hold_makes_nobody_look() {
        for mut care in [Care::new(0), caretaker()] {
            let gpu = semaphore("gpu");
            for _ in 0..3 {
                care.share(&gpu);
                care.permits_changed(NOW, &gpu);
            }
            care.permits_changed(NOW, &semaphore("of another host"));
            assert_eq!((care.poll_timeout(), care.cared.len()), (None, 1));
            (0..3).for_each(|_| care.unshare(&gpu));
            assert_eq!((care.cared.len(), care.strangers), (0, 0));
        }
    }

    #[test]
    fn only_the_caretaker_looks_after_others_and_only_where_other_programs_are() {
        let gpu = semaphore("gpu");
        let mut care = Care::new(0);
        care.queue_changed(NOW, &gpu);
        assert_eq!((care.poll_timeout(), care.cared.len()), (None, 0));

        care.appoint(true);
        care.queue_changed(NOW, &gpu);
        care.queue_changed(NOW, &gpu);
        assert_eq!(look(&mut care, ours(1, 1, 9000)), NOW + FIRST_LOOK, "however many came");
        assert_eq!((care.poll_timeout(), care.cared.len(), care.strangers), (None, 0, 0));

        care.queue_changed(NOW, &gpu);
        let met = look(&mut care, theirs(1, 1, 9000));
        assert_eq!(care.poll_timeout(), Some(met + Duration::from_secs(9) + JUST_AFTER));
        let later = met + Duration::from_secs(1);
        care.permits_changed(later, &gpu);
        assert_eq!(look(&mut care, theirs(1, 0, 9000)), later, "a permit may be free");
        let later = later + Duration::from_secs(1);
        care.permits_changed(later, &gpu);
        assert_eq!(look(&mut care, ours(0, 0, 0)), later + CLEAR_AWAY, "nobody waits any more");
        let last = care.poll_timeout().unwrap();
        care.queue_changed(later, &gpu);
        assert!(care.poll_timeout() < Some(last), "it is theirs still");

        care.appoint(false);
        assert_eq!((care.poll_timeout(), care.cared.len(), care.strangers), (None, 0, 0));
    }

    #[test]
    fn own_clients_that_leave_take_no_look_from_the_others() {
        let gpu = semaphore("gpu");
        let mut care = caretaker();
        care.share(&gpu);
        care.queue_changed(NOW, &gpu);
        care.is_next(NOW, &gpu);
        care.is_next_no_more(&gpu);
        care.unshare(&gpu);
        assert_eq!(look(&mut care, ours(0, 0, 0)), NOW + FIRST_LOOK);
        assert_eq!((care.poll_timeout(), care.cared.len(), care.strangers), (None, 0, 0));
    }

    #[test]
    fn what_changes_during_a_look_is_looked_at_again() {
        let gpu = semaphore("gpu");
        let mut care = caretaker();
        care.queue_changed(NOW, &gpu);
        look(&mut care, theirs(1, 1, 9000));
        let later = NOW + Duration::from_secs(1);
        care.permits_changed(later, &gpu);
        let taken = care.take(later);
        assert_eq!(care.poll_timeout(), None, "one call at a time");
        care.permits_changed(later, &gpu);
        care.handle_answer(later, taken, Some(vec![theirs(1, 1, 9000)]));
        assert_eq!(care.poll_timeout(), Some(later + COST * REST), "after a rest");
    }

    #[test]
    fn an_own_waiter_is_served_when_the_first_holder_runs_out() {
        let gpu = semaphore("gpu");
        let mut care = Care::new(0);
        care.share(&gpu);
        care.is_next(NOW, &gpu);
        care.is_next_no_more(&gpu);
        assert_eq!(care.poll_timeout(), None, "a short wait costs nothing");
        care.is_next(NOW, &gpu);
        assert_eq!(look(&mut care, ours(1, 1, 9000)), NOW + IS_NEXT);
        let runs_out = NOW + IS_NEXT + Duration::from_secs(9) + JUST_AFTER;
        assert_eq!(look(&mut care, ours(1, 1, 5000)), runs_out);
        assert_eq!(care.poll_timeout(), Some(runs_out + Duration::from_secs(5) + JUST_AFTER));
        care.is_next_no_more(&gpu);
        care.unshare(&gpu);
        assert_eq!((care.poll_timeout(), care.cared.len(), care.strangers), (None, 0, 0));
    }

    #[test]
    fn keys_of_own_clients_are_raised_when_they_were_seen_to_expire() {
        let gpu = semaphore("gpu");
        let mut care = Care::new(0);
        care.share(&gpu);
        care.expires_soon(NOW, &gpu);
        let taken = care.take(NOW);
        assert_eq!(names(&taken), [("gpu", true)]);
        care.unshare(&gpu);
        care.handle_answer(NOW, taken, Some(vec![theirs(1, 0, 9000)]));
        assert_eq!((care.poll_timeout(), care.cared.len(), care.strangers), (None, 0, 0));
    }

    #[test]
    fn calls_are_small_rest_between_them_and_give_way_when_they_fail() {
        let mut care = caretaker();
        for name in 0..CARED_MAX + 5 {
            care.queue_changed(NOW, &semaphore(&name.to_string()));
        }
        assert_eq!(care.cared.len(), CARED_MAX);
        let mut now = NOW + FIRST_LOOK;
        let mut rests = Vec::new();
        for _ in 0..4 {
            let taken = care.take(now);
            assert_eq!(taken.len(), CARE_PER_CALL_MAX);
            care.handle_answer(now, taken, None);
            let next = care.poll_timeout().unwrap();
            assert!(next - now >= COST * REST * CARE_PER_CALL_MAX as u32);
            rests.push(care.due.last().unwrap().0 - now);
            now = next;
        }
        assert!(rests.windows(2).all(|pair| pair[0] < pair[1]), "{rests:?}");
        assert_eq!(care.due.len(), CARED_MAX);
    }
}
