//! PURE. Which semaphores to look after, and when.
//!
//! The programs that share a semaphore's keys wake nobody when they release, leave dead entries to
//! whoever comes next, and shorten the expiry of keys that others need. An agent that sees such keys
//! looks after them: it purges and grants as soon as something changes or runs out, and keeps keys
//! that its own clients need from expiring.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tenure::wire::Kind;

use super::exchange::{CareOf, Cared};
use crate::host::clock::Boottime;
use crate::model::Resource;

/// Semaphores in one call.
pub(super) const CARE_PER_CALL_MAX: usize = 512;
/// Semaphores looked after at most, those of own clients not counted; beyond, one that is new is left
/// to the other agents and to its users.
const CARED_MAX: usize = 20_000;
/// Keys that own clients share are raised this often: a user with a ttl of 1 s makes them expire 11 s
/// later.
const RAISE_EVERY: Duration = Duration::from_secs(3);
/// A semaphore of others that nobody waits for is looked at this long after a change, together with
/// others: its last user may have left, and leaves its limit behind.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// After a call that failed.
const RETRY: Duration = Duration::from_millis(500);
/// Redis keeps a key through the very ms of its expiry.
const JUST_AFTER: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Watched {
    due: Boottime,
    /// Claims of own clients.
    shares: usize,
    /// Somebody waits, as far as is known: every change may free a permit.
    contended: bool,
    /// A call about it is on its way.
    asked: bool,
    /// It changed since that call was sent.
    again: bool,
    /// It is to be looked at not long after that call.
    soon: bool,
}

/// Semaphores in need of care.
#[derive(Debug, Default)]
pub(super) struct Care {
    cared: HashMap<Resource, Watched>,
    due: BTreeSet<(Boottime, Resource)>,
    strangers: usize,
    calling: bool,
}

impl Care {
    /// A permit came or went.
    pub(super) fn permits_changed(&mut self, now: Boottime, semaphore: &Resource) {
        let Some(cared) = self.cared.get_mut(semaphore) else {
            return self.meet(semaphore, now + FIRST_LOOK, false);
        };
        if cared.contended {
            self.look(now, semaphore);
        } else if cared.shares == 0 {
            self.look_by(now + FIRST_LOOK, semaphore);
        }
    }

    /// Somebody came to wait, or left.
    pub(super) fn queue_changed(&mut self, now: Boottime, semaphore: &Resource) {
        match self.cared.get_mut(semaphore) {
            Some(cared) => {
                cared.contended = true;
                self.look(now, semaphore);
            }
            None => self.meet(semaphore, now, true),
        }
    }

    /// A claim of an own client needs its keys.
    pub(super) fn share(&mut self, now: Boottime, semaphore: &Resource) {
        if let Some(cared) = self.cared.get_mut(semaphore) {
            cared.shares += 1;
            if cared.shares == 1 {
                self.strangers -= 1;
                let due = cared.due.min(now + RAISE_EVERY);
                self.schedule(semaphore, due);
            }
            return;
        }
        let due = now + RAISE_EVERY;
        self.due.insert((due, semaphore.clone()));
        let cared =
            Watched { due, shares: 1, contended: false, asked: false, again: false, soon: false };
        self.cared.insert(semaphore.clone(), cared);
    }

    /// A claim of an own client is over. What is left of the semaphore is looked at once more.
    pub(super) fn unshare(&mut self, semaphore: &Resource) {
        let Some(cared) = self.cared.get_mut(semaphore) else { return };
        cared.shares = cared.shares.saturating_sub(1);
        if cared.shares == 0 {
            self.strangers += 1;
        }
    }

