//! Waiters of one resource on this agent.
//!
//! The queue is in the store: here is only who of this host stands in it, to ask for places.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use tenure_wire::Wait;

use super::Keeper;
use super::beats::on_grid;
use super::calls::{Call, Renewed};
use super::hold::{Hold, Stage};
use super::patience::NAMED_WITHIN;
use super::refusal::UpstreamError;
use super::refused::Requeue;
use super::table::Table;
use super::timers::{Alarm, QueueId, Timer, Timers};
use crate::model::{self, ClaimId, Queue, Resource, StandingEntry, Terms};
use crate::time::Boottime;

/// Places in a queue are asked for this often at most, and in all queues at the same instants: thousands of
/// them share a few full calls. Other agents have other instants.
const PLACES_MIN: Duration = Duration::from_millis(PLACES_MIN_MS);
pub(super) const PLACES_MIN_MS: u64 = 250;

/// Changes of their places are told to so many waiters; those behind them learn where they stand when
/// they join, at their beats, and when they come this far.
pub(super) const PLACES_TOLD: usize = 100;

/// A waiter's place: the higher priority first, then whoever asked first.
pub(super) type Place = (Reverse<i32>, u64);

/// The waiters of a resource.
#[derive(Debug)]
pub(super) struct LocalQueue {
    id: QueueId,
    pub(super) waiters: Queue<Place>,
    /// The next asking for places, at one of the agent's instants.
    places: Alarm,
    phase_ms: u64,
    /// When the upstream last said that somebody else has it.
    pub(super) taken_at: Option<Boottime>,
    /// Why the upstream last said neither that nor granted it.
    pub(super) error: Option<UpstreamError>,
    /// Those without a place in the store's queue; see [`super::refused`].
    pub(super) refused: Queue<Place>,
    /// Waiters that the store may have dropped.
    pub(super) unsure: Queue<Place>,
    /// Set while dropped waiters have not all claimed again.
    pub(super) requeue: Option<Requeue>,
    pub(super) holder: NamedHolder,
}

/// The holder of a resource, as the upstream said for the ends of waits.
#[derive(Debug, Default)]
pub(super) struct NamedHolder {
    asked_at: Option<Boottime>,
    /// `None` until it is answered.
    answer: Option<Option<StandingEntry>>,
}

impl NamedHolder {
    /// True if the upstream has to be asked, which counts as done then.
    pub(super) fn is_to_be_asked(&mut self, now: Boottime) -> bool {
        if self.is_recent(now) {
            return false;
        }
        (self.asked_at, self.answer) = (Some(now), None);
        true
    }

    pub(super) fn answered(&mut self, holder: Option<StandingEntry>) {
        self.answer = Some(holder);
    }

    pub(super) fn is_answered(&self, now: Boottime) -> bool {
        self.is_recent(now) && self.answer.is_some()
    }

    pub(super) fn known(&self, now: Boottime) -> Option<StandingEntry> {
        self.answer.clone().flatten().filter(|_| self.is_recent(now))
    }

    fn is_recent(&self, now: Boottime) -> bool {
        self.asked_at.is_some_and(|at| at + NAMED_WITHIN > now)
    }
}

impl LocalQueue {
    fn new(id: QueueId, phase_ms: u64) -> LocalQueue {
        LocalQueue {
            id,
            waiters: Queue::default(),
            places: Alarm::default(),
            phase_ms,
            taken_at: None,
            error: None,
            refused: Queue::default(),
            unsure: Queue::default(),
            requeue: None,
            holder: NamedHolder::default(),
        }
    }

    /// The queue moved: its first waiters are told their new places, but not at every step of it.
    fn tell_places_later(&mut self, now: Boottime, after: Duration, timers: &mut Timers) {
        let due = on_grid(now, after.max(PLACES_MIN), PLACES_MIN_MS, self.phase_ms);
        let due = self.places.due().map_or(due, |earlier| earlier.min(due));
        timers.set(&mut self.places, Timer::Places(self.id), Some(due));
    }
}

