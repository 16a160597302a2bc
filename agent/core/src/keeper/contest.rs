//! Waiters of one resource on this agent.
//!
//! Exclusive kinds have no queue upstream: here is who waits, in order, and only the first of them
//! claims. Semaphores have their queue upstream: here is only who is in it, to ask for places.

use std::cmp::Reverse;
use std::time::Duration;

use tenure_wire::{Kind, Wait};

use super::hold::Stage;
use super::refusal::Trouble;
use super::timers::{Alarm, ContestId, Timer};
use super::{Call, Keeper, Phase, Renewed};
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
pub(super) struct Contest {
    pub(super) id: ContestId,
    pub(super) queue: Queue<Place>,
    /// The first one's claim is on its way.
    pub(super) claiming: Option<ClaimId>,
    /// Something changed meanwhile: try once more.
    pub(super) again: bool,
    /// The next attempt of an exclusive kind.
    pub(super) retry: Alarm,
    /// The next telling of places; of a semaphore's the next asking for them.
    pub(super) places: Alarm,
    /// When the upstream last said that somebody else has it.
    pub(super) taken_at: Option<Boottime>,
    /// Why the upstream last said neither that nor granted it.
    pub(super) trouble: Option<Trouble>,
}

impl Keeper {
    /// Sets out to get a hold.
    pub(super) fn seek(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (kind, wait, place) = (hold.kind(), hold.wait, hold.place());
        let resource = hold.claim.resource.clone();
        if wait == Wait::None {
            let first = self.contests.get(&resource).and_then(|contest| contest.queue.front());
            // Whoever tries once must not jump the queue; a master of higher priority may.
            let ahead = first.is_some_and(|((priority, _), _)| priority <= place.0);
            if ahead && kind != Kind::Semaphore {
                self.refuse_behind_queue(now, id, resource);
            } else {
                self.claim(id);
            }
            return;
        }
        self.join_contest(now, id, &resource);
        if kind == Kind::Semaphore {
            self.claim(id);
        } else {
            self.answer_queued(now, id);
        }
    }

    /// Takes a waiter's place again after a restart. A semaphore's is in the queue upstream still,
    /// and is confirmed by a beat.
    pub(super) fn seek_again(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        self.join_contest(now, id, resource);
    }

    fn join_contest(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        let Some(place) = self.holds.get(&id).map(|hold| hold.place()) else { return };
        if !self.contests.contains_key(resource) {
            let name = ContestId(self.next_contest);
            self.next_contest += 1;
            self.contest_names.insert(name, resource.clone());
            let contest = Contest {
                id: name,
                queue: Queue::default(),
                claiming: None,
                again: false,
                retry: Alarm::default(),
                places: Alarm::default(),
                taken_at: None,
                trouble: None,
            };
            self.contests.insert(resource.clone(), contest);
        }
        let Some(contest) = self.contests.get_mut(resource) else { return };
        contest.queue.insert(place, id);
        if resource.kind == Kind::Semaphore {
            return;
        }
        let (position, behind) = (contest.queue.position(place), contest.queue.len() as u64);
        self.placed(id, position);
        if position < behind {
            self.tell_places_later(now, resource, Duration::ZERO);
        }
        if position == 1 {
            self.try_head(now, resource);
        }
    }

    /// The place of a waiting hold now, which may be further on than it was told.
    pub(super) fn position(&self, hold: &super::Hold) -> Option<u64> {
        let contest = self.contests.get(&hold.claim.resource);
        match contest.filter(|_| !hold.is_held() && hold.kind() != Kind::Semaphore) {
            Some(contest) => Some(contest.queue.position(hold.place())).filter(|place| *place > 0),
            None => hold.position,
        }
    }

    /// Takes a hold out of the queue, because it was granted or its wait is over.
    pub(super) fn leave_contest(
        &mut self,
        now: Boottime,
        id: ClaimId,
        place: Place,
        resource: &Resource,
    ) {
        let Some(contest) = self.contests.get_mut(resource) else { return };
        let was_first = contest.queue.front().is_some_and(|(_, first)| first == id);
        contest.queue.remove(place);
        let was_claiming = contest.claiming.take_if(|claiming| *claiming == id).is_some();
        if contest.queue.is_empty() {
            self.timers.set(&mut contest.retry, Timer::Contest(contest.id), None);
            self.timers.set(&mut contest.places, Timer::Places(contest.id), None);
            self.contest_names.remove(&contest.id);
            self.contests.remove(resource);
            return;
        }
        if resource.kind == Kind::Semaphore {
            return;
        }
        if was_first || was_claiming {
            // With the timers of the next turn: of many that leave together only the last is followed.
            self.timers.set(&mut contest.retry, Timer::Contest(contest.id), Some(now));
        }
        self.tell_places_later(now, resource, Duration::ZERO);
    }

