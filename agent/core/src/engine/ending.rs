//! How claims end: release, revocation, expiry.

use std::sync::Arc;

use tenure_wire::Kind;

use super::claims::{State, Tracked};
use super::journal::Entry;
use super::timers::look_at;
use super::{Engine, Timer};
use crate::model::{Change, ClaimId, GoneReason, Request, Resource, Revocation, Subject};
use crate::time::Boottime;

/// How many deadlines one step looks at, and after how many effects it looks at no more of them and grants
/// no more to those who wait: what is left is due still.
const DUE_PER_STEP: usize = 1024;
const EFFECTS_PER_STEP: usize = 4096;

impl Engine {
    pub(super) fn release(&mut self, now: Boottime, id: ClaimId, resource: &Resource) -> bool {
        match self.claims.get(id) {
            Some(tracked) if tracked.claim.resource == *resource => {
                self.end_claim(now, id, GoneReason::Released);
                true
            }
            Some(_) => false,
            None => {
                self.tombstones.insert(now, id, GoneReason::Released);
                false
            }
        }
    }

    pub(super) fn revoke(
        &mut self,
        now: Boottime,
        resource: &Resource,
        token: Option<u64>,
        revocation: Option<&Arc<Revocation>>,
    ) -> u64 {
        let Some(occupation) = self.resources.get(resource) else { return 0 };
        let revoked: Vec<ClaimId> = match token {
            Some(token) => occupation.holders.get(token).into_iter().collect(),
            None => occupation.holders.iter().map(|(_, id)| id).collect(),
        };
        for id in &revoked {
            self.end_claim(now, *id, GoneReason::Revoked);
            if let Some(revocation) = revocation {
                self.tombstones.explain(*id, Arc::clone(revocation));
            }
        }
        revoked.len() as u64
    }

    /// Does what is due, a bounded part at a time. Returns the latest instant seen, which becomes that
    /// of the step.
    pub(super) fn advance(&mut self, now: Boottime) -> Boottime {
        let now = self.latest.max(now);
        self.latest = now;
        for _ in 0..DUE_PER_STEP {
            if self.has_done_much() {
                break;
            }
            let Some(timer) = self.timers.pop_due(now) else { break };
            match timer {
                Timer::Claim(id) => self.claim_due(now, id),
                Timer::Session(id) => self.session_due(now, id),
            }
        }
        self.tombstones.handle_timeout(now);
        self.sessions.ended.handle_timeout(now);
        while self.grants_in(now).is_none()
            && !self.has_done_much()
            && let Some(resource) = self.resources.blocked.pop_first()
        {
            self.grant_heads(now, &resource);
            // All that waited may have run out.
            self.drop_unused(&resource);
        }
        now
    }

    /// True if the rest of what one step could do is for the next.
    pub(super) fn has_done_much(&self) -> bool {
        self.out.effects.len() >= EFFECTS_PER_STEP
    }

    /// Ends what a request is about if that ran out, and no step had room for it yet.
    pub(super) fn catch_up(&mut self, now: Boottime, request: &Request) {
        if self.timers.next().is_none_or(|due| due > now) {
            return;
        }
        match request {
            Request::Claim(claim) => {
                self.end_overdue(now, claim.id);
                self.end_overdue_holder(now, &claim.resource);
            }
            Request::Renew(beats) => {
                for beat in beats {
                    match &beat.subject {
                        Subject::Claim { claim, .. } => self.end_overdue(now, *claim),
                        Subject::Session { session, .. } => self.end_overdue_session(now, *session),
                    }
                }
            }
            Request::Release { claim, .. } => self.end_overdue(now, *claim),
            Request::Announce(record) => self.end_overdue_session(now, record.owner.session),
            Request::Revoke { resource, .. } => self.end_overdue_holder(now, resource),
            Request::EndSession { .. }
            | Request::Inspect(_)
            | Request::Holders(_)
            | Request::Members { .. }
            | Request::Routes { .. }
            | Request::Resources { .. }
            | Request::Record(_)
            | Request::History(_) => {}
        }
    }

    fn end_overdue(&mut self, now: Boottime, id: ClaimId) {
        if let Some(tracked) = self.claims.get(id)
            && tracked.deadline() <= now
        {
            self.timers.disarm(tracked.armed, Timer::Claim(id));
            self.claim_due(now, id);
        }
    }

    fn end_overdue_holder(&mut self, now: Boottime, resource: &Resource) {
        if let Some(holder) = self.holder(resource).map(Tracked::id) {
            self.end_overdue(now, holder);
        }
    }

    fn claim_due(&mut self, now: Boottime, id: ClaimId) {
        let Some(tracked) = self.claims.get_mut(id) else { return };
        let deadline = tracked.deadline();
        if deadline > now {
            tracked.armed = look_at(now, deadline);
            self.timers.arm(tracked.armed, Timer::Claim(id));
            return;
        }
        let State::Granted(grant) = &mut tracked.state else {
            self.end_claim(now, id, GoneReason::Expired);
            return;
        };
        let grace_end = grant.grace_end(&tracked.claim);
        if now < grace_end {
            grant.grace_until = Some(grace_end);
            tracked.armed = grace_end;
            self.timers.arm(grace_end, Timer::Claim(id));
            let resource = tracked.claim.resource.clone();
            self.route_changed(id);
            self.tell_changed(&resource);
            // Its session may stand in the queue.
            self.grant_heads(now, &resource);
            return;
        }
        self.end_claim(now, id, GoneReason::Expired);
    }

    /// Ends a claim, frees what it held, and gives that to whoever waits.
    fn end_claim(&mut self, now: Boottime, id: ClaimId, reason: GoneReason) {
        let Some(tracked) = self.retire(now, id, reason) else { return };
        let resource = tracked.claim.resource.clone();
        let was_granted = matches!(tracked.state, State::Granted(_));
        if let Some(occupation) = self.resources.get_mut(&resource) {
            match was_granted {
                true => occupation.holders.remove(tracked.token()),
                false => occupation.leave(&tracked),
            }
        }
        if reason != GoneReason::Released {
            self.tell(Change::Lost { claim: id, resource: resource.clone() });
        }
        self.tell_changed(&resource);
        match resource.kind {
            Kind::Lease if was_granted => self.route_removed(&resource),
            Kind::Master if was_granted => self.out.orphaned.push(tracked),
            _ => {}
        }
        self.grant_heads(now, &resource);
        self.drop_unused(&resource);
    }

    /// Stops tracking a claim and marks it as ended. What it held is the caller's concern.
    pub(super) fn retire(
        &mut self,
        now: Boottime,
        id: ClaimId,
        reason: GoneReason,
    ) -> Option<Tracked> {
        let tracked = self.claims.remove(id)?;
        self.timers.disarm(tracked.armed, Timer::Claim(id));
        self.tombstones.insert(now, id, reason);
        let row = tracked.row;
        self.persist(match tracked.state {
            State::Granted(_) => Entry::GrantEnded { row },
            State::Waiting(_) => Entry::WaiterEnded { row },
        });
        Some(tracked)
    }
}
