//! Leaders, masters and leases: one holder, no queue, not re-entrant.

use serde_json::json;
use tenure_wire::Kind;

use super::claims::{Grant, State, Tracked};
use super::settings::TOKEN_WAIT;
use super::{Engine, Occupation};
use crate::model::{Change, Claim, ClaimAnswer, ClaimId, GoneReason, Resource, Terms};
use crate::time::Boottime;

/// The fate of the present holder.
enum Incumbent {
    Stays,
    /// Its session takes an expired lease up again.
    Follows,
    Preempted,
}

impl Engine {
    pub(super) fn claim_exclusive(&mut self, now: Boottime, claim: Claim) -> ClaimAnswer {
        if kind_of(&claim.terms) != claim.resource.kind {
            return ClaimAnswer::Gone(GoneReason::Conflict);
        }
        let incumbent =
            self.holder(&claim.resource).map(|holder| (holder.id(), fate(holder, &claim)));
        if let Some((_, Incumbent::Stays)) = incumbent {
            return self.contended(now, &claim);
        }
        let Some(token) = self.take_token() else {
            return ClaimAnswer::Quarantined { free_in: TOKEN_WAIT };
        };
        match incumbent {
            Some((former, Incumbent::Preempted)) => self.preempt(now, former, &claim, token),
            Some((former, _)) => {
                self.retire(now, former, GoneReason::Expired);
            }
            None => {}
        }
        self.tell_changed(&claim.resource);
        let (id, resource) = (claim.id, claim.resource.clone());
        let row = self.take_row();
        let grant = Grant::new(now, &claim, token);
        self.track(Tracked::new(now, row, claim, State::Granted(grant)));
        self.resources.insert(resource.clone(), Occupation::Exclusive(id));
        if resource.kind == Kind::Lease {
            self.routes.add(&resource, id);
            self.route_changed(id);
        } else {
            self.persist_claim(id);
        }
        ClaimAnswer::Held { token, limit: None, limit_was: None }
    }

    /// The holder of an exclusive resource, also in its grace.
    pub(super) fn holder(&self, resource: &Resource) -> Option<&Tracked> {
        match self.resources.get(resource)? {
            Occupation::Exclusive(id) => self.claims.get(id).map(|tracked| &**tracked),
            Occupation::Semaphore(_) => None,
        }
    }

    fn contended(&self, now: Boottime, claim: &Claim) -> ClaimAnswer {
        let holder = self.holder(&claim.resource);
        let free_in = holder.and_then(|holder| match &holder.state {
            State::Granted(grant) => {
                let own = holder.claim.owner.session == claim.owner.session;
                let free_at = if own { grant.expires } else { grant.grace_end(&holder.claim) };
                Some(free_at - now)
            }
            State::Waiting(_) => None,
        });
        let holder = holder.map(|holder| holder.standing(now));
        ClaimAnswer::Contended { holder, free_in, limit: None, limit_was: None }
    }

    fn preempt(&mut self, now: Boottime, former: ClaimId, by: &Claim, token: u64) {
        let Some(former) = self.retire(now, former, GoneReason::Preempted) else {
            return;
        };
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
        for former in std::mem::take(&mut self.orphaned) {
            let resource = &former.claim.resource;
            if self.resources.contains_key(resource) {
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

fn fate(holder: &Tracked, claim: &Claim) -> Incumbent {
    let own = holder.claim.owner.session == claim.owner.session;
    let in_grace = matches!(&holder.state, State::Granted(grant) if grant.grace_until.is_some());
    match (&holder.claim.terms, &claim.terms) {
        (Terms::Master { priority: held }, Terms::Master { priority })
            if priority > held && !own =>
        {
            Incumbent::Preempted
        }
        (Terms::Lease { .. }, Terms::Lease { .. }) if in_grace && own => Incumbent::Follows,
        _ => Incumbent::Stays,
    }
}

fn kind_of(terms: &Terms) -> Kind {
    match terms {
        Terms::Leader => Kind::Leader,
        Terms::Master { .. } => Kind::Master,
        Terms::Semaphore { .. } => Kind::Semaphore,
        Terms::Lease { .. } => Kind::Lease,
    }
}
