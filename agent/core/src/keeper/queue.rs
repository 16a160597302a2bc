//! Waiters of one resource on this agent.
//!
//! Exclusive kinds have no queue upstream: here is who waits, in order, and only the first of them
//! claims. Semaphores have their queue upstream: here is only who is in it, to ask for places.

use std::cmp::Reverse;
use std::time::Duration;

use tenure_wire::{Kind, Wait};

use super::calls::{Call, Renewed};
use super::hold::{Hold, Stage};
use super::refusal::UpstreamError;
use super::table::Table;
use super::timers::{Alarm, QueueId, Timer, Timers};
use super::{Keeper, Phase};
use crate::model::{self, ClaimId, Queue, Resource, Terms};
use crate::time::Boottime;

/// Places in a queue are told, or asked for, this often at most.
const PLACES_MIN: Duration = Duration::from_millis(250);

/// Changes of their places are told to so many waiters; those behind them learn where they stand when
/// they join, and when they come this far.
pub(super) const PLACES_TOLD: usize = 100;

/// A waiter's place: the higher priority first, then whoever asked first.
pub(super) type Place = (Reverse<i32>, u64);

/// The waiters of a resource.
#[derive(Debug)]
pub(super) struct LocalQueue {
    id: QueueId,
    pub(super) waiters: Queue<Place>,
    /// The first one's claim is on its way.
    claiming: Option<ClaimId>,
    /// Something changed meanwhile: try once more.
    again: bool,
    /// The next attempt of an exclusive kind.
    retry: Alarm,
    /// The next telling of places; of a semaphore's the next asking for them.
    places: Alarm,
    /// When the upstream last said that somebody else has it.
    pub(super) taken_at: Option<Boottime>,
    /// Why the upstream last said neither that nor granted it.
    pub(super) error: Option<UpstreamError>,
}

impl LocalQueue {
    fn new(id: QueueId) -> LocalQueue {
        LocalQueue {
            id,
            waiters: Queue::default(),
            claiming: None,
            again: false,
            retry: Alarm::default(),
            places: Alarm::default(),
            taken_at: None,
            error: None,
        }
    }

    /// The queue moved: its first waiters are told their new places, but not at every step of it.
    fn tell_places_later(&mut self, now: Boottime, after: Duration, timers: &mut Timers) {
        let due = now + after.max(PLACES_MIN);
        let due = self.places.due().map_or(due, |earlier| earlier.min(due));
        timers.set(&mut self.places, Timer::Places(self.id), Some(due));
    }

    /// The next attempt is then.
    fn retry_at(&mut self, due: Option<Boottime>, timers: &mut Timers) {
        timers.set(&mut self.retry, Timer::Queue(self.id), due);
    }
}

/// The queues of all resources that somebody on this host waits for.
pub(super) type Queues = Table<LocalQueue>;

impl Queues {
    /// The place of a waiting hold now, which may be further on than it was told.
    pub(super) fn position(&self, hold: &Hold) -> Option<u64> {
        let queue = self.get(&hold.claim.resource);
        match queue.filter(|_| !hold.is_held() && hold.kind() != Kind::Semaphore) {
            Some(queue) => Some(queue.waiters.position(hold.place())).filter(|place| *place > 0),
            None => hold.caller.position,
        }
    }

    /// Takes a hold out of its queue, because it was granted or its wait is over.
    pub(super) fn leave(
        &mut self,
        now: Boottime,
        id: ClaimId,
        place: Place,
        resource: &Resource,
        timers: &mut Timers,
    ) {
        let Some(queue) = self.get_mut(resource) else { return };
        let was_first = queue.waiters.front().is_some_and(|(_, first)| first == id);
        queue.waiters.remove(place);
        let was_claiming = queue.claiming.take_if(|claiming| *claiming == id).is_some();
        if queue.waiters.is_empty() {
            queue.retry_at(None, timers);
            timers.set(&mut queue.places, Timer::Places(queue.id), None);
            let QueueId(number) = queue.id;
            self.remove(resource, number);
            return;
        }
        if resource.kind == Kind::Semaphore {
            return;
        }
        if was_first || was_claiming {
            // With the timers of the next turn: of many that leave together only the last is followed.
            queue.retry_at(Some(now), timers);
        }
        queue.tell_places_later(now, Duration::ZERO, timers);
    }

    /// The first waiters of a resource are told their places soon.
    pub(super) fn tell_places_later(
        &mut self,
        now: Boottime,
        resource: &Resource,
        after: Duration,
        timers: &mut Timers,
    ) {
        if let Some(queue) = self.get_mut(resource) {
            queue.tell_places_later(now, after, timers);
        }
    }

    /// The upstream said that somebody else has the resource.
    pub(super) fn found_taken(&mut self, now: Boottime, resource: &Resource) {
        if let Some(queue) = self.get_mut(resource) {
            queue.taken_at = Some(now);
        }
    }

