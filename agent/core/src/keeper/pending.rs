//! Releases, and ends of sessions, that the upstream has not confirmed yet.

use std::sync::Arc;
use std::time::Duration;

use super::Keeper;
use super::calls::Call;
use super::hold::Hold;
use super::journal::Entry;
use super::map::{BoxMap, Map};
use super::outbox::Outbox;
use super::request::{Reply, Ticket};
use super::session::Session;
use super::tally::Tally;
use super::timers::{Alarm, Timer, Timers};
use crate::model::{self, Answer, ClaimId, Failure, SessionId};
use crate::time::Boottime;

/// A release is tried for this much longer than the upstream would keep the hold by itself. While it
/// cannot even be sent it is tried for ever: what was sent before, such as a claim without an answer,
/// may take effect when a server that stood still goes on.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends of sessions that are tried again; more are tried once, and end with their ttl upstream.
pub const PENDING_ENDS_MAX: usize = 16_384;
/// The same of one user.
const PENDING_ENDS_PER_UID_MAX: usize = 4096;
/// Retries in a second, however much there is to retry.
const RETRIES_PER_SECOND: u32 = 2000;

/// A hold that has ended for its client, but perhaps not upstream.
#[derive(Debug)]
pub(super) struct PendingRelease {
    pub(super) hold: Hold,
    /// Its user, whose holds it counts among until it is over.
    uid: Option<u32>,
    /// Callers to be told when it is done, or tried once.
    pub(super) tickets: Vec<Ticket>,
    calling: bool,
    /// It is kept from others until then, and is released no sooner.
    kept_until: Option<Boottime>,
    failures: u32,
    /// By then the upstream has let go by itself.
    give_up_at: Boottime,
    alarm: Alarm,
}

/// An announced session that has ended, but perhaps not upstream.
#[derive(Debug)]
struct PendingEnd {
    uid: u32,
    tenant: Arc<str>,
    project: Arc<str>,
    failures: u32,
    give_up_at: Boottime,
    alarm: Alarm,
}

