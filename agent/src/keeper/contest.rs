//! Waiters of one resource on this agent.
//!
//! Exclusive kinds have no queue upstream: here is who waits, in order, and only the first of them
//! claims. Semaphores have their queue upstream: here is only who is in it, to ask for places.

use std::collections::VecDeque;
use std::time::Duration;

use tenure::wire::{Kind, Problem, Wait};

use super::hold::Stage;
use super::timers::{Alarm, ContestId, Timer};
use super::{Call, Keeper, Phase, Renewed};
use crate::host::clock::Boottime;
use crate::model::{self, ClaimId, Resource, Terms};

/// Places in a queue are asked for this often at most, and once per ms and waiter.
const PLACES_MIN: Duration = Duration::from_millis(250);

/// Who waits for a resource.
#[derive(Debug)]
pub(super) struct Contest {
    pub(super) id: ContestId,
    /// In the order in which they will be served.
    pub(super) queue: VecDeque<ClaimId>,
    /// The first one's claim is on its way.
    pub(super) claiming: Option<ClaimId>,
    /// Something changed meanwhile: try once more.
    pub(super) again: bool,
    /// The next attempt, or for a semaphore the next asking for places.
    pub(super) retry: Alarm,
    /// When the upstream last said that somebody else has it.
    pub(super) taken_at: Option<Boottime>,
    /// Why the upstream last said neither that nor granted it.
    pub(super) trouble: Option<Problem>,
}

impl Keeper {
    /// Sets out to get a hold.
    pub(super) fn seek(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (kind, wait) = (hold.kind(), hold.wait);
        let resource = hold.claim.resource.clone();
        if wait == Wait::None {
            let ahead =
                self.contests.get(&resource).is_some_and(|contest| !contest.queue.is_empty());
            // Whoever tries once must not jump the queue; a master of higher priority may.
            if ahead && !matches!(kind, Kind::Master | Kind::Semaphore) {
                self.refuse_behind_queue(now, id, resource);
            } else {
                self.claim(id);
            }
            return;
        }
        self.join_contest(id, &resource);
        if kind == Kind::Semaphore {
            self.claim(id);
        } else {
            self.tell_places(&resource);
            self.try_head(now, &resource);
            self.answer_queued(now, id);
        }
    }

    /// Takes a waiter's place again after a restart. A semaphore's is in the queue upstream still,
    /// and is confirmed by a beat.
    pub(super) fn seek_again(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        self.join_contest(id, resource);
        if resource.kind != Kind::Semaphore {
            self.tell_places(resource);
            self.try_head(now, resource);
        }
    }

    fn join_contest(&mut self, id: ClaimId, resource: &Resource) {
        let priority = self.priority(id);
        if !self.contests.contains_key(resource) {
            let name = ContestId(self.next_contest);
            self.next_contest += 1;
            self.contest_names.insert(name, resource.clone());
            let contest = Contest {
                id: name,
                queue: VecDeque::new(),
                claiming: None,
                again: false,
                retry: Alarm::default(),
                taken_at: None,
                trouble: None,
            };
            self.contests.insert(resource.clone(), contest);
        }
        // Everybody behind those of the same or a higher priority.
        let place = self.contests[resource]
            .queue
            .iter()
            .rposition(|other| self.priority(*other) >= priority)
            .map_or(0, |last| last + 1);
        if let Some(contest) = self.contests.get_mut(resource) {
            contest.queue.insert(place, id);
        }
    }

    fn priority(&self, id: ClaimId) -> i32 {
        match self.holds.get(&id).map(|hold| &hold.claim.terms) {
            Some(Terms::Master { priority }) => *priority,
            _ => 0,
        }
    }

    /// Takes a hold out of the queue, because it was granted or its wait is over.
    pub(super) fn leave_contest(&mut self, now: Boottime, id: ClaimId, resource: &Resource) {
        let Some(contest) = self.contests.get_mut(resource) else { return };
        let place = contest.queue.iter().position(|waiting| *waiting == id);
        if let Some(place) = place {
            contest.queue.remove(place);
        }
        if contest.claiming == Some(id) {
            contest.claiming = None;
        }
        if contest.queue.is_empty() {
            self.timers.set(&mut contest.retry, Timer::Contest(contest.id), None);
            self.contest_names.remove(&contest.id);
            self.contests.remove(resource);
        } else if place.is_some() && resource.kind != Kind::Semaphore {
            self.tell_places(resource);
            self.try_head(now, resource);
        }
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
        let Some(head) = contest.queue.front().copied() else { return };
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
        let claim = model::Claim { max_hold: None, ..hold.claim.clone() };
        let request = model::Request::Claim(claim);
        let call = self.ask(request, Call::Claim(id));
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.stage = Stage::Claiming(call);
            // What an earlier beat is answered is older than what the claim is answered.
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
    pub(super) fn found_trouble(&mut self, resource: &Resource, problem: Problem) {
        if let Some(contest) = self.contests.get_mut(resource) {
            contest.trouble = Some(problem);
        }
    }

    pub(super) fn contest_fired(&mut self, now: Boottime, id: ContestId) {
        let Some(resource) = self.contest_names.get(&id).cloned() else { return };
        let Some(contest) = self.contests.get_mut(&resource) else { return };
        if !self.timers.fired(&mut contest.retry, Timer::Contest(id), now) {
            return;
        }
        if resource.kind != Kind::Semaphore {
            return self.try_head(now, &resource);
        }
        let waiting: Vec<_> = contest.queue.iter().copied().collect();
        for hold in waiting {
            self.due_now(Renewed::Hold(hold));
        }
        self.ask_places_later(now, &resource, self.settings.poll);
    }

    /// The queue of a semaphore moved: ask for the new places, but not at every step of it.
    pub(super) fn ask_places_later(
        &mut self,
        now: Boottime,
        resource: &Resource,
        after: Option<Duration>,
    ) {
        let Some(contest) = self.contests.get_mut(resource) else { return };
        let Some(after) = after else { return };
        let calm = PLACES_MIN.max(Duration::from_millis(contest.queue.len() as u64));
        let due = now + after.max(calm);
        let due = contest.retry.due().map_or(due, |earlier| earlier.min(due));
        self.timers.set(&mut contest.retry, Timer::Contest(contest.id), Some(due));
    }

    /// Tells the waiters of an exclusive resource their places where these changed.
    fn tell_places(&mut self, resource: &Resource) {
        let Some(contest) = self.contests.get(resource) else { return };
        let queue: Vec<_> = contest.queue.iter().copied().collect();
        for (ahead, id) in queue.into_iter().enumerate() {
            self.placed(id, ahead as u64 + 1);
        }
    }
}