    /// Nothing was heard from the upstream about who has the resource.
    pub(super) fn found_error(&mut self, resource: &Resource, error: UpstreamError) {
        if let Some(queue) = self.get_mut(resource) {
            queue.error = Some(error);
        }
    }
}

impl Keeper {
    /// Sets out to get a hold.
    pub(super) fn seek(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (kind, wait, place) = (hold.kind(), hold.caller.wait, hold.place());
        let resource = hold.claim.resource.clone();
        if wait == Wait::None {
            let first = self.queues.get(&resource).and_then(|queue| queue.waiters.front());
            // Whoever tries once must not jump the queue; a master of higher priority may.
            let ahead = first.is_some_and(|((priority, _), _)| priority <= place.0);
            if ahead && kind != Kind::Semaphore {
                self.refuse_behind_queue(now, id, resource);
            } else {
                self.claim(id);
            }
            return;
        }
        self.join_queue(now, id, &resource);
        if kind == Kind::Semaphore {
            self.claim(id);
        } else {
            self.answer_queued(now, id);
        }
    }

    /// Takes a waiter's place again after a restart. A semaphore's is in the queue upstream still,
    /// and is confirmed by a beat.
    pub(super) fn seek_again(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        self.join_queue(now, id, resource);
    }

    fn join_queue(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        let Some(place) = self.holds.get(&id).map(Hold::place) else { return };
        let queue = self.queues.get_or_insert(resource, |number| LocalQueue::new(QueueId(number)));
        queue.waiters.insert(place, id);
        if resource.kind == Kind::Semaphore {
            return;
        }
        let (position, behind) = (queue.waiters.position(place), queue.waiters.len() as u64);
        if position < behind {
            queue.tell_places_later(now, Duration::ZERO, &mut self.timers);
        }
        self.placed(id, position);
        if position == 1 {
            self.try_head(now, resource);
        }
    }

    /// Claims for the first in the queue, unless that is on its way already.
    pub(super) fn try_head(&mut self, now: Boottime, resource: &Resource) {
        let Some(queue) = self.queues.get_mut(resource) else { return };
        if self.agent.phase != Phase::Running {
            return;
        }
        if queue.claiming.is_some() {
            queue.again = true;
            return;
        }
        let Some((_, head)) = queue.waiters.front() else { return };
        queue.claiming = Some(head);
        queue.again = false;
        queue.retry_at(self.settings.poll.map(|every| now + every), &mut self.timers);
        self.claim(head);
    }

    /// Sends the claim of a hold.
    pub(super) fn claim(&mut self, id: ClaimId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let mut claim = hold.claim.clone();
        if let Terms::Semaphore { limit, .. } = &mut claim.terms {
            *limit = hold.limit.unwrap_or(*limit);
        }
        let request = model::Request::Claim(claim);
        let call = self.ask(request, Call::Claim(id));
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.stage = Stage::Claiming(call);
            // The program asked once: what this agent does to get it again changes no limit.
            if let Terms::Semaphore { keeps, .. } = &mut hold.claim.terms {
                *keeps = true;
            }
            // The answer to an earlier beat is older than the answer to the claim.
            hold.beats.beating = None;
        }
    }

    /// The first in the queue was refused: the next attempt is when the holder's time is up.
    pub(super) fn head_refused(
        &mut self,
        now: Boottime,
        resource: &Resource,
        free_in: Option<Duration>,
    ) {
        let Some(queue) = self.queues.get_mut(resource) else { return };
        queue.claiming = None;
        if queue.again {
            return self.try_head(now, resource);
        }
        let poll = self.settings.poll;
        let wait = match (free_in, poll) {
            (Some(free_in), Some(poll)) => Some(free_in.min(poll)),
            (free_in, poll) => free_in.or(poll),
        };
        // 1 ms: at the very instant of expiry it would be refused once more.
        let due = wait.map(|wait| now + wait + Duration::from_millis(1));
        queue.retry_at(due, &mut self.timers);
    }

    pub(super) fn queue_fired(&mut self, now: Boottime, id: QueueId) {
        let Some(resource) = self.queues.resource(id.0) else { return };
        let Some(queue) = self.queues.get_mut(&resource) else { return };
        if self.timers.fired(&mut queue.retry, Timer::Queue(id), now) {
            self.try_head(now, &resource);
        }
    }

    pub(super) fn places_fired(&mut self, now: Boottime, id: QueueId) {
        let Some(resource) = self.queues.resource(id.0) else { return };
        let Some(queue) = self.queues.get_mut(&resource) else { return };
        if !self.timers.fired(&mut queue.places, Timer::Places(id), now) {
            return;
        }
        let first: Vec<_> = queue.waiters.iter().take(PLACES_TOLD).map(|(_, id)| id).collect();
        if resource.kind != Kind::Semaphore {
            for (id, position) in first.into_iter().zip(1..) {
                self.placed(id, position);
            }
            return;
        }
        for id in first {
            self.due_now(Renewed::Hold(id));
        }
        if let Some(poll) = self.settings.poll {
            self.queues.tell_places_later(now, &resource, poll, &mut self.timers);
        }
    }
}
