//! Clients ask for holds and give them back.

use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{Acquire, Kind, Release, Released, ReleasedCause, Stopped, Wait};

use super::Keeper;
use super::calls::Renewed;
use super::command::Note;
use super::hold::{Beats, Caller, Hold, Stage, millis};
use super::refusal::{Limit, Refusal};
use super::request::{Reply, Ticket};
use super::timers::{Alarm, Timer};
use crate::model::{Claim, ClaimId, Full, Peer, Resource, SessionId, Terms, defaults};
use crate::time::Boottime;

impl Keeper {
    pub(super) fn acquire(&mut self, now: Boottime, ticket: Ticket, peer: Peer, acquire: Acquire) {
        if let Err(refusal) = self.try_acquire(now, ticket, peer, acquire) {
            self.out.refuse(ticket, refusal);
        }
    }

    fn try_acquire(
        &mut self,
        now: Boottime,
        ticket: Ticket,
        peer: Peer,
        acquire: Acquire,
    ) -> Result<(), Refusal> {
        let id = self.session_of(peer, acquire.session)?;
        self.alive(now, id);
        if let Some(request) = &acquire.request
            && let Some(hold) = self.sessions.get(&id).and_then(|s| s.requests.get(&**request))
        {
            return self.acquire_again(now, ticket, id, *hold, &acquire);
        }
        let unknown = || Refusal::SessionUnknown { session: id.0, uid: peer.uid };
        let resource = self.resource_of(id, &acquire).ok_or_else(unknown)?;
        if !acquire.behind_own || acquire.wait == Wait::None {
            self.check_not_own(now, id, &resource)?;
        }
        if acquire.wait == Wait::None
            && let Some(barred) = self.barred(now, id, &resource)
        {
            return Err(barred);
        }
        self.check_recorded()?;
        self.check_hold_quota(peer, id)?;
        let hold = self.new_hold(now, id, resource, &acquire).ok_or_else(unknown)?;
        let waits = hold.caller.wait != Wait::None;
        let (claim, kind) = (hold.id(), hold.kind());
        if waits {
            self.out.save(&hold);
        }
        self.holds.insert(self.sessions.user_of(id), hold);
        if kind == Kind::Master {
            self.make_announced(now, id);
        }
        self.await_hold(now, ticket, claim);
        self.seek(now, claim);
        Ok(())
    }

