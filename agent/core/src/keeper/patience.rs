//! The end of a wait that lasts no longer than its caller wants.

use std::time::Duration;

use tenure_wire::{Holder, ReleasedCause};

use super::Keeper;
use super::calls::Call;
use super::hold::Stage;
use super::refusal::{Refusal, UpstreamError};
use super::timers::Timer;
use crate::model::{self, Answer, ClaimId, Failure, Resource};
use crate::time::Boottime;

/// How much later a wait ends, at most, so that its end can tell the store's answer and name the holder.
pub(super) const NAMED_WITHIN: Duration = Duration::from_millis(250);
/// The time between two looks for the answer.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Keeper {
    pub(super) fn patience_fired(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if !self.timers.fired(&mut hold.caller.patience, Timer::Patience(id), now) {
            return;
        }
        if hold.is_held() {
            // Granted after a restart, and its caller has not come back.
            hold.caller.at_least = None;
            return self.end_released(now, id, ReleasedCause::WaitTimeout);
        }
        let (session, asked_at, stage) = (hold.session(), hold.caller.asked_at, hold.stage);
        let resource = hold.claim.resource.clone();
        let queue = self.queues.get(&resource);
        // Whoever is in the queue upstream was answered.
        let found_taken = stage == Stage::Waiting
            || queue.and_then(|queue| queue.taken_at).is_some_and(|at| asked_at <= at);
        // Its first answer may be on its way.
        let may_answer = found_taken || queue.is_some_and(|queue| queue.error.is_none());
        let is_barred = self.barred(now, session, &resource).is_some();
        if may_answer && !is_barred && self.waits_for_answer(now, id, &resource, found_taken) {
            return;
        }
        let known = self.queues.get(&resource).and_then(|queue| queue.holder.known(now));
        let holder = known.map(|entry| Box::new(self.holder_for(session, &entry)));
        self.wait_over(now, id, found_taken, holder);
    }

    /// True if the end of a wait waits for the store's answer: who has the resource, of which all whose waits end
    /// together share a question, or, of one that was not found taken yet, whether it is free.
    fn waits_for_answer(
        &mut self,
        now: Boottime,
        id: ClaimId,
        resource: &Resource,
        found_taken: bool,
    ) -> bool {
        let Some(hold) = self.holds.get_mut(&id).filter(|it| !it.caller.tickets.is_empty()) else {
            return false;
        };
        let Some(queue) = self.queues.get_mut(resource) else { return false };
        let since = *hold.caller.out_of_patience.get_or_insert(now);
        if found_taken && queue.holder.is_answered(now) || since + NAMED_WITHIN <= now {
            return false;
        }
        let due = Some((now + LOOK_AGAIN).min(since + NAMED_WITHIN));
        self.timers.set(&mut hold.caller.patience, Timer::Patience(id), due);
        if found_taken && queue.holder.is_to_be_asked(now) {
            let inspect = model::Request::Inspect(resource.clone());
            self.ask(inspect, Call::HolderOfWait(id, resource.clone()));
        }
        true
    }

    /// The one that asked is told at once, all others soon after: they may be thousands.
    pub(super) fn holder_of_wait_answered(
        &mut self,
        now: Boottime,
        id: ClaimId,
        resource: &Resource,
        result: Result<Answer, Failure>,
    ) {
        let holder = match result {
            Ok(Answer::Standing(standing)) => standing.holders.into_iter().next(),
            Ok(_) | Err(_) => None,
        };
        if let Some(queue) = self.queues.get_mut(resource) {
            queue.holder.answered(holder.clone());
        }
        let Some(hold) = self.holds.get(&id).filter(|hold| !hold.is_held()) else { return };
        let holder = holder.map(|entry| Box::new(self.holder_for(hold.session(), &entry)));
        self.wait_over(now, id, true, holder);
    }

    /// A wait ends without a grant.
    fn wait_over(
        &mut self,
        now: Boottime,
        id: ClaimId,
        found_taken: bool,
        holder: Option<Box<Holder>>,
    ) {
        let Some(hold) = self.holds.get(&id) else { return };
        let limit_changed = hold.caller.limit_changed;
        let resource = hold.claim.resource.clone();
        let refusal = if let Some(barred) = self.barred(now, hold.session(), &resource) {
            barred
        } else if found_taken {
            let waited = hold.caller.out_of_patience.unwrap_or(now).since(hold.caller.asked_at);
            Refusal::WaitTimeout { hold: id, resource, waited, holder, limit_changed }
        } else {
            let error = self.queues.get(&resource).and_then(|queue| queue.error.clone());
            let error = error.unwrap_or(UpstreamError::TimedOut);
            Refusal::WaitUnanswered { hold: id, error, limit_changed }
        };
        self.refuse_waiting(now, id, &refusal);
        self.end_released(now, id, ReleasedCause::WaitTimeout);
    }
}
