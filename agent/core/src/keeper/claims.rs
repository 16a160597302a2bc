//! Claims are answered: granted, queued, refused, or unknown.

use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{
    Event, Holder, Kind, LimitChanged, LostReason, QueuedEvent, ReleasedCause, Wait,
};

use super::calls::{Call, Renewed};
use super::command::Note;
use super::hold::{Hold, Stage, millis};
use super::queue::PLACES_TOLD;
use super::refusal::{Refusal, UpstreamError};
use super::request::{Reply, Ticket};
use super::timers::Timer;
use super::{Keeper, Phase};
use crate::model::{
    self, Answer, CallId, ClaimAnswer, ClaimId, DenialRule, Failure, GoneReason, GrantHint,
    Resource, SessionId, StandingEntry,
};
use crate::time::Boottime;

impl Keeper {
    pub(super) fn claim_answered(
        &mut self,
        now: Boottime,
        call: CallId,
        id: ClaimId,
        sent_at: Boottime,
        result: Result<Answer, Failure>,
    ) {
        // A hold that ended meanwhile has sent its release already.
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if hold.stage != Stage::Claiming(call) {
            return;
        }
        let resource = hold.claim.resource.clone();
        match result {
            Ok(Answer::Claim(answer)) => {
                hold.beats.failures = 0;
                self.claim_decided(now, id, &resource, sent_at, answer);
            }
            Ok(other) => self.claim_failed(
                now,
                id,
                &resource,
                Failure::Unknown(format!("unexpected answer to a claim: {other:?}")),
            ),
            Err(failure) => self.claim_failed(now, id, &resource, failure),
        }
    }

    fn claim_decided(
        &mut self,
        now: Boottime,
        id: ClaimId,
        resource: &Resource,
        sent_at: Boottime,
        answer: ClaimAnswer,
    ) {
        match answer {
            ClaimAnswer::Held { token, limit, limit_was } => {
                self.limit_changed(id, limit_was, limit);
                self.granted(now, id, sent_at, token, limit);
            }
            ClaimAnswer::Waiting { position, limit, limit_was } => {
                self.limit_changed(id, limit_was, limit);
                self.queues.found_taken(now, resource);
                self.got_place(now, id, resource);
                if let Some(hold) = self.holds.change(id, Stage::Waiting) {
                    hold.limit = limit;
                    hold.beats.kept_until = sent_at + hold.ttl_upstream();
                    let due = Some(super::beats::next_beat_of(now, hold, self.agent.phase_ms));
                    self.timers.set(&mut hold.beats.next, Timer::Beat(id), due);
                }
                self.placed(id, position);
                self.answer_queued(now, id);
                if let Some(poll) = self.settings.poll {
                    self.queues.tell_places_later(now, resource, poll, &mut self.timers);
                }
                let asked_again = self
                    .holds
                    .get_mut(&id)
                    .is_some_and(|hold| std::mem::take(&mut hold.beats.again));
                if asked_again {
                    self.due_now(Renewed::Hold(id));
                }
            }
            ClaimAnswer::Contended { holder, free_in, limit, limit_was } => {
                self.limit_changed(id, limit_was, limit);
                self.queues.found_taken(now, resource);
                let Some(hold) = self.holds.change(id, Stage::Queued) else { return };
                if hold.caller.wait == Wait::None {
                    let (session, limit_changed) = (hold.session(), hold.caller.limit_changed);
                    let holder = holder.map(|entry| Box::new(self.holder_for(session, &entry)));
                    let resource = resource.clone();
                    self.give_up(now, id, &Refusal::Contended { resource, holder, limit_changed });
                } else {
                    let poll = self.settings.poll.unwrap_or(self.settings.retry_max);
                    let wait = free_in.unwrap_or(poll).min(poll);
                    // 1 ms: at the very instant of expiry it would be refused once more.
                    self.refused_place(now, id, resource, wait + Duration::from_millis(1));
                }
            }
            ClaimAnswer::Gone(reason) => {
                let reason = lost_reason(reason);
                let resource = resource.clone();
                self.refuse_waiting(now, id, &Refusal::TakenAway { hold: id, resource, reason });
                self.lose(now, id, reason);
            }
            ClaimAnswer::Quarantined { free_in } => {
                let Some(hold) = self.holds.change(id, Stage::Queued) else { return };
                let wait = hold.caller.wait;
                let error = UpstreamError::Quarantined(free_in);
                if wait == Wait::None {
                    return self.give_up(now, id, &Refusal::Upstream(error));
                }
                self.queues.found_error(resource, error);
                self.refused_place(now, id, resource, free_in);
            }
        }
    }