    fn check_hold_quota(&mut self, peer: Peer, id: SessionId) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&id) else { return Ok(()) };
        let (own, own_max) = (session.slots.count(), session.saved.holds);
        let uid = session.saved.uid;
        // Holds that the upstream has not let go of yet count as well.
        let of_user = self.holds.count_of(uid) + self.pending.releases_of(uid);
        let (name, limit) = if let Some(max) = peer.quota.holds_max.filter(|max| of_user >= *max) {
            ("allow_holds", Limit::HoldsByRule { uid, has: of_user, max })
        } else if own >= own_max {
            ("holds_per_session", Limit::Page { session: id, slots: own_max as usize })
        } else {
            // The rules for a user take the place of the share of one user.
            let share = self.settings.holds();
            let of_user = if peer.quota.holds_max.is_some() { 0 } else { of_user };
            let all = self.holds.len() + self.pending.releases();
            let Err(full) = share.check(all, of_user, self.sees_all(peer)) else { return Ok(()) };
            let name = match full {
                Full::User(_) => "holds_per_uid",
                Full::All(_) => "holds",
            };
            (name, Limit::Holds { uid, full })
        };
        self.out.note(Note::Refused { limit: name, uid: peer.uid });
        Err(Refusal::Limit(limit))
    }

    fn resource_of(&self, id: SessionId, acquire: &Acquire) -> Option<Resource> {
        let session = self.sessions.get(&id)?;
        let name = match &acquire.name {
            Some(name) => Arc::from(name.as_str()),
            None => Arc::clone(&session.saved.project),
        };
        Some(Resource { tenant: Arc::clone(&session.saved.tenant), kind: acquire.kind, name })
    }

    /// Exclusive kinds are not re-entrant: a program that waited for what it has would wait for itself.
    fn check_not_own(
        &self,
        now: Boottime,
        id: SessionId,
        resource: &Resource,
    ) -> Result<(), Refusal> {
        match self.holds.occupant(resource).filter(|hold| hold.session() == id && hold.is_held()) {
            Some(hold) => Err(self.contended_by_itself(now, hold)),
            None => Ok(()),
        }
    }

    fn new_hold(
        &mut self,
        now: Boottime,
        id: SessionId,
        resource: Resource,
        acquire: &Acquire,
    ) -> Option<Hold> {
        let claim_id = ClaimId(self.new_uuid());
        let session = self.sessions.get_mut(&id)?;
        let slot = session.slots.take()?;
        let kind = acquire.kind;
        let request: Option<Arc<str>> = acquire.request.as_deref().map(Arc::from);
        if let Some(request) = &request {
            session.requests.insert(Arc::clone(request), claim_id);
        }
        session.holds.insert(claim_id);
        let ttl = acquire.ttl_ms.map_or(self.settings.rhythm(kind).ttl, Duration::from_millis);
        let terms = match kind {
            Kind::Leader => Terms::Leader,
            Kind::Master => {
                let default = defaults::priority(&session.saved.surface);
                Terms::Master { priority: acquire.priority.unwrap_or(default) }
            }
            Kind::Semaphore => Terms::Semaphore {
                limit: acquire.limit.unwrap_or(1),
                keeps: acquire.limit.is_none(),
                only_own: false,
            },
            Kind::Lease => Terms::Lease {
                grace: acquire.grace_ms.map_or(self.settings.grace, Duration::from_millis),
                attributes: acquire.attributes.clone().unwrap_or_default(),
                take_over: None,
            },
        };
        let claim = Claim {
            id: claim_id,
            resource,
            owner: session.owner.clone(),
            ttl,
            terms,
            enqueue: acquire.wait != Wait::None,
        };
        let row = self.holds.new_row();
        let mut hold = self.hold_of(claim, row, slot, acquire.wait);
        hold.caller.request = request;
        hold.caller.asked_at = now;
        hold.caller.max_hold = acquire.max_hold_ms.map(Duration::from_millis);
        hold.caller.at_least = acquire.hold_at_least_ms.map(Duration::from_millis);
        if acquire.wait != Wait::None
            && let Some(timeout) = acquire.timeout_ms
        {
            let due = Some(now + Duration::from_millis(timeout));
            self.timers.set(&mut hold.caller.patience, Timer::Patience(claim_id), due);
        }
        Some(hold)
    }

    /// A hold that nothing has happened to yet.
    pub(super) fn hold_of(&self, claim: Claim, row: u64, slot: u32, wait: Wait) -> Hold {
        Hold {
            caller: Caller { wait, ..Caller::default() },
            beats: Beats {
                every: self.hold_beat(claim.resource.kind, claim.ttl),
                margin: self.settings.margin(claim.ttl),
                beating: None,
                beaten_before: None,
                again: false,
                kept_until: Boottime::ZERO,
                failures: 0,
                doubt: None,
                next: Alarm::default(),
            },
            claim,
            row,
            slot,
            stage: Stage::Queued,
            token: 0,
            limit: None,
            granted_at: Boottime::ZERO,
            valid_until: Boottime::ZERO,
            uncertain: false,
            deadline: Alarm::default(),
        }
    }

    /// The same request id again: the same hold, whatever has become of it.
    fn acquire_again(
        &mut self,
        now: Boottime,
        ticket: Ticket,
        session: SessionId,
        id: ClaimId,
        acquire: &Acquire,
    ) -> Result<(), Refusal> {
        let Some(hold) = self.holds.get_mut(&id) else {
            return Err(self.ended.hold(session, id).unwrap_or(Refusal::HoldForgotten(id)));
        };
        let same_name =
            acquire.name.as_deref().is_none_or(|name| *name == *hold.claim.resource.name);
        if hold.kind() != acquire.kind || !same_name {
            let request = acquire.request.clone().unwrap_or_default();
            return Err(Refusal::RequestReused { request, resource: hold.claim.resource.clone() });
        }
        if hold.is_held() {
            hold.caller.told = hold.caller.told.saturating_add(1);
            let acquired = hold.acquired(now);
            if hold.caller.patience.due().is_some() {
                // It was granted while nobody waited, and now somebody has it.
                self.timers.set(&mut hold.caller.patience, Timer::Patience(id), None);
                self.out.save(hold);
            }
            self.out.answer(ticket, Reply::Acquired(acquired));
        } else if acquire.wait == Wait::None && hold.caller.wait != Wait::None {
            // Whoever tries once is told who has it; the wait goes on for whoever began it.
            let resource = hold.claim.resource.clone();
            self.refuse_naming_holder(ticket, session, resource);
        } else if hold.caller.wait == Wait::Queue {
            self.await_hold(now, ticket, id);
            self.answer_placed(now, id);
        } else {
            // A wait that a restart orphaned has its caller back: its patience is the caller's. One that
            // has a caller already is joined as it is.
            if hold.caller.tickets.is_empty() {
                let due = acquire.timeout_ms.map(|timeout| now + Duration::from_millis(timeout));
                self.timers.set(&mut hold.caller.patience, Timer::Patience(id), due);
            }
            self.await_hold(now, ticket, id);
        }
        Ok(())
    }

    /// Answers callers of a wait that goes on. Its place comes with the answer to its claim or, once that
    /// has come, to a beat.
    fn answer_placed(&mut self, now: Boottime, id: ClaimId) {
        self.due_now(Renewed::Hold(id));
        let Some(hold) = self.holds.get(&id) else { return };
        let session = self.sessions.get(&hold.session());
        let is_beaten = session.is_some_and(|session| !session.life.running_out);
        if hold.stage == Stage::Queued || hold.stage == Stage::Waiting && !is_beaten {
            self.answer_queued(now, id);
        }
    }

    /// Notes that a caller waits for a hold.
    fn await_hold(&mut self, now: Boottime, ticket: Ticket, id: ClaimId) {
        let Some(session) = self.holds.get(&id).map(Hold::session) else { return };
        self.holds.add_caller(ticket, id);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.life.blocked += 1;
        }
        self.tether_moved(now, session);
    }

    /// Takes the callers that wait for a hold, to be answered.
    pub(super) fn take_tickets(&mut self, now: Boottime, id: ClaimId) -> Vec<Ticket> {
        let Some(session) = self.holds.get(&id).map(Hold::session) else { return Vec::new() };
        let tickets = self.holds.take_callers(id);
        if !tickets.is_empty() {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.life.blocked = session.life.blocked.saturating_sub(tickets.len() as u32);
            }
            self.tether_moved(now, session);
        }
        tickets
    }

    /// Refuses the callers that wait for a hold.
    pub(super) fn refuse_waiting(&mut self, now: Boottime, id: ClaimId, refusal: &Refusal) {
        for ticket in self.take_tickets(now, id) {
            self.out.refuse(ticket, refusal.clone());
        }
    }

    /// The caller of a request went away. If nobody else waits for the hold it asked for, the wait
    /// is cancelled; a grant that is on its way is given back.
    pub fn handle_cancel(&mut self, now: Boottime, ticket: Ticket) {
        let Some(hold) = self.holds.remove_caller(ticket) else { return };
        let id = hold.id();
        let abandoned =
            hold.caller.tickets.is_empty() && hold.caller.wait != Wait::Queue && !hold.is_held();
        let session = hold.session();
        if let Some(session) = self.sessions.get_mut(&session) {
            session.life.blocked = session.life.blocked.saturating_sub(1);
        }
        self.tether_moved(now, session);
        if abandoned {
            self.end_released(now, id, ReleasedCause::Client);
        }
        self.flush_beats();
    }

    /// A caller that was answered with a grant has gone without reading it. If nobody else was
    /// answered, nobody knows of the hold: it is released, and its request id is as good as new.
    pub fn handle_undelivered(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.caller.told = hold.caller.told.saturating_sub(1);
        // Whoever asked to be queued has heard of the grant by an event.
        if hold.caller.told > 0 || hold.caller.wait == Wait::Queue {
            return;
        }
        hold.caller.at_least = None;
        let (session, request) = (hold.session(), hold.caller.request.take());
        if let (Some(session), Some(request)) = (self.sessions.get_mut(&session), request) {
            session.requests.remove(&request);
        }
        self.end_released(now, id, ReleasedCause::Client);
        self.flush_beats();
    }

    /// `POST /v1/release`.
    pub(super) fn release(&mut self, now: Boottime, ticket: Ticket, peer: Peer, release: Release) {
        let id = match self.session_of(peer, release.session) {
            Ok(id) => id,
            Err(refusal) => return self.out.refuse(ticket, refusal),
        };
        let Some(hold) = release.hold else {
            let why = match (release.stopped, release.exit_status) {
                (Some(Stopped::NotRenewed), _) => {
                    "its command was stopped, as the hold was not renewed"
                }
                (Some(Stopped::MaxHold), _) => "its command was stopped, as --max-hold was over",
                (None, Some(_)) => "its command ended",
                (None, None) => "it was released",
            };
            self.end_session(now, id, why, release.exit_status);
            return self.answer_when_ended(id, ticket);
        };
        self.alive(now, id);
        let claim = ClaimId(hold);
        let own = self.holds.get(&claim).is_some_and(|hold| hold.session() == id);
        if !own {
            return match self.ended.lost_hold(id, claim) {
                Some(refusal) => self.out.refuse(ticket, refusal),
                None => self.out.answer(ticket, Reply::Released(Released::default())),
            };
        }
        self.end_released_with(now, claim, ReleasedCause::Client, release.exit_status);
        let kept = self.pending.kept_until(claim);
        if kept.is_some() || !self.pending.answer_when_released(claim, ticket) {
            let kept_ms = kept.map(|until| millis(until.since(now)));
            self.out.answer(ticket, Reply::Released(Released { released: true, kept_ms }));
        }
    }
}
