//! Holds end: lost, released, or never granted.

use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{
    Event, HoldState, Kind, LostEvent, LostReason, ReleasedCause, ReleasedEvent, Wait, brief,
};

use super::Keeper;
use super::command::Note;
use super::hold::Hold;
use super::journal::Entry;
use super::refusal::Refusal;
use super::timers::Timer;
use crate::model::{ClaimId, Revocation};
use crate::time::Boottime;

/// An agent that sees the end of a hold this much late did not run meanwhile: it was stopped or restarted.
const STOOD_STILL_MIN: Duration = Duration::from_millis(500);

impl Keeper {
    /// Valid-until has passed, whatever has been heard since.
    pub(super) fn deadline_fired(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if !self.timers.fired(&mut hold.deadline, Timer::Deadline(id), now) {
            return;
        }
        let reason = if hold.last_instant().is_some_and(|last| last <= now) {
            LostReason::MaxHold
        } else {
            LostReason::Expired
        };
        self.lose(now, id, reason);
    }

    /// A hold is gone, and its holder must have stopped. A wait that is lost ends as well.
    pub(super) fn lose(&mut self, now: Boottime, id: ClaimId, reason: LostReason) {
        let released_here = match reason {
            // The upstream's own expiry frees it: somebody may have been late to notice.
            LostReason::Expired | LostReason::Slept => false,
            LostReason::Preempted | LostReason::Revoked | LostReason::UpstreamReset => false,
            LostReason::Stalled
            | LostReason::MaxHold
            | LostReason::Conflict
            | LostReason::AgentStopping => true,
        };
        self.lose_as(now, id, reason, released_here);
    }

    /// A hold is gone; `released_here` if the upstream does not know that yet.
    pub(super) fn lose_as(
        &mut self,
        now: Boottime,
        id: ClaimId,
        reason: LostReason,
        released_here: bool,
    ) {
        self.lose_with(now, id, reason, released_here, None);
    }

    /// The same, with the words of whoever took it away.
    pub(super) fn lose_with(
        &mut self,
        now: Boottime,
        id: ClaimId,
        reason: LostReason,
        released_here: bool,
        revocation: Option<&Arc<Revocation>>,
    ) {
        let Some(hold) = self.holds.get(&id) else { return };
        // The upstream may tell of it before this agent has come to its deadline.
        let slept =
            hold.is_held() && self.agent.woke.is_some_and(|(woke, _)| hold.valid_until <= woke);
        let reason =
            if slept && reason == LostReason::Expired { LostReason::Slept } else { reason };
        let resource = hold.claim.resource.clone();
        self.refuse_waiting(now, id, &Refusal::WaitLost { hold: id, resource, reason });
        let Some(mut hold) = self.finish(now, id, true) else { return };
        if !keeps(reason) {
            hold.caller.at_least = None;
        }
        self.remember_hold(now, &hold, Some(reason));
        let (session, token) = (hold.session(), hold.token);
        let by = revocation.map(|it| it.by.clone());
        let detail = match revocation {
            Some(revocation) => revocation.reason.clone(),
            None => self.why_lost(now, &hold, reason),
        };
        let event = LostEvent { of: hold.event(), token, reason, by, detail: detail.clone() };
        let resource = hold.claim.resource.clone();
        let uid = self.sessions.user_of(session);
        if hold.is_held() {
            self.record_loss(now, &hold, reason, revocation, detail);
        }
        let revocation = revocation.cloned();
        self.out.note(Note::Lost { hold: id, session, uid, resource, token, reason, revocation });
        self.keep_loss(session, &event);
        self.tell(session, || Event::Lost(event));

        if hold.kept_until(now).is_some() {
            return self.begin_release_of_lost(now, hold);
        }
        if !released_here && hold.is_held() {
            self.out.persist(Entry::HoldEnded { row: hold.row, hold: id });
            return self.try_first(now, &hold.claim.resource);
        }
        if self.works_on(&hold) && hold.is_held() && hold.valid_until > now {
            // Stopped comes before released: the guarded work may still run.
            self.delay_release(hold);
        } else {
            self.begin_release(now, hold);
        }
    }

