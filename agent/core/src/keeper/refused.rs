//! Waiters without a place in the store's queue: it is full, or was not reached.
//!
//! They stand in line here, and the first of them claims again and again, however many there are. Once it has
//! got a place, the next ones claim as well.

use std::time::Duration;

use super::hold::{Hold, Stage};
use super::{Keeper, Phase};
use crate::model::{ClaimId, Resource};
use crate::time::Boottime;

/// So many claim at once when the one before them has got a place …
const FOLLOWING: usize = 32;
/// … so much later: others' calls come between.
const FOLLOWS_AFTER: Duration = Duration::from_millis(1);

impl Keeper {
    /// True if a hold that joined has to wait until others of this host have got a place.
    pub(super) fn waits_behind(&mut self, now: Boottime, id: ClaimId, resource: &Resource) -> bool {
        let Some(place) = self.holds.get(&id).map(Hold::place) else { return false };
        let Some(queue) = self.queues.get_mut(resource) else { return false };
        let is_behind = queue.refused.front().is_some_and(|(first, _)| first < place);
        if is_behind {
            queue.refused.insert(place, id);
            self.place_here(now, id, resource);
        }
        is_behind
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
        self.place_here(now, id, resource);
        let again = self.holds.get_mut(&id).is_some_and(|it| std::mem::take(&mut it.beats.again));
        if again {
            self.claim_later(now, id, FOLLOWS_AFTER);
        } else if is_first {
            self.claim_later(now, id, wait);
        }
    }

    fn place_here(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        let place = self.holds.get(&id).map(Hold::place);
        if let (Some(place), Some(queue)) = (place, self.queues.get(resource)) {
            let position = queue.waiters.position(place);
            self.placed(id, position);
            self.queues.tell_places_later(now, resource, Duration::ZERO, &mut self.timers);
        }
        self.answer_queued(now, id);
    }

    /// A waiter has a place in the store's queue now.
    pub(super) fn got_place(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        let Some(queue) = self.queues.get_mut(resource) else { return };
        if queue.refused.is_empty() {
            return;
        }
        let place = self.holds.get(&id).map(Hold::place);
        if place.and_then(|place| queue.refused.remove(place)).is_some() {
            self.follow(now, resource, FOLLOWING);
        }
    }

    /// The next ones claim.
    pub(super) fn follow(&mut self, now: Boottime, resource: &Resource, count: usize) {
        let Some(queue) = self.queues.get(resource) else { return };
        let next: Vec<_> = queue.refused.iter().take(count).map(|(_, id)| id).collect();
        for id in next {
            if self.holds.get(&id).is_some_and(|hold| hold.stage == Stage::Queued) {
                self.claim_later(now, id, FOLLOWS_AFTER);
            }
        }
    }

    /// The resource, or a place in its queue, may be free: the first one claims.
    pub(super) fn try_first(&mut self, resource: &Resource) {
        let Some(queue) = self.queues.get(resource) else { return };
        let Some((_, id)) = queue.refused.front() else { return };
        let Some(hold) = self.holds.get_mut(&id) else { return };
        match hold.stage {
            Stage::Queued if self.agent.phase == Phase::Running => self.claim(id),
            Stage::Claiming(_) => hold.beats.again = true,
            _ => {}
        }
    }
}
