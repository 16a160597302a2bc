//! Waiters without a place in the store's queue: it is full, or was not reached.
//!
//! They stand in line here, and the first of them claims again and again, however many there are. Once it has
//! got a place, the next ones claim as well. Their place in the queue is not told: the store has given them none.
//!
//! A store that was away for as long as a waiter's ttl has dropped that waiter, which queues again. The waiters of this
//! host keep their order then: a waiter claims only after the agent has asked whether earlier ones were dropped, too.
//! The agent asks for waiters whose place was confirmed longer than a ttl ago.

use std::time::Duration;

use super::calls::Renewed;
use super::hold::{Hold, Stage};
use super::queue::{LocalQueue, Place};
use super::timers::Timer;
use super::{Keeper, Phase};
use crate::model::{ClaimId, Resource};
use crate::time::Boottime;

/// So many claim at once when the one before them has got a place …
const FOLLOWING: usize = 32;
/// … so much later: others' calls come between.
const FOLLOWS_AFTER: Duration = Duration::from_millis(1);
/// Most earlier waiters that are looked at in one go after a waiter was dropped.
const ASKED_AT_ONCE: usize = 64;

/// The state of a queue whose dropped waiters have not all claimed again.
#[derive(Debug, Default)]
pub(super) struct Requeue {
    /// The place up to which earlier waiters were checked.
    asked_to: Option<Place>,
    /// The store has lost its data: no place is sure.
    has_lost_all: bool,
}

impl LocalQueue {
    fn has_unsure_before(&self, place: Place) -> bool {
        self.unsure.front().is_some_and(|(first, _)| first < place)
    }

    fn doubt(&mut self, place: Place, id: ClaimId) {
        if self.waiters.get(place).is_some() && self.unsure.get(place).is_none() {
            self.unsure.insert(place, id);
        }
    }

    /// True if the waiter stood in line here.
    pub(super) fn leave_line(&mut self, place: Place) -> bool {
        let was_there = self.refused.remove(place).is_some();
        if self.refused.is_empty() {
            self.requeue = None;
        }
        was_there
    }
}

impl Keeper {
    /// True if a hold that joined has to wait until others of this host have got a place.
    pub(super) fn waits_behind(&mut self, now: Boottime, id: ClaimId, resource: &Resource) -> bool {
        let Some(place) = self.holds.get(&id).map(Hold::place) else { return false };
        let Some(queue) = self.queues.get_mut(resource) else { return false };
        let is_first = queue.refused.front().is_none_or(|(first, _)| place < first);
        if is_first && !queue.has_unsure_before(place) {
            return false;
        }
        queue.refused.insert(place, id);
        self.answer_queued(now, id);
        if is_first {
            self.claim_later(now, id, self.settings.retry_max);
        }
        true
    }

    /// Sends a claim again that is due. Earlier waiters that may have been dropped come first.
    pub(super) fn claim_in_turn(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (place, resource) = (hold.place(), hold.claim.resource.clone());
        if self.follows_another(now, place, &resource) {
            return;
        }
        match self.is_its_turn(now, place, &resource) {
            true => self.claim_unless_barred(now, id),
            false => self.claim_when_settled(now, id, &resource),
        }
    }

    /// True if an earlier waiter in line has yet to claim; this waiter follows it.
    fn follows_another(&self, now: Boottime, place: Place, resource: &Resource) -> bool {
        let queue = self.queues.get(resource);
        let Some(queue) = queue.filter(|queue| queue.refused.get(place).is_some()) else {
            return false;
        };
        let mut earlier = queue.refused.iter().take(FOLLOWING).take_while(|(it, _)| *it < place);
        earlier.any(|(_, id)| {
            let hold = self.holds.get(&id).filter(|hold| hold.stage == Stage::Queued);
            hold.is_some_and(|hold| self.bar_of(now, hold.session(), resource).is_none())
        })
    }

    /// A waiter claims once the earlier ones are settled. The timer serves when they settle without an answer.
    fn claim_when_settled(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        let is_unsure = self.queues.get(resource).is_some_and(|queue| !queue.unsure.is_empty());
        self.claim_later(now, id, if is_unsure { self.settings.retry_max } else { FOLLOWS_AFTER });
    }

    /// Beats failed, and the store may drop waiters among them before their next beat is answered.
    pub(super) fn doubt(&mut self, now: Boottime, beats: &[Renewed]) {
        for beat in beats {
            if let Renewed::Hold(id) = beat {
                self.doubt_waiter(now, *id);
            }
        }
    }

    fn doubt_waiter(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get(&id).filter(|hold| hold.stage == Stage::Waiting) else {
            return;
        };
        if hold.beats.kept_until > now + hold.beats.every {
            return;
        }
        if let Some(queue) = self.queues.get_mut(&hold.claim.resource) {
            queue.doubt(hold.place(), id);
        }
    }

    /// The store has a waiter's place still, or the waiter has left: later ones may claim.
    pub(super) fn settled(&mut self, now: Boottime, place: Place, resource: &Resource) {
        let Some(queue) = self.queues.get_mut(resource) else { return };
        if queue.unsure.remove(place).is_some() {
            self.follow(now, resource, FOLLOWING);
        }
    }