    /// The reason for which an expired hold was not renewed, as far as this agent knows.
    fn why_lost(&self, now: Boottime, hold: &Hold, reason: LostReason) -> Option<String> {
        match (reason, self.agent.woke, &hold.beats.doubt) {
            _ if !hold.is_held() => None,
            (LostReason::Slept, Some((_, slept)), _) => {
                Some(format!("the machine slept for {}", brief(slept)))
            }
            (LostReason::Expired, _, _) if now.since(hold.valid_until) > STOOD_STILL_MIN => {
                let late = brief(now.since(hold.valid_until));
                Some(format!("its agent did not run, and saw the end {late} late"))
            }
            (LostReason::Expired, _, Some(doubt)) => {
                let since = brief(now.since(doubt.since));
                Some(format!("the store has confirmed no renewal for {since}: {}", doubt.cause))
            }
            // A renewal is on its way.
            (LostReason::Expired, _, None) => {
                let confirmed_at = (hold.valid_until + hold.beats.margin).before(hold.claim.ttl);
                let since = brief(now.since(confirmed_at));
                Some(format!("the store has not answered for {since}"))
            }
            _ => None,
        }
    }

    /// A hold was given back, or a wait ended without a grant.
    pub(super) fn end_released(&mut self, now: Boottime, id: ClaimId, cause: ReleasedCause) {
        self.end_released_with(now, id, cause, None);
    }

    /// The same, of a command that has ended with that status.
    pub(super) fn end_released_with(
        &mut self,
        now: Boottime,
        id: ClaimId,
        cause: ReleasedCause,
        exit: Option<i32>,
    ) {
        let refusal = match cause {
            ReleasedCause::SessionEnded => Refusal::SessionEndedInWait(id),
            ReleasedCause::Client | ReleasedCause::WaitTimeout => Refusal::WaitCancelled(id),
        };
        self.refuse_waiting(now, id, &refusal);
        let Some(hold) = self.finish(now, id, false) else { return };
        // A caller who asks for it after the end of its session is told of that.
        if hold.caller.request.is_some() && cause != ReleasedCause::SessionEnded {
            self.remember_hold(now, &hold, None);
        }
        let session = hold.session();
        // Whoever tried once and was refused never had a hold to tell of.
        if hold.is_held() || hold.caller.wait != Wait::None {
            let token = hold.is_held().then_some(hold.token);
            let event = ReleasedEvent { of: hold.event(), token, cause };
            let resource = hold.claim.resource.clone();
            let uid = self.sessions.user_of(session);
            self.out.note(Note::Released { hold: id, session, uid, resource, token, cause });
            if hold.is_held() {
                self.record_release(now, &hold, cause, exit);
            }
            self.tell(session, || Event::Released(event));
        }
        self.begin_release(now, hold);
    }

    /// Takes a hold out of every table but the upstream's and the journal's.
    fn finish(&mut self, now: Boottime, id: ClaimId, is_lost: bool) -> Option<Hold> {
        let session = self.holds.get(&id)?.session();
        let uid = self.sessions.get(&session).map(|session| session.saved.uid);
        let mut hold = self.holds.remove(id, uid)?;
        self.timers.set(&mut hold.beats.next, Timer::Beat(id), None);
        self.timers.set(&mut hold.deadline, Timer::Deadline(id), None);
        self.timers.set(&mut hold.caller.patience, Timer::Patience(id), None);
        if hold.caller.wait != Wait::None && !hold.is_held() {
            self.leave_queue(now, hold.place(), &hold.claim.resource);
        }
        if hold.is_held() {
            self.out.void(&hold, if is_lost { HoldState::Lost } else { HoldState::Released });
        }
        if let Some(session) = self.sessions.get_mut(&session) {
            session.holds.remove(&id);
            session.slots.free(hold.slot);
            if hold.kind() == Kind::Master && hold.is_held() {
                session.upstream.role = tenure_wire::Role::Peer;
            }
        }
        Some(hold)
    }
}

/// True if what was lost is kept from others for as long as it was to be kept at least.
fn keeps(reason: LostReason) -> bool {
    match reason {
        LostReason::Expired
        | LostReason::Slept
        | LostReason::Stalled
        | LostReason::MaxHold
        | LostReason::AgentStopping => true,
        // Somebody else has it, or is meant to.
        LostReason::Preempted
        | LostReason::Revoked
        | LostReason::UpstreamReset
        | LostReason::Conflict => false,
    }
}