    /// A claim changed the limit of a semaphore, if it `was` another: everybody who asks with a limit of
    /// their own decides for all, so all are told.
    fn limit_changed(&mut self, id: ClaimId, was: Option<u32>, limit: Option<u32>) {
        let (Some(from), Some(to)) = (was, limit) else { return };
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.caller.limit_changed = Some(LimitChanged { from, to });
        let (session, resource) = (hold.session(), hold.claim.resource.clone());
        let uid = self.sessions.user_of(session);
        self.out.note(Note::LimitChanged { session, uid, resource, from, to });
    }

    fn claim_failed(&mut self, now: Boottime, id: ClaimId, resource: &Resource, failure: Failure) {
        let Some(hold) = self.holds.change(id, Stage::Queued) else { return };
        hold.uncertain |= failure.is_uncertain();
        hold.beats.failures += 1;
        let failures = hold.beats.failures;
        let tries_once = hold.caller.wait == Wait::None;
        let (least, is_forbidden) = match &failure {
            Failure::Denied(denial) => match denial.rule {
                DenialRule::Quota(after) => (after, false),
                rule => (Duration::ZERO, rule.is_final()),
            },
            Failure::Unavailable(_) | Failure::Unknown(_) => (Duration::ZERO, false),
        };
        let error = UpstreamError::from(failure);
        if tries_once {
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

    /// A hint says that a waiter was granted. One that says what holds until others may be granted it; the
    /// answer to a beat tells the rest.
    pub(super) fn granted_by_hint(&mut self, now: Boottime, id: ClaimId, hint: Option<GrantHint>) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if hold.stage == Stage::Queued && self.agent.phase == Phase::Running {
            // A claim whose answer was given up took effect late; here it stands behind others that have no
            // place.
            return self.claim_unless_barred(now, id);
        }
        // One that is to be kept for longer is granted by the beat that says so to the upstream.
        let by_hint = hold.stage == Stage::Waiting && hold.caller.at_least.is_none();
        if let Some(hint) = hint.filter(|_| by_hint) {
            let until = hint.confirm_by.before(hold.beats.margin);
            if until > now {
                hold.beats.beaten_before = hold.beats.beating.take();
                self.granted_until(now, id, now, until, (hint.token, hint.limit));
            }
        }
        self.due_now(Renewed::Hold(id));
    }

    /// The upstream says that a claim is granted.
    pub(super) fn granted(
        &mut self,
        now: Boottime,
        id: ClaimId,
        sent_at: Boottime,
        token: u64,
        limit: Option<u32>,
    ) {
        let Some(hold) = self.holds.get(&id) else { return };
        let until = (sent_at + hold.claim.ttl).before(hold.beats.margin);
        self.granted_until(now, id, sent_at, until, (token, limit));
    }

    fn granted_until(
        &mut self,
        now: Boottime,
        id: ClaimId,
        granted_at: Boottime,
        until: Boottime,
        (token, limit): (u64, Option<u32>),
    ) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.granted_at = granted_at;
        let valid_until = hold.last_instant().map_or(until, |last| until.min(last));
        if valid_until <= now && hold.last_instant().is_some_and(|last| last <= now) {
            return self.granted_too_late(now, id);
        }
        if valid_until <= now {
            // The answer was so late that it promises nothing: ask again.
            return self.ask_again(id);
        }
        if !self.supersedes(now, id, token) {
            return;
        }
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if self.sessions.get(&hold.session()).is_some_and(|session| session.leaving.is_some()) {
            // The upstream has it.
            hold.uncertain = true;
            return self.end_released(now, id, ReleasedCause::SessionEnded);
        }
        let Some(hold) = self.holds.change(id, Stage::Held) else { return };
        hold.token = token;
        hold.limit = limit;
        hold.valid_until = valid_until;
        hold.uncertain = false;
        hold.beats.failures = 0;
        let again = std::mem::take(&mut hold.beats.again);
        let beat =
            if again { now } else { super::beats::next_beat_of(now, hold, self.agent.phase_ms) };
        self.timers.set(&mut hold.beats.next, Timer::Beat(id), Some(beat));
        self.timers.set(&mut hold.deadline, Timer::Deadline(id), Some(valid_until));
        if hold.caller.wait == Wait::Queue || !hold.caller.tickets.is_empty() {
            self.timers.set(&mut hold.caller.patience, Timer::Patience(id), None);
        }
        hold.caller.told = hold.caller.tickets.len() as u32;

        let session = hold.session();
        let uid = self.sessions.user_of(session);
        let resource = hold.claim.resource.clone();
        let (waits, place) = (hold.caller.wait != Wait::None, hold.place());
        self.out.save(hold);
        self.out.show(hold);
        self.out.note(Note::Granted {
            hold: id,
            session,
            uid,
            resource: resource.clone(),
            token,
            waited: now.since(hold.caller.asked_at),
        });
        let acquired = hold.acquired(now);
        hold.caller.position.get_or_insert(1);
        let queued = (hold.caller.wait == Wait::Queue).then(|| hold.waiting());
        let event = hold.granted_event(now);
        if resource.kind == Kind::Master
            && let Some(session) = self.sessions.get_mut(&session)
        {
            session.upstream.role = tenure_wire::Role::Master;
        }
        self.record_grant(now, id);
        self.tell(session, || Event::Granted(event));
        if self.sessions.get(&session).is_some_and(|session| session.life.blocked > 0) {
            // From now on a call that waits is too little.
            self.tether_moved(now, session);
        }
        for ticket in self.take_tickets(now, id) {
            let reply = match &queued {
                // Whoever asked to be queued is told of the grant by its event.
                Some(waiting) => Reply::Waiting(waiting.clone()),
                None => Reply::Acquired(acquired.clone()),
            };
            self.out.answer(ticket, reply);
        }
        if waits {
            self.leave_queue(now, place, &resource);
        }
    }