    /// Claims for the first in the queue, unless that is on its way already.
    pub(super) fn try_head(&mut self, now: Boottime, resource: &Resource) {
        let Some(contest) = self.contests.get_mut(resource) else { return };
        if self.phase != Phase::Running {
            return;
        }
        if contest.claiming.is_some() {
            contest.again = true;
            return;
        }
        let Some((_, head)) = contest.queue.front() else { return };
        contest.claiming = Some(head);
        contest.again = false;
        let backstop = self.settings.poll.map(|every| now + every);
        self.timers.set(&mut contest.retry, Timer::Contest(contest.id), backstop);
        self.claim(head);
    }

    /// Sends the claim of a hold.
    pub(super) fn claim(&mut self, id: ClaimId) {
        let Some(hold) = self.holds.get(&id) else { return };
        // Its longest duration is counted here alone: the upstream would count from a grant of which
        // this agent may hear late, and let go while the holder is told that it is valid.
        let mut claim = model::Claim { max_hold: None, ..hold.claim.clone() };
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
            hold.beating = None;
        }
    }

    /// The first in the queue was refused: the next attempt is when the holder's time is up.
    pub(super) fn head_refused(
        &mut self,
        now: Boottime,
        resource: &Resource,
        free_in: Option<Duration>,
    ) {
        let Some(contest) = self.contests.get_mut(resource) else { return };
        contest.claiming = None;
        if contest.again {
            return self.try_head(now, resource);
        }
        let poll = self.settings.poll;
        let wait = match (free_in, poll) {
            (Some(free_in), Some(poll)) => Some(free_in.min(poll)),
            (free_in, poll) => free_in.or(poll),
        };
        // 1 ms: at the very instant of expiry it would be refused once more.
        let due = wait.map(|wait| now + wait + Duration::from_millis(1));
        self.timers.set(&mut contest.retry, Timer::Contest(contest.id), due);
    }

    /// The upstream said that somebody else has the resource.
    pub(super) fn found_taken(&mut self, now: Boottime, resource: &Resource) {
        if let Some(contest) = self.contests.get_mut(resource) {
            contest.taken_at = Some(now);
        }
    }

    /// Nothing was heard from the upstream about who has the resource.
    pub(super) fn found_trouble(&mut self, resource: &Resource, trouble: Trouble) {
        if let Some(contest) = self.contests.get_mut(resource) {
            contest.trouble = Some(trouble);
        }
    }

    pub(super) fn contest_fired(&mut self, now: Boottime, id: ContestId) {
        let Some(resource) = self.contest_names.get(&id).cloned() else { return };
        let Some(contest) = self.contests.get_mut(&resource) else { return };
        if self.timers.fired(&mut contest.retry, Timer::Contest(id), now) {
            self.try_head(now, &resource);
        }
    }

    /// The queue moved: its first waiters are told their new places, but not at every step of it.
    pub(super) fn tell_places_later(
        &mut self,
        now: Boottime,
        resource: &Resource,
        after: Duration,
    ) {
        let Some(contest) = self.contests.get_mut(resource) else { return };
        let due = now + after.max(PLACES_MIN);
        let due = contest.places.due().map_or(due, |earlier| earlier.min(due));
        self.timers.set(&mut contest.places, Timer::Places(contest.id), Some(due));
    }

    pub(super) fn places_fired(&mut self, now: Boottime, id: ContestId) {
        let Some(resource) = self.contest_names.get(&id).cloned() else { return };
        let Some(contest) = self.contests.get_mut(&resource) else { return };
        if !self.timers.fired(&mut contest.places, Timer::Places(id), now) {
            return;
        }
        let first: Vec<_> = contest.queue.iter().take(PLACES_TOLD).map(|(_, id)| id).collect();
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
            self.tell_places_later(now, &resource, poll);
        }
    }
}
