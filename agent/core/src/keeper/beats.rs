//! Renewals: when they are due, and the meaning of their answers.

use std::time::Duration;

use tenure_wire::{Event, JeopardyEvent, LostReason, Role};

use super::Keeper;
use super::calls::{Call, Renewed};
use super::claims::lost_reason;
use super::command::Note;
use super::hold::{Doubt, Hold, Stage, millis};
use super::journal::Entry;
use super::timers::Timer;
use crate::model::{
    self, Answer, Beat, BeatAnswer, CallId, ClaimId, Denial, Failure, GoneReason, SessionId,
    SessionRecord, Subject,
};
use crate::time::Boottime;

/// Beats of waiters meet at so many instants within one step of the grid: the upstream does several times as
/// much for one as for a holder's, and would keep everybody else waiting for all of them …
const INSTANTS: u64 = 8;
/// … but no two instants are nearer to each other.
const INSTANTS_APART_MS: u64 = 32;

/// Most characters of a failed renewal's cause in the words of a loss: a change has 1024 bytes for them.
const CAUSE_MAX: usize = 200;

/// When to beat next. Beats of one rhythm meet on a grid of at most an eighth of it, so that thousands
/// of holds share a few full calls; never later than asked.
pub(super) fn next_beat(now: Boottime, every: Duration, phase_ms: u64) -> Boottime {
    on_grid(now, every, grid_ms(every), phase_ms)
}

/// When to beat a hold next that is held or waits.
pub(super) fn next_beat_of(now: Boottime, hold: &Hold, phase_ms: u64) -> Boottime {
    let grid_ms = grid_ms(hold.beats.every);
    let instants =
        if hold.is_held() { 1 } else { (grid_ms / INSTANTS_APART_MS).clamp(1, INSTANTS) };
    let instant = hold.id().0.as_u64_pair().1 % instants;
    on_grid(now, hold.beats.every, grid_ms, phase_ms + instant * (grid_ms / instants))
}

fn grid_ms(every: Duration) -> u64 {
    1 << (millis(every).max(1) / 8).max(1).ilog2()
}

/// The last instant of a grid that is not later than asked.
pub(super) fn on_grid(now: Boottime, every: Duration, grid_ms: u64, phase_ms: u64) -> Boottime {
    let (grid, offset) = (grid_ms * 1_000_000, phase_ms % grid_ms * 1_000_000);
    let due = (now + every).as_nanos().saturating_sub(offset) / grid * grid + offset;
    Boottime::from_nanos(due.max(now.as_nanos() + 1))
}

impl Keeper {
    pub(super) fn beat_fired(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let due = hold.beats.next.due();
        if !self.timers.fired(&mut hold.beats.next, Timer::Beat(id), now) {
            return;
        }
        match hold.stage {
            Stage::Waiting | Stage::Held | Stage::Jeopardy => {
                let late = due.map_or(Duration::ZERO, |due| now.since(due));
                self.out.note(Note::Beat { late });
                self.due_now(Renewed::Hold(id));
            }
            // A claim that failed is sent again.
            Stage::Queued => self.claim_in_turn(now, id),
            Stage::Claiming(_) => {}
        }
    }

    pub(super) fn session_beat_fired(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if self.timers.fired(&mut session.upstream.beat, Timer::SessionBeat(id), now) {
            if session.upstream.failures > 0 && session.upstream.role == Role::None {
                self.announce(now, id);
            } else {
                self.due_now(Renewed::Session(id));
            }
        }
    }

    /// Puts a renewal into the next batch, or asks once more after the one that is on its way.
    pub(super) fn due_now(&mut self, item: Renewed) {
        match item {
            Renewed::Hold(id) => {
                let Some(hold) = self.holds.get_mut(&id) else { return };
                if hold.beats.beating.is_some() || matches!(hold.stage, Stage::Claiming(_)) {
                    hold.beats.again = true;
                    return;
                }
                if hold.stage == Stage::Queued {
                    return;
                }
                let session = hold.session();
                if self.sessions.get(&session).is_some_and(|session| session.life.running_out) {
                    return;
                }
            }
            Renewed::Session(id) => {
                let Some(session) = self.sessions.get(&id) else { return };
                if session.upstream.beating.is_some() {
                    return;
                }
            }
        }
        self.calls.renew(item);
    }