    /// When [`Care::take`] has something.
    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        if self.calling {
            return None;
        }
        self.due.first().map(|(due, _)| *due)
    }

    /// What is due. One call at a time.
    pub(super) fn take(&mut self, now: Boottime) -> Vec<CareOf> {
        let mut taken = Vec::new();
        if self.calling {
            return taken;
        }
        while taken.len() < CARE_PER_CALL_MAX && self.due.first().is_some_and(|(at, _)| *at <= now)
        {
            let Some((_, semaphore)) = self.due.pop_first() else { break };
            let Some(cared) = self.cared.get_mut(&semaphore) else { continue };
            cared.asked = true;
            cared.again = false;
            cared.soon = false;
            let Resource { tenant, name, .. } = semaphore;
            taken.push(CareOf { tenant, name, shared: cared.shares > 0 });
        }
        self.calling = !taken.is_empty();
        taken
    }

    /// The call was answered, or not. `asked` as it was taken.
    pub(super) fn handle_answer(
        &mut self,
        now: Boottime,
        asked: Vec<CareOf>,
        found: Option<Vec<Cared>>,
    ) {
        self.calling = false;
        let found = found.filter(|found| found.len() == asked.len());
        for (place, CareOf { tenant, name, .. }) in asked.into_iter().enumerate() {
            let semaphore = Resource { tenant, kind: Kind::Semaphore, name };
            let Some(cared) = self.cared.get_mut(&semaphore) else { continue };
            cared.asked = false;
            let due = match found.as_ref().map(|found| found[place]) {
                None => Some(now + RETRY),
                Some(found) => {
                    cared.contended = found.waiting > 0;
                    let runs_out = found.next.map(|next| now + next + JUST_AFTER);
                    let raise = (cared.shares > 0).then(|| now + RAISE_EVERY);
                    [runs_out, raise].into_iter().flatten().min()
                }
            };
            let due = match (cared.again, cared.soon) {
                (true, _) => Some(now),
                (false, true) => Some(due.unwrap_or(now + FIRST_LOOK).min(now + FIRST_LOOK)),
                (false, false) => due,
            };
            match due {
                Some(due) => self.schedule(&semaphore, due),
                None => {
                    self.cared.remove(&semaphore);
                    self.strangers -= 1;
                }
            }
        }
    }

    /// Starts to look after a semaphore of others.
    fn meet(&mut self, semaphore: &Resource, due: Boottime, contended: bool) {
        if self.strangers >= CARED_MAX {
            return;
        }
        self.strangers += 1;
        self.due.insert((due, semaphore.clone()));
        let cared = Watched { due, shares: 0, contended, asked: false, again: false, soon: false };
        self.cared.insert(semaphore.clone(), cared);
    }

    fn look(&mut self, now: Boottime, semaphore: &Resource) {
        let Some(cared) = self.cared.get_mut(semaphore) else { return };
        if cared.asked {
            cared.again = true;
        } else if cared.due > now {
            self.schedule(semaphore, now);
        }
    }

    fn look_by(&mut self, at: Boottime, semaphore: &Resource) {
        let Some(cared) = self.cared.get_mut(semaphore) else { return };
        if cared.asked {
            cared.soon = true;
        } else if cared.due > at {
            self.schedule(semaphore, at);
        }
    }

    fn schedule(&mut self, semaphore: &Resource, due: Boottime) {
        let Some(cared) = self.cared.get_mut(semaphore) else { return };
        if cared.asked {
            return;
        }
        self.due.remove(&(cared.due, semaphore.clone()));
        cared.due = due;
        self.due.insert((due, semaphore.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Boottime = Boottime::from_nanos(1_000_000_000_000);

    fn semaphore(name: &str) -> Resource {
        Resource { tenant: "default".into(), kind: Kind::Semaphore, name: name.into() }
    }

    fn names(taken: &[CareOf]) -> Vec<(&str, bool)> {
        taken.iter().map(|care| (&*care.name, care.shared)).collect()
    }

    fn found(holders: u64, waiting: u64, next_ms: Option<u64>) -> Cared {
        Cared { holders, waiting, next: next_ms.map(Duration::from_millis) }
    }

    #[test]
    fn a_change_is_looked_at_at_once_while_somebody_waits_and_later_else() {
        let mut care = Care::default();
        let gpu = semaphore("gpu");
        care.permits_changed(NOW, &gpu);
        assert_eq!(care.poll_timeout(), Some(NOW + FIRST_LOOK));
        care.queue_changed(NOW, &gpu);
        let taken = care.take(NOW);
        assert_eq!(names(&taken), [("gpu", false)]);
        assert_eq!(care.poll_timeout(), None, "one call at a time");
        care.permits_changed(NOW, &gpu);
        care.handle_answer(NOW, taken, Some(vec![found(1, 1, Some(9000))]));
        assert_eq!(care.poll_timeout(), Some(NOW), "it changed meanwhile");
        let taken = care.take(NOW);
        care.handle_answer(NOW, taken, Some(vec![found(2, 0, Some(9000))]));
        care.permits_changed(NOW, &gpu);
        assert_eq!(care.poll_timeout(), Some(NOW + FIRST_LOOK), "nobody waits any more");
        let looked = NOW + FIRST_LOOK;
        let taken = care.take(looked);
        care.handle_answer(looked, taken, Some(vec![found(1, 0, Some(8000))]));
        let run_out = looked + Duration::from_secs(8) + JUST_AFTER;
        assert_eq!(care.poll_timeout(), Some(run_out), "it did not change any more");
        let taken = care.take(run_out);
        care.permits_changed(run_out, &gpu);
        care.handle_answer(run_out, taken, Some(vec![found(1, 0, Some(9000))]));
        assert_eq!(care.poll_timeout(), Some(run_out + FIRST_LOOK), "it changed meanwhile");
        let taken = care.take(run_out + FIRST_LOOK);
        care.handle_answer(run_out, taken, Some(vec![found(0, 0, None)]));
        assert_eq!((care.poll_timeout(), care.cared.len(), care.strangers), (None, 0, 0));
    }

    #[test]
    fn keys_of_own_clients_are_raised_in_time_until_the_last_leaves() {
        let mut care = Care::default();
        let gpu = semaphore("gpu");
        care.share(NOW, &gpu);
        care.share(NOW, &gpu);
        let due = care.poll_timeout().unwrap();
        assert!(due <= NOW + Duration::from_secs(4));
        let taken = care.take(due);
        assert_eq!(names(&taken), [("gpu", true)]);
        care.handle_answer(due, taken, Some(vec![found(2, 0, Some(60_000))]));
        assert_eq!(care.poll_timeout(), Some(due + RAISE_EVERY));
        care.unshare(&gpu);
        care.unshare(&gpu);
        let due = care.poll_timeout().unwrap();
        let taken = care.take(due);
        assert_eq!(names(&taken), [("gpu", false)]);
        care.handle_answer(due, taken, Some(vec![found(0, 0, None)]));
        assert_eq!((care.poll_timeout(), care.strangers), (None, 0));
    }

    #[test]
    fn a_call_that_failed_is_made_again_and_strangers_are_bounded() {
        let mut care = Care::default();
        for name in 0..CARED_MAX + 5 {
            care.queue_changed(NOW, &semaphore(&name.to_string()));
        }
        assert_eq!(care.cared.len(), CARED_MAX);
        let taken = care.take(NOW);
        assert_eq!(taken.len(), CARE_PER_CALL_MAX);
        care.handle_answer(NOW, taken, None);
        assert!(care.due.iter().any(|(at, _)| *at == NOW + RETRY));
        assert_eq!(care.due.len(), CARED_MAX);
    }
}
