//! Claims that failed: the upstream was away, or refused.

use std::time::Duration;

use tenure_wire::{LostReason, ReleasedCause, Wait};

use super::Keeper;
use super::hold::Stage;
use super::refusal::{Refusal, UpstreamError};
use super::timers::Timer;
use crate::model::{ClaimId, DenialRule, Failure, Resource};
use crate::time::Boottime;

impl Keeper {
    pub(super) fn claim_failed(
        &mut self,
        now: Boottime,
        id: ClaimId,
        resource: &Resource,
        failure: Failure,
    ) {
        let Some(hold) = self.holds.change(id, Stage::Queued) else { return };
        hold.uncertain |= failure.is_uncertain();
        hold.beats.failures += 1;
        let failures = hold.beats.failures;
        let waits = hold.caller.wait != Wait::None;
        let tried_until = hold.caller.asked_at + self.settings.retry_no_wait;
        let (least, is_forbidden, is_away) = match &failure {
            Failure::Denied(denial) => match denial.rule {
                DenialRule::Quota(after) => (after, false, false),
                rule => (Duration::ZERO, rule.is_final(), false),
            },
            Failure::Unavailable(_) | Failure::Unknown(_) => (Duration::ZERO, false, true),
        };
        let error = UpstreamError::from(failure);
        if !waits {
            // Who waits for no holder waits for the upstream: an election or a restart takes a second.
            if is_away && now < tried_until {
                let wait = self.settings.back_off(failures).min(tried_until.since(now));
                return self.claim_later(now, id, wait);
            }
            return self.give_up(now, id, &Refusal::Upstream(error));
        }
        if is_forbidden {
            return self.forbidden(now, id, &Refusal::Upstream(error));
        }
        self.queues.found_error(resource, error);
        let wait = self.settings.back_off(failures).max(least);
        self.refused_place(now, id, resource, wait);
    }

    /// The upstream never lets this agent have it: whoever waits would wait for nothing.
    fn forbidden(&mut self, now: Boottime, id: ClaimId, refusal: &Refusal) {
        let Some(hold) = self.holds.get(&id) else { return };
        if !hold.caller.tickets.is_empty() {
            return self.give_up(now, id, refusal);
        }
        // Its caller was told that it waits, and reads of the end in its events.
        self.lose(now, id, LostReason::Revoked);
    }

    /// A claim is sent again after a while; the timer of its beat serves.
    pub(super) fn claim_later(&mut self, now: Boottime, id: ClaimId, wait: Duration) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        self.timers.set(&mut hold.beats.next, Timer::Beat(id), Some(now + wait));
    }

    /// Refuses whoever tried once, and leaves nothing behind.
    pub(super) fn give_up(&mut self, now: Boottime, id: ClaimId, refusal: &Refusal) {
        self.refuse_waiting(now, id, refusal);
        self.end_untold(now, id);
    }

    /// Ends a hold that its client never heard of.
    pub(super) fn end_untold(&mut self, now: Boottime, id: ClaimId) {
        self.end_released(now, id, ReleasedCause::Client);
    }
}