    /// Sends the renewals that are due, as few calls as may be.
    pub(super) fn flush_beats(&mut self) {
        loop {
            let items = self.calls.take_due();
            if items.is_empty() {
                return;
            }
            self.send_beats(items);
        }
    }

    pub(super) fn send_beats(&mut self, mut items: Vec<Renewed>) {
        let mut beats = Vec::with_capacity(items.len());
        let call = self.calls.next();
        items.retain(|item| match item {
            Renewed::Hold(id) => {
                let Some(hold) = self.holds.get_mut(id) else { return false };
                // It may have been claimed anew since it came due: an answer to this beat could then
                // be older than the grant, and would take it for gone.
                let claims = matches!(hold.stage, Stage::Queued | Stage::Claiming(_));
                if hold.beats.beating.is_some() || claims {
                    return false;
                }
                hold.beats.beating = Some(call);
                hold.beats.again = false;
                beats.push(Beat {
                    subject: Subject::Claim { claim: *id, resource: hold.claim.resource.clone() },
                    ttl: hold.ttl_upstream(),
                });
                true
            }
            Renewed::Session(id) => {
                let Some(session) = self.sessions.get_mut(id) else { return false };
                if session.upstream.beating.is_some() {
                    return false;
                }
                session.upstream.beating = Some(call);
                let subject = Subject::Session { session: *id, master: session.master() };
                beats.push(Beat { subject, ttl: session.saved.ttl });
                true
            }
        });
        if !items.is_empty() {
            self.ask(model::Request::Renew(beats), Call::Renew(items));
        }
    }

    pub(super) fn renew_answered(
        &mut self,
        now: Boottime,
        call: CallId,
        items: Vec<Renewed>,
        sent_at: Boottime,
        result: Result<Answer, Failure>,
    ) {
        let answers = match result {
            Ok(Answer::Renew(answers)) if answers.len() == items.len() => answers,
            Ok(other) => {
                let cause = format!("unexpected answer to a renewal: {other:?}");
                return self.renewals_failed(now, call, &items, &Failure::Unknown(cause));
            }
            Err(failure) => {
                self.renewals_failed(now, call, &items, &failure);
                return self.doubt(now, &items);
            }
        };
        for (item, answer) in items.into_iter().zip(answers) {
            if let BeatAnswer::Failed(cause) = answer {
                self.renewals_failed(now, call, &[item], &Failure::Unknown(cause));
                continue;
            }
            match item {
                Renewed::Hold(id) => {
                    let Some(hold) = self.holds.get_mut(&id) else { continue };
                    if hold.beats.beaten_before.take_if(|before| *before == call).is_some() {
                        match answer {
                            BeatAnswer::Gone(reason) if hold.is_held() => {
                                self.lose(now, id, lost_reason(reason));
                            }
                            BeatAnswer::Revoked(words) if hold.is_held() => {
                                self.revoked(now, id, Some(&words), false);
                            }
                            _ => {}
                        }
                        continue;
                    }
                    if hold.beats.beating != Some(call) {
                        continue;
                    }
                    hold.beats.beating = None;
                    hold.beats.failures = 0;
                    self.hold_renewed(now, id, sent_at, answer);
                }
                Renewed::Session(id) => self.session_renewed(now, call, id, &answer),
            }
        }
    }

