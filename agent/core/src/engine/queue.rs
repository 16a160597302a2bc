//! Who waits is granted in order: first come, first served; a master by priority, then in order.

use serde_json::json;

use super::Engine;
use super::claims::{Grant, State, Tracked};
use super::journal::Entry;
use crate::model::{Change, Claim, ClaimId, GoneReason, GrantHint, Resource, Terms};
use crate::time::Boottime;

/// The fate of the present holder when another claim is to be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incumbent {
    /// There is none in the way.
    None,
    Stays,
    /// Its session takes an expired lease up again.
    Followed(ClaimId),
    /// A higher priority takes it.
    Preempted(ClaimId),
    /// A lease goes to another claim of the same program.
    TakenOver(ClaimId),
}

impl Engine {
    /// The holder of an exclusive resource, also in its grace.
    pub(super) fn holder(&self, resource: &Resource) -> Option<&Tracked> {
        let occupation = self.resources.get(resource).filter(|it| it.limit.is_none())?;
        self.claims.get(occupation.holders.first()?)
    }

    /// Grants what is free to whoever is next and alive.
    pub(super) fn grant_heads(&mut self, now: Boottime, resource: &Resource) {
        while let Some((id, incumbent)) = self.next_waiter(resource) {
            // Those who wait may have run out together with the holder.
            if self.has_done_much() {
                self.resources.blocked.insert(resource.clone());
                return;
            }
            let alive = self.claims.get(id).is_some_and(|tracked| now < tracked.deadline());
            if !alive {
                self.end_waiter(now, id);
                continue;
            }
            let can_grant = self.grants_in(now).is_none();
            let Some(token) = can_grant.then(|| self.take_token()).flatten() else {
                self.resources.blocked.insert(resource.clone());
                return;
            };
            self.grant_waiter(now, id, incumbent, token);
        }
    }

    /// The waiter that is to be granted, and the holder that makes way for it.
    fn next_waiter(&self, resource: &Resource) -> Option<(ClaimId, Incumbent)> {
        let occupation = self.resources.get(resource)?;
        let (_, head) = occupation.queue.front()?;
        if occupation.has_room() {
            return Some((head, Incumbent::None));
        }
        let holder = self.holder(resource)?;
        let next = match holder.is_of_lease() {
            true => occupation.first_of(holder.claim.owner.session)?,
            false => head,
        };
        match fate(holder, &self.claims.get(next)?.claim) {
            Incumbent::Stays => None,
            incumbent => Some((next, incumbent)),
        }
    }

    /// Ends a waiter that nobody has beaten in time.
    fn end_waiter(&mut self, now: Boottime, id: ClaimId) {
        let Some(waiter) = self.retire(now, id, GoneReason::Expired) else { return };
        let resource = &waiter.claim.resource;
        if let Some(occupation) = self.resources.get_mut(resource) {
            occupation.leave(&waiter);
        }
        self.tell(Change::Lost { claim: id, resource: resource.clone() });
        self.tell_changed(resource);
    }

    fn grant_waiter(&mut self, now: Boottime, id: ClaimId, incumbent: Incumbent, token: u64) {
        let Some(waiter) = self.claims.get(id) else { return };
        let (claim, row) = (waiter.claim.clone(), waiter.row);
        let resource = &claim.resource;
        if let Some(occupation) = self.resources.get_mut(resource) {
            occupation.leave(waiter);
        }
        let kept_until = self.make_way(now, incumbent, &claim, token);
        let grant = Grant::unconfirmed(now, &claim, token, kept_until);
        let mut hint = GrantHint { token, limit: None, confirm_by: grant.expires };
        if let Some(occupation) = self.resources.get_mut(resource) {
            occupation.holders.insert(token, id);
            hint.limit = occupation.permits();
        }
        if let Some(tracked) = self.claims.get_mut(id) {
            tracked.state = State::Granted(grant);
        }
        self.arm_earlier(id);
        self.persist(Entry::WaiterEnded { row });
        self.list_grant(id, resource);
        self.tell_changed(resource);
        let (resource, grant) = (resource.clone(), Some(hint));
        self.tell(Change::Granted { claim: id, resource, grant });
    }

    /// The present holder makes way for a claim. Returns until when nobody but its session was to be
    /// granted what it had.
    pub(super) fn make_way(
        &mut self,
        now: Boottime,
        incumbent: Incumbent,
        by: &Claim,
        token: u64,
    ) -> Option<Boottime> {
        let (former, reason) = match incumbent {
            Incumbent::None | Incumbent::Stays => return None,
            Incumbent::Followed(former) => (former, GoneReason::Expired),
            Incumbent::Preempted(former) => (former, GoneReason::Preempted),
            Incumbent::TakenOver(former) => (former, GoneReason::Conflict),
        };
        let former = self.retire(now, former, reason)?;
        if let Some(occupation) = self.resources.get_mut(&by.resource) {
            occupation.holders.remove(former.token());
        }
        if reason == GoneReason::Preempted {
            self.tell_preempted(&former, by, token);
        }
        if reason == GoneReason::Conflict {
            self.tell(Change::Lost { claim: former.id(), resource: by.resource.clone() });
        }
        match &former.state {
            State::Granted(grant) => grant.grace_until,
            State::Waiting(_) => None,
        }
    }

    fn tell_preempted(&mut self, former: &Tracked, by: &Claim, token: u64) {
        let resource = &by.resource;
        self.tell(Change::Lost { claim: former.id(), resource: resource.clone() });
        self.tell(Change::Message {
            tenant: resource.tenant.clone(),
            project: resource.name.clone(),
            session: Some(former.claim.owner.session),
            payload: json!({
                "type": "MasterPreempted",
                "project": resource.name,
                "token": token,
                "by": {
                    "session": by.owner.session,
                    "name": by.owner.name,
                    "host": by.owner.host,
                },
            }),
        });
    }

    /// Says which projects have no master any more. Runs at the end of a step, so that one that
    /// found a successor within it is not reported.
    pub(super) fn tell_orphaned(&mut self) {
        for former in std::mem::take(&mut self.out.orphaned) {
            let resource = &former.claim.resource;
            if self.holder(resource).is_some() {
                continue;
            }
            self.tell(Change::Message {
                tenant: resource.tenant.clone(),
                project: resource.name.clone(),
                session: None,
                payload: json!({
                    "type": "master_released",
                    "project": resource.name,
                    "session": former.claim.owner.session,
                    "name": former.claim.owner.name,
                    "host": former.claim.owner.host,
                }),
            });
        }
    }
}

/// What becomes of a holder for the sake of that claim.
pub(super) fn fate(holder: &Tracked, claim: &Claim) -> Incumbent {
    let own = holder.claim.owner.session == claim.owner.session;
    let in_grace = matches!(&holder.state, State::Granted(grant) if grant.grace_until.is_some());
    match (&holder.claim.terms, &claim.terms) {
        (Terms::Master { priority: held }, Terms::Master { priority })
            if priority > held && !own =>
        {
            Incumbent::Preempted(holder.id())
        }
        (Terms::Lease { .. }, Terms::Lease { .. }) if in_grace && own => {
            Incumbent::Followed(holder.id())
        }
        _ => Incumbent::Stays,
    }
}