    /// The store has dropped a waiter, or taken back an untold grant: the waiter queues again, in its turn.
    pub(super) fn queue_again(&mut self, now: Boottime, id: ClaimId, has_lost_all: bool) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (place, session) = (hold.place(), hold.session());
        let resource = hold.claim.resource.clone();
        let queue = self.queues.get(&resource);
        let waits = queue.is_some_and(|queue| queue.waiters.get(place).is_some());
        if !waits || self.bar_of(now, session, &resource).is_some() {
            self.settled(now, place, &resource);
            return self.claim_unless_barred(now, id);
        }
        if let Some(hold) = self.holds.change(id, Stage::Queued) {
            // The waiter is told its new place, even if that equals the old one.
            hold.caller.position = None;
            self.timers.set(&mut hold.beats.next, Timer::Beat(id), None);
        }
        if let Some(queue) = self.queues.get_mut(&resource) {
            queue.unsure.remove(place);
            if queue.refused.get(place).is_none() {
                queue.refused.insert(place, id);
            }
            let requeue = queue.requeue.get_or_insert_default();
            requeue.has_lost_all |= has_lost_all;
        }
        // The other answers of this call may be about earlier waiters, so that the claim waits for them. Later waiters
        // follow the first.
        let front = self.queues.get(&resource).and_then(|queue| queue.refused.front());
        if front.is_some_and(|(first, _)| first == place) {
            self.claim_later(now, id, FOLLOWS_AFTER);
        }
    }

    /// True if no earlier waiter of this host may have been dropped. Asks the store about some waiters in doubt.
    fn is_its_turn(&mut self, now: Boottime, place: Place, resource: &Resource) -> bool {
        self.forget_unsure_ones(resource);
        let Some(queue) = self.queues.get_mut(resource) else { return true };
        if queue.has_unsure_before(place) {
            return false;
        }
        let Some(requeue) = &mut queue.requeue else { return true };
        if requeue.asked_to >= Some(place) {
            return true;
        }
        let earlier = queue.waiters.iter_after(requeue.asked_to);
        let earlier: Vec<_> =
            earlier.take_while(|(other, _)| *other < place).take(ASKED_AT_ONCE).collect();
        let is_all = earlier.len() < ASKED_AT_ONCE;
        requeue.asked_to = if is_all { Some(place) } else { earlier.last().map(|(it, _)| *it) };
        let has_lost_all = requeue.has_lost_all;
        for (place, id) in earlier {
            let Some(hold) = self.holds.get(&id) else { continue };
            let may_be_dropped = has_lost_all || hold.beats.kept_until <= now;
            if hold.stage != Stage::Waiting || !may_be_dropped {
                continue;
            }
            let is_asked = hold.beats.beating.is_some();
            if let Some(queue) = self.queues.get_mut(resource) {
                queue.doubt(place, id);
            }
            if !is_asked {
                self.due_now(Renewed::Hold(id));
            }
        }
        self.forget_unsure_ones(resource);
        let queue = self.queues.get(resource);
        is_all && !queue.is_some_and(|queue| queue.has_unsure_before(place))
    }

    /// A session that runs out is not beaten: its waiters would not settle, and lose their places anyway.
    fn forget_unsure_ones(&mut self, resource: &Resource) {
        let Some(queue) = self.queues.get_mut(resource) else { return };
        while let Some((place, id)) = queue.unsure.front() {
            let hold = self.holds.get(&id).filter(|hold| hold.stage == Stage::Waiting);
            let session = hold.and_then(|hold| self.sessions.get(&hold.session()));
            if session.is_some_and(|session| !session.life.running_out) {
                break;
            }
            queue.unsure.remove(place);
        }
    }

    /// A waiter's claim was refused: its place is here, and as the first it claims again after `wait`.
    pub(super) fn refused_place(
        &mut self,
        now: Boottime,
        id: ClaimId,
        resource: &Resource,
        wait: Duration,
    ) {
        let Some(place) = self.holds.get(&id).map(Hold::place) else { return };
        let Some(queue) = self.queues.get_mut(resource) else { return };
        if queue.refused.get(place).is_none() {
            queue.refused.insert(place, id);
        }
        let is_first = queue.refused.front().is_some_and(|(first, _)| first == place);
        self.answer_queued(now, id);
        let again = self.holds.get_mut(&id).is_some_and(|it| std::mem::take(&mut it.beats.again));
        if again {
            self.claim_later(now, id, FOLLOWS_AFTER);
        } else if is_first {
            self.claim_later(now, id, wait);
        }
    }

    /// A waiter has a place in the store's queue now.
    pub(super) fn got_place(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        let Some(queue) = self.queues.get_mut(resource) else { return };
        if queue.refused.is_empty() {
            return;
        }
        let place = self.holds.get(&id).map(Hold::place);
        if place.is_some_and(|place| queue.leave_line(place)) {
            self.follow(now, resource, FOLLOWING);
        }
    }

    /// The next ones claim.
    pub(super) fn follow(&mut self, now: Boottime, resource: &Resource, count: usize) {
        let Some(queue) = self.queues.get(resource) else { return };
        let next: Vec<_> = queue.refused.iter().take(count).collect();
        let mut wait = FOLLOWS_AFTER;
        for (number, (place, id)) in next.into_iter().enumerate() {
            if !self.is_its_turn(now, place, resource) {
                if number == 0 {
                    self.claim_when_settled(now, id, resource);
                }
                return;
            }
            if self.holds.get(&id).is_some_and(|hold| hold.stage == Stage::Queued) {
                self.claim_later(now, id, wait);
                // Timers of one instant fire in any order.
                wait += Duration::from_nanos(1);
            }
        }
    }

    /// The resource, or a place in its queue, may be free: the first one claims.
    pub(super) fn try_first(&mut self, now: Boottime, resource: &Resource) {
        let Some(queue) = self.queues.get(resource) else { return };
        let Some((_, id)) = queue.refused.front() else { return };
        let Some(hold) = self.holds.get_mut(&id) else { return };
        match hold.stage {
            Stage::Queued if self.agent.phase == Phase::Running => self.claim_in_turn(now, id),
            Stage::Claiming(_) => hold.beats.again = true,
            _ => {}
        }
    }
}