    fn hold_renewed(&mut self, now: Boottime, id: ClaimId, sent_at: Boottime, answer: BeatAnswer) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if hold.is_held() && hold.valid_until <= now {
            // Its page said so already: there is no way back, and the upstream may have renewed it.
            return self.lose_as(now, id, LostReason::Expired, true);
        }
        match (answer, hold.is_held()) {
            (BeatAnswer::Held { token, limit }, true) if token == hold.token => {
                hold.limit = limit;
                self.still_held(now, id, sent_at);
            }
            (BeatAnswer::Held { token, limit }, false) => {
                self.granted(now, id, sent_at, token, limit);
            }
            (BeatAnswer::Waiting { position, limit }, false) => {
                hold.limit = limit;
                hold.beats.kept_until = sent_at + hold.ttl_upstream();
                let again = std::mem::take(&mut hold.beats.again);
                let due = if again { now } else { next_beat_of(now, hold, self.agent.phase_ms) };
                let is_asked = !hold.caller.tickets.is_empty();
                self.timers.set(&mut hold.beats.next, Timer::Beat(id), Some(due));
                let (place, resource) = (hold.place(), hold.claim.resource.clone());
                self.settled(now, place, &resource);
                self.placed(id, position);
                if is_asked {
                    self.answer_queued(now, id);
                }
            }
            (BeatAnswer::Gone(reason @ (GoneReason::Unknown | GoneReason::Expired)), false) => {
                self.queue_again(now, id, reason == GoneReason::Unknown);
            }
            (BeatAnswer::Gone(reason), _) => self.lose(now, id, lost_reason(reason)),
            (BeatAnswer::Revoked(words), _) => self.revoked(now, id, Some(&words), false),
            // A failure is met before.
            (BeatAnswer::Failed(_), _) => {}
            (
                BeatAnswer::Held { .. } | BeatAnswer::Waiting { .. } | BeatAnswer::Session { .. },
                _,
            ) => {
                self.lose(now, id, LostReason::Conflict);
            }
        }
    }

    fn still_held(&mut self, now: Boottime, id: ClaimId, sent_at: Boottime) {
        let was_in_jeopardy = self.holds.get(&id).is_some_and(|it| it.stage == Stage::Jeopardy);
        let Some(hold) = self.holds.change(id, Stage::Held) else { return };
        hold.beats.doubt = None;
        let next = next_beat_of(now, hold, self.agent.phase_ms);
        let valid_until = hold.valid_until_if_sent_at(sent_at).max(hold.valid_until);
        let again = std::mem::take(&mut hold.beats.again);
        let due = if again { now } else { next };
        self.timers.set(&mut hold.beats.next, Timer::Beat(id), Some(due));
        if valid_until == hold.valid_until && !was_in_jeopardy {
            return;
        }
        hold.valid_until = valid_until;
        self.timers.set(&mut hold.deadline, Timer::Deadline(id), Some(valid_until));
        self.out.persist(Entry::Valid { row: hold.row, valid_until });
        self.out.show(hold);
        if was_in_jeopardy {
            let (session, event) = (hold.session(), hold.granted_event(now));
            let resource = hold.claim.resource.clone();
            let token = hold.token;
            self.out.note(Note::Safe { hold: id, session, resource, token });
            self.tell(session, || Event::Safe(event));
        }
    }

    fn renewals_failed(
        &mut self,
        now: Boottime,
        call: CallId,
        items: &[Renewed],
        failure: &Failure,
    ) {
        for item in items {
            match item {
                Renewed::Hold(id) => self.renewal_failed(now, call, *id, failure.cause()),
                Renewed::Session(id) => {
                    let Some(session) = self.sessions.get_mut(id) else { continue };
                    if session.upstream.beating == Some(call) {
                        session.upstream.beating = None;
                        session.upstream.failures += 1;
                        session.upstream.denied = denial(failure);
                        let failures = session.upstream.failures;
                        self.beat_session_later(now, *id, failures);
                    }
                }
            }
        }
    }

    /// Unknown is not lost: the hold stays valid until its valid-until, and is tried again.
    fn renewal_failed(&mut self, now: Boottime, call: CallId, id: ClaimId, cause: &str) {
        let retry_min = self.settings.retry_min;
        let retry_max = self.settings.retry_max;
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if hold.beats.beating != Some(call) {
            return;
        }
        hold.beats.beating = None;
        hold.beats.failures += 1;
        // Several tries fit into what is left, however short the ttl.
        let longest = retry_max.min(hold.beats.every / 2).max(retry_min);
        let wait = retry_min.saturating_mul(1 << hold.beats.failures.min(16)).min(longest);
        self.timers.set(&mut hold.beats.next, Timer::Beat(id), Some(now + wait));
        if hold.is_held() {
            let since = hold.beats.doubt.take().map_or(now, |doubt| doubt.since);
            let cause = cause.chars().take(CAUSE_MAX).collect::<String>().into();
            hold.beats.doubt = Some(Box::new(Doubt { since, cause }));
        }
        if hold.stage != Stage::Held {
            return self.answer_queued(now, id);
        }
        let Some(hold) = self.holds.change(id, Stage::Jeopardy) else { return };
        let (session, token) = (hold.session(), hold.token);
        let event = JeopardyEvent {
            of: hold.event(),
            token,
            cause: cause.to_owned(),
            valid_ms: millis(hold.valid_until.since(now)),
        };
        self.out.show(hold);
        let resource = hold.claim.resource.clone();
        self.out.note(Note::Jeopardy { hold: id, session, resource, token, cause: cause.into() });
        self.tell(session, || Event::Jeopardy(event));
    }

    fn session_renewed(&mut self, now: Boottime, call: CallId, id: SessionId, answer: &BeatAnswer) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.upstream.beating != Some(call) {
            return;
        }
        session.upstream.beating = None;
        match answer {
            BeatAnswer::Session { role } => {
                session.upstream.role = *role;
                session.upstream.failures = 0;
                session.upstream.denied = None;
                self.beat_session_later(now, id, 0);
            }
            // The upstream forgot it: it is announced again.
            _ => self.announce(now, id),
        }
    }

    /// Announces a session in its project.
    pub(super) fn announce(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let record = SessionRecord {
            owner: session.owner.clone(),
            tenant: std::sync::Arc::clone(&session.saved.tenant),
            project: std::sync::Arc::clone(&session.saved.project),
            surface: std::sync::Arc::clone(&session.saved.surface),
            ttl: session.saved.ttl,
            registered_at: None,
        };
        let master = session.master();
        let call = self.ask(model::Request::Announce(record), Call::Announce(id));
        if let Some(session) = self.sessions.get_mut(&id) {
            session.upstream.beating = Some(call);
        }
        self.watch_session(now, &master, id);
    }

    pub(super) fn announce_answered(
        &mut self,
        now: Boottime,
        id: SessionId,
        result: Result<Answer, Failure>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.upstream.beating = None;
        session.upstream.known |= result.as_ref().err().is_none_or(Failure::is_uncertain);
        match result {
            Ok(_) => {
                session.upstream.failures = 0;
                session.upstream.denied = None;
                self.beat_session_later(now, id, 0);
            }
            Err(failure) => {
                session.upstream.failures += 1;
                session.upstream.denied = denial(&failure);
                let failures = session.upstream.failures;
                self.beat_session_later(now, id, failures);
            }
        }
    }

    fn beat_session_later(&mut self, now: Boottime, id: SessionId, failures: u32) {
        let back_off = self.settings.back_off(failures);
        let Some(session) = self.sessions.get(&id) else { return };
        let due = match failures {
            0 => next_beat(now, self.session_beat(session.saved.ttl), self.agent.phase_ms),
            _ => now + back_off,
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            self.timers.set(&mut session.upstream.beat, Timer::SessionBeat(id), Some(due));
        }
    }
}