    /// The answer came when the longest duration of the hold was over: asked again it would again.
    fn granted_too_late(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        // The upstream has it.
        hold.uncertain = true;
        let (resource, tries_once) = (hold.claim.resource.clone(), hold.caller.wait == Wait::None);
        self.refuse_waiting(now, id, &Refusal::GrantedTooLate { hold: id, resource });
        if tries_once {
            self.end_untold(now, id);
        } else {
            self.lose(now, id, LostReason::MaxHold);
        }
    }

    /// An exclusive resource has one holder: whoever holds it on this host by an earlier grant has
    /// lost it, though the upstream has not said so yet. `false` if this grant is the earlier one.
    fn supersedes(&mut self, now: Boottime, id: ClaimId, token: u64) -> bool {
        let Some(hold) = self.holds.get(&id).filter(|hold| hold.kind() != Kind::Semaphore) else {
            return true;
        };
        let occupant = self.holds.occupant(&hold.claim.resource);
        if let Some(other) = occupant.filter(|other| other.id() != id) {
            if other.token > token {
                self.ask_again(id);
                return false;
            }
            let preempted = hold.place().0 < other.place().0;
            let reason = if preempted { LostReason::Preempted } else { LostReason::Revoked };
            let other = other.id();
            self.lose(now, other, reason);
        }
        self.holds.occupy(id);
        true
    }

    /// A grant that promises nothing: what it is now is asked.
    fn ask_again(&mut self, id: ClaimId) {
        self.holds.change(id, Stage::Waiting);
        self.due_now(Renewed::Hold(id));
    }