/// Everything that has ended for its client, but perhaps not upstream.
#[derive(Debug, Default)]
pub(super) struct Pending {
    releases: BoxMap<ClaimId, PendingRelease>,
    ends: Map<SessionId, PendingEnd>,
    releases_by_uid: Tally,
    ends_by_uid: Tally,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.releases.is_empty()
            && self.ends.is_empty()
            && self.releases_by_uid.is_empty()
            && self.ends_by_uid.is_empty()
    }

    /// True if nothing is left but what is kept from others: that needs no agent.
    pub(super) fn is_only_kept(&self) -> bool {
        let is_kept = |it: &PendingRelease| it.kept_until.is_some() && !it.calling;
        self.ends.is_empty() && self.releases.values().all(|it| is_kept(it))
    }

    /// Until when a hold that has ended is kept from others.
    pub(super) fn kept_until(&self, id: ClaimId) -> Option<Boottime> {
        self.releases.get(&id)?.kept_until
    }

    /// How long in all a hold that has ended is kept from others.
    pub(super) fn kept(&self, id: ClaimId) -> Option<Duration> {
        let pending = self.releases.get(&id).filter(|it| it.kept_until.is_some())?;
        pending.hold.caller.at_least
    }

    pub(super) fn releases(&self) -> usize {
        self.releases.len()
    }

    pub(super) fn ends(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn releases_of(&self, uid: u32) -> usize {
        self.releases_by_uid.of(uid)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ClaimId> {
        self.releases.keys()
    }

    /// The hold of a release.
    pub(super) fn hold(&self, id: ClaimId) -> Option<&Hold> {
        self.releases.get(&id).map(|pending| &pending.hold)
    }

    /// Answers a caller when a release is done, or tried once; `false` if there is none to wait for.
    pub(super) fn answer_when_released(&mut self, id: ClaimId, ticket: Ticket) -> bool {
        let pending = self.releases.get_mut(&id);
        pending.map(|pending| pending.tickets.push(ticket)).is_some()
    }

    fn insert(&mut self, from: Boottime, uid: Option<u32>, hold: Hold) -> &mut PendingRelease {
        if let Some(uid) = uid {
            self.releases_by_uid.add(uid, 1);
        }
        let id = hold.id();
        let pending = PendingRelease {
            uid,
            tickets: Vec::new(),
            calling: false,
            kept_until: None,
            failures: 0,
            give_up_at: from + hold.claim.ttl * 2 + PATIENCE,
            alarm: Alarm::default(),
            hold,
        };
        self.releases.entry(id).insert_entry(Box::new(pending)).into_mut()
    }

    /// The request of a release, unless it is on its way.
    fn release_request(&mut self, id: ClaimId) -> Option<model::Request> {
        let pending = self.releases.get_mut(&id)?;
        let is_calling = std::mem::replace(&mut pending.calling, true);
        let resource = || pending.hold.claim.resource.clone();
        (!is_calling).then(|| model::Request::Release { claim: id, resource: resource() })
    }

    fn remove(&mut self, id: ClaimId, timers: &mut Timers) -> Option<Hold> {
        let mut pending = self.releases.remove(&id)?;
        if let Some(uid) = pending.uid {
            self.releases_by_uid.remove(uid, 1);
        }
        timers.set(&mut pending.alarm, Timer::Release(id), None);
        Some(pending.hold)
    }

    fn insert_end(&mut self, now: Boottime, session: &Session) {
        let uid = session.saved.uid;
        self.ends_by_uid.add(uid, 1);
        let end = PendingEnd {
            uid,
            tenant: Arc::clone(&session.saved.tenant),
            project: Arc::clone(&session.saved.project),
            failures: 0,
            give_up_at: now + session.saved.ttl * 2 + PATIENCE,
            alarm: Alarm::default(),
        };
        self.ends.insert(session.id(), end);
    }

    fn end_request(&self, id: SessionId) -> Option<model::Request> {
        let end = self.ends.get(&id)?;
        Some(model::Request::EndSession {
            session: id,
            tenant: Arc::clone(&end.tenant),
            project: Arc::clone(&end.project),
        })
    }

    /// How often an end has failed now, if it is to be tried again; it is forgotten otherwise.
    fn end_failures(
        &mut self,
        now: Boottime,
        id: SessionId,
        result: &Result<Answer, Failure>,
    ) -> Option<u32> {
        let waiting = self.ends.len();
        let end = self.ends.get_mut(&id)?;
        let uid = end.uid;
        let too_many =
            self.ends_by_uid.of(uid) > PENDING_ENDS_PER_UID_MAX || waiting > PENDING_ENDS_MAX;
        if too_many || !is_tried_again(now, end.give_up_at, result) {
            self.ends.remove(&id);
            self.ends_by_uid.remove(uid, 1);
            return None;
        }
        end.failures += 1;
        Some(end.failures)
    }
}

impl Keeper {
    /// Releases an ended hold upstream, if the upstream may know of it.
    pub(super) fn begin_release(&mut self, now: Boottime, hold: Hold) {
        if let Some(until) = hold.kept_until(now) {
            return self.keep(until, hold);
        }
        if !hold.known_upstream() {
            if hold.known_to_journal() {
                forget_row(&mut self.out, &hold);
            }
            return;
        }
        if hold.known_to_journal() {
            // Its client is told of the end in this turn: an agent that starts again before the
            // upstream has confirmed must not take the hold up.
            save_departing(&mut self.out, &hold);
        }
        self.resume_release(now, hold);
    }

    /// The same of a hold whose guarded work may go on: that stops at its valid-until at the latest.
    pub(super) fn begin_release_of_lost(&mut self, now: Boottime, hold: Hold) {
        match hold.kept_until(now) {
            Some(until) if self.works_on(&hold) => self.keep(until.max(hold.valid_until), hold),
            _ => self.begin_release(now, hold),
        }
    }

    /// Releases an ended hold when it has been kept from others for as long as it was asked for.
    fn keep(&mut self, until: Boottime, hold: Hold) {
        let id = hold.id();
        let uid = self.sessions.get(&hold.session()).map(|session| session.saved.uid);
        save_departing(&mut self.out, &hold);
        let pending = self.pending.insert(until, uid, hold);
        pending.kept_until = Some(until);
        self.timers.set(&mut pending.alarm, Timer::Release(id), Some(until));
    }

    /// Goes on releasing a hold that is marked in the journal already.
    pub(super) fn resume_release(&mut self, now: Boottime, hold: Hold) {
        let id = hold.id();
        let uid = self.sessions.get(&hold.session()).map(|session| session.saved.uid);
        self.pending.insert(now, uid, hold);
        self.send_release(id);
    }

    /// Releases an ended hold when its session ends or its valid-until has passed.
    pub(super) fn delay_release(&mut self, hold: Hold) {
        let (id, valid_until) = (hold.id(), hold.valid_until);
        let mut uid = None;
        if let Some(session) = self.sessions.get_mut(&hold.session()) {
            session.kept.insert(id);
            uid = Some(session.saved.uid);
        }
        save_departing(&mut self.out, &hold);
        let pending = self.pending.insert(valid_until, uid, hold);
        self.timers.set(&mut pending.alarm, Timer::Release(id), Some(valid_until));
    }

    /// The reason to wait is gone.
    pub(super) fn release_now(&mut self, id: ClaimId) {
        let Some(pending) = self.pending.releases.get_mut(&id) else { return };
        self.timers.set(&mut pending.alarm, Timer::Release(id), None);
        self.send_release(id);
    }

    fn send_release(&mut self, id: ClaimId) {
        if let Some(request) = self.pending.release_request(id) {
            self.calls.ask(&mut self.out, request, Call::Release(id));
        }
    }

    pub(super) fn release_fired(&mut self, now: Boottime, id: ClaimId) {
        let Some(pending) = self.pending.releases.get_mut(&id) else { return };
        if self.timers.fired(&mut pending.alarm, Timer::Release(id), now) {
            pending.kept_until = None;
            if let Some(session) = self.sessions.get_mut(&pending.hold.session()) {
                session.kept.remove(&id);
            }
            self.send_release(id);
        }
    }

    pub(super) fn release_answered(
        &mut self,
        now: Boottime,
        id: ClaimId,
        result: &Result<Answer, Failure>,
    ) {
        let all = self.pending.releases();
        let Some(pending) = self.pending.releases.get_mut(&id) else { return };
        pending.calling = false;
        for ticket in std::mem::take(&mut pending.tickets) {
            self.out.answer(ticket, Reply::RELEASED);
        }
        if is_tried_again(now, pending.give_up_at, result) {
            pending.failures += 1;
            let wait = self.settings.back_off(pending.failures) + pace(all);
            self.timers.set(&mut pending.alarm, Timer::Release(id), Some(now + wait));
            return;
        }
        let Some(hold) = self.pending.remove(id, &mut self.timers) else { return };
        if hold.known_to_journal() {
            forget_row(&mut self.out, &hold);
        }
        self.try_first(now, &hold.claim.resource);
    }

    /// Ends an announced session upstream, if the upstream may know of it.
    pub(super) fn begin_end(&mut self, now: Boottime, session: &Session) {
        if session.upstream.known || session.upstream.beating.is_some() {
            self.pending.insert_end(now, session);
            self.send_end(session.id());
        }
    }

    fn send_end(&mut self, id: SessionId) {
        if let Some(request) = self.pending.end_request(id) {
            self.calls.ask(&mut self.out, request, Call::EndSession(id));
        }
    }

    pub(super) fn end_fired(&mut self, now: Boottime, id: SessionId) {
        let Some(end) = self.pending.ends.get_mut(&id) else { return };
        if self.timers.fired(&mut end.alarm, Timer::SessionEnd(id), now) {
            self.send_end(id);
        }
    }

    pub(super) fn end_answered(
        &mut self,
        now: Boottime,
        id: SessionId,
        result: &Result<Answer, Failure>,
    ) {
        let Some(failures) = self.pending.end_failures(now, id, result) else { return };
        let wait = self.settings.back_off(failures) + pace(self.pending.ends());
        if let Some(end) = self.pending.ends.get_mut(&id) {
            self.timers.set(&mut end.alarm, Timer::SessionEnd(id), Some(now + wait));
        }
    }
}

fn forget_row(out: &mut Outbox, hold: &Hold) {
    out.persist(Entry::HoldEnded { row: hold.row, hold: hold.id() });
}

fn save_departing(out: &mut Outbox, hold: &Hold) {
    let mut saved = hold.saved();
    saved.departing = true;
    out.persist(Entry::Hold(Box::new(saved)));
}

/// True if an end or a release with that answer must be sent again.
fn is_tried_again(now: Boottime, give_up_at: Boottime, result: &Result<Answer, Failure>) -> bool {
    match result {
        Ok(_) => false,
        Err(Failure::Unavailable(_)) => true,
        // A key that is good again, or a call that is in time, is let through.
        Err(Failure::Denied(denial)) if !denial.rule.is_final() => true,
        Err(Failure::Denied(_) | Failure::Unknown(_)) => now < give_up_at,
    }
}

/// How much longer each of so many waits, so that all of them together are paced.
fn pace(waiting: usize) -> Duration {
    Duration::from_secs(1) / RETRIES_PER_SECOND * u32::try_from(waiting).unwrap_or(u32::MAX)
}