fn denial(failure: &Failure) -> Option<Denial> {
    match failure {
        Failure::Denied(denial) => Some(denial.clone()),
        Failure::Unavailable(_) | Failure::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_of_one_rhythm_meet_on_a_grid_and_are_never_late() {
        let every = Duration::from_secs(10);
        let mut all = std::collections::BTreeSet::new();
        for phase_ms in [0, 7, 500, 1_048_575] {
            let mut met = std::collections::BTreeSet::new();
            for ms in 0..10_000u64 {
                let now = Boottime::from_nanos(7_000_000_000 + ms * 1_000_000);
                let due = next_beat(now, every, phase_ms);
                assert!(due > now && due <= now + every);
                assert!(now + every - due < every / 8, "not much earlier than asked");
                met.insert(due);
            }
            assert!(met.len() <= 11, "10 000 holds share {} instants", met.len());
            assert!(met.is_disjoint(&all), "agents whose clocks are the same beat apart");
            all.append(&mut met);
        }
    }

    #[test]
    fn the_shortest_beat_is_still_in_the_future() {
        let now = Boottime::from_nanos(123_456_789);
        assert!(next_beat(now, Duration::from_millis(1), 999) > now);
        assert!(next_beat(now, Duration::from_millis(100), 999) > now + Duration::from_millis(90));
    }
}