/// The queues of all resources that somebody on this host waits for.
pub(super) type Queues = Table<LocalQueue>;

impl Queues {
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
        if hold.caller.wait != Wait::None {
            let resource = hold.claim.resource.clone();
            self.join_queue(id, &resource);
            if self.waits_behind(now, id, &resource) {
                return;
            }
        }
        self.claim_unless_barred(now, id);
    }

    /// Notes that a hold waits for its resource.
    pub(super) fn join_queue(&mut self, id: ClaimId, resource: &Resource) {
        let Some(place) = self.holds.get(&id).map(Hold::place) else { return };
        let phase_ms = self.agent.phase_ms;
        let queue = self
            .queues
            .get_or_insert(resource, |number| LocalQueue::new(QueueId(number), phase_ms));
        queue.waiters.insert(place, id);
    }

    /// Takes a hold out of its queue, because it was granted or its wait is over.
    pub(super) fn leave_queue(&mut self, now: Boottime, place: Place, resource: &Resource) {
        let Some(queue) = self.queues.get_mut(resource) else { return };
        queue.waiters.remove(place);
        if queue.waiters.is_empty() {
            self.timers.set(&mut queue.places, Timer::Places(queue.id), None);
            let QueueId(number) = queue.id;
            return self.queues.remove(resource, number);
        }
        self.settled(now, place, resource);
        let Some(queue) = self.queues.get_mut(resource) else { return };
        if queue.refused.is_empty() {
            return;
        }
        queue.tell_places_later(now, Duration::ZERO, &mut self.timers);
        let was_first = queue.refused.front().is_some_and(|(first, _)| first == place);
        queue.leave_line(place);
        // Those without a place go on when the holder changes, and one by one otherwise.
        if was_first || queue.refused.len() == queue.waiters.len() {
            self.follow(now, resource, 1);
        }
    }

    /// Sends the claim of a hold.
    pub(super) fn claim(&mut self, id: ClaimId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let mut claim = hold.claim.clone();
        claim.ttl = hold.ttl_upstream();
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

    /// The upstream said who waits: the first of this host are told their places. Those who are not listed ask.
    pub(super) fn places_listed(
        &mut self,
        now: Boottime,
        resource: &Resource,
        listed: &[StandingEntry],
    ) {
        let Some(queue) = self.queues.get(resource) else { return };
        let places: BTreeMap<_, _> = listed.iter().map(|entry| entry.claim).zip(1..).collect();
        let first: Vec<_> = queue.waiters.iter().take(PLACES_TOLD).map(|(_, id)| id).collect();
        let mut all_listed = true;
        for id in first {
            let waits = self.holds.get(&id).is_some_and(|hold| hold.stage == Stage::Waiting);
            match places.get(&id) {
                Some(position) if waits => self.placed(id, *position),
                None if waits => all_listed = false,
                _ => {}
            }
        }
        if !all_listed {
            self.queues.tell_places_later(now, resource, Duration::ZERO, &mut self.timers);
        }
    }

    pub(super) fn places_fired(&mut self, now: Boottime, id: QueueId) {
        let Some(resource) = self.queues.resource(id.0) else { return };
        let Some(queue) = self.queues.get_mut(&resource) else { return };
        if !self.timers.fired(&mut queue.places, Timer::Places(id), now) {
            return;
        }
        let all_refused = queue.refused.len() == queue.waiters.len();
        let first: Vec<_> = queue.waiters.iter().take(PLACES_TOLD).map(|(_, id)| id).collect();
        for id in first {
            self.due_now(Renewed::Hold(id));
        }
        if let Some(poll) = self.settings.poll.filter(|_| !all_refused) {
            self.queues.tell_places_later(now, &resource, poll, &mut self.timers);
        }
    }
}