    /// A claim asked to be queued, and is: its caller is told so at once.
    pub(super) fn answer_queued(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get(&id) else { return };
        if hold.caller.wait != Wait::Queue || hold.is_held() {
            return;
        }
        let waiting = hold.waiting();
        for ticket in self.take_tickets(now, id) {
            self.out.answer(ticket, Reply::Waiting(waiting.clone()));
        }
    }

    /// A waiting hold has that place now. It is told the first, and those near the front.
    pub(super) fn placed(&mut self, id: ClaimId, position: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if hold.caller.position == Some(position) || hold.is_held() {
            return;
        }
        let former = hold.caller.position.replace(position);
        if former.is_some() && position > PLACES_TOLD as u64 {
            return;
        }
        let (session, of) = (hold.session(), hold.event());
        self.tell(session, || Event::Queued(QueuedEvent { of, position }));
    }

    /// Refuses a caller as contended once the upstream has said who holds the resource.
    pub(super) fn refuse_naming_holder(
        &mut self,
        ticket: Ticket,
        session: SessionId,
        resource: Resource,
    ) {
        let request = model::Request::Inspect(resource.clone());
        self.ask(request, Call::Contended(ticket, session, resource));
    }

    /// The refusal of a session that asks for the exclusive resource of a hold of its own.
    pub(super) fn contended_by_itself(&self, now: Boottime, hold: &Hold) -> Refusal {
        let entry = hold.standing(now);
        Refusal::ContendedByItself {
            hold: hold.id(),
            resource: hold.claim.resource.clone(),
            holder: Box::new(self.holder_for(hold.session(), &entry)),
        }
    }

    pub(super) fn contended_answered(
        &mut self,
        ticket: Ticket,
        session: SessionId,
        resource: &Resource,
        result: Result<Answer, Failure>,
    ) {
        let first = if let Ok(Answer::Standing(it)) = &result { it.holders.first() } else { None };
        let holder = first.map(|entry| Box::new(self.holder_for(session, entry)));
        let resource = resource.clone();
        self.out.refuse(ticket, Refusal::Contended { resource, holder, limit_changed: None });
    }

    /// A holder as one of its rivals sees it: the hold too if both are of the same user.
    pub(super) fn holder_for(&self, rival: SessionId, entry: &StandingEntry) -> Holder {
        let uid = self.sessions.get(&rival).map(|session| session.saved.uid);
        self.holder(entry, |holder| uid == Some(holder))
    }

    /// A holder as people see it: its process if it is of this host, and the hold if they see its user's.
    pub(super) fn holder(&self, entry: &StandingEntry, sees: impl Fn(u32) -> bool) -> Holder {
        let local = self.sessions.get(&entry.owner.session);
        let program = local.map(|session| session.saved.program.clone()).unwrap_or_default();
        let text = |text: Option<Arc<str>>| text.as_deref().map(str::to_owned);
        let kept = self.pending.kept(entry.claim);
        Holder {
            host: entry.owner.host.to_string(),
            name: entry.owner.name.to_string(),
            since_ms: millis(entry.since),
            last_beat_ms: entry.unbeaten.map(millis),
            token: entry.token,
            pid: local.and_then(|session| session.pid()),
            uid: local.map(|session| session.saved.uid),
            user: text(program.user),
            command: text(program.command),
            hold: local.filter(|session| sees(session.saved.uid)).map(|_| entry.claim.0),
            kept_ms: kept.map(|it| millis(it.saturating_sub(entry.since))),
            ended_ms: None,
        }
    }

    /// Ends a hold that its client never heard of.
    fn end_untold(&mut self, now: Boottime, id: ClaimId) {
        self.end_released(now, id, ReleasedCause::Client);
    }
}

/// Why a holder lost what the upstream no longer has.
pub(super) fn lost_reason(reason: GoneReason) -> LostReason {
    match reason {
        GoneReason::Expired => LostReason::Expired,
        GoneReason::Preempted => LostReason::Preempted,
        GoneReason::Revoked => LostReason::Revoked,
        GoneReason::Unknown => LostReason::UpstreamReset,
        GoneReason::Released | GoneReason::Conflict => LostReason::Conflict,
    }
}
