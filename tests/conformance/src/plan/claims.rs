//! Claims, and what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    Answer, Beat, Claim, ClaimId, Request, Resource, Revocation, SessionId, Subject, Terms,
};
use tenure_wire::Kind;

use super::cast::CLAIM_TTLS;
use super::draft::{Draft, Drawn};
use super::time::ROOM_US;

/// Claims of a semaphore, and leases, in a crowd: more than two pages of members, leases or beats.
const CROWD: u32 = 600;

impl Draft {
    fn draw_claim(&mut self) -> Option<Claim> {
        let mut resource = self.resource();
        let program = self.cast.program_of(&mut self.random, &resource.tenant)?;
        let owner = program.owner.clone();
        if resource.kind == Kind::Master && self.random.per_mille(700) {
            resource.name = program.record.project.clone();
        }
        let ttl = Duration::from_secs(*self.random.pick(&CLAIM_TTLS));
        let terms = self.cast.terms(&mut self.random, resource.kind);
        let enqueue = self.random.per_mille(750);
        let id = ClaimId(self.id());
        // How long a hold may last in all is counted by its agent.
        Some(Claim { id, resource, owner, ttl, terms, enqueue })
    }

    pub(super) fn claim_new(&mut self) {
        let Some(mut claim) = self.draw_claim() else { return };
        if self.random.per_mille(20) {
            let elsewhere = self.elsewhere(&claim.resource);
            if let Some(id) = elsewhere {
                claim.id = id;
                return self.ask(Request::Claim(claim));
            }
        }
        self.remember(&claim);
        self.ask(Request::Claim(claim));
    }

    /// A queue and a routing table that are longer than a page, and a batch of beats for all.
    pub(super) fn crowd(&mut self) {
        let semaphore = self.resource_of(Kind::Semaphore);
        let lease = self.resource_of(Kind::Lease);
        for number in 0..2 * CROWD {
            if self.spent_us > ROOM_US {
                self.pass_to(self.now_ms + 1);
            }
            let mut resource = if number % 2 == 0 { semaphore.clone() } else { lease.clone() };
            if resource.kind == Kind::Lease {
                resource.name = format!("{}{number}", resource.name).into();
            }
            let Some(program) = self.cast.program_of(&mut self.random, &resource.tenant) else {
                continue;
            };
            let owner = program.owner.clone();
            let ttl = Duration::from_secs(CLAIM_TTLS[CLAIM_TTLS.len() - 1]);
            let terms = match self.cast.terms(&mut self.random, resource.kind) {
                Terms::Semaphore { .. } => {
                    Terms::Semaphore { limit: CROWD / 2, keeps: false, only_own: false }
                }
                other => other,
            };
            let id = ClaimId(self.id());
            let claim = Claim { id, resource, owner, ttl, terms, enqueue: true };
            self.remember(&claim);
            self.ask(Request::Claim(claim));
        }
        let beats = (0..self.drawn.len()).map(|at| self.beat_of(at)).collect();
        self.ask(Request::Renew(beats));
        self.ask(Request::Routes {
            tenant: lease.tenant,
            name: None,
            page: tenure_core::model::Page::whole(),
        });
        self.ask(Request::Inspect(semaphore));
    }

    fn remember(&mut self, claim: &Claim) {
        self.drawn.push(Drawn { claim: claim.clone(), ends_ms: self.now_ms, there: false });
    }

    /// One of the claims so far: mostly one that may be there, or has been not long ago.
    pub(super) fn some_drawn(&mut self) -> Option<usize> {
        let since = match self.random.below(20) {
            0..13 => u64::MAX,
            13..18 => self.now_ms.saturating_sub(70_000),
            _ => 0,
        };
        let fitting: Vec<usize> = self
            .drawn
            .iter()
            .enumerate()
            .filter(|(_, drawn)| drawn.there || drawn.ends_ms >= since)
            .map(|(at, _)| at)
            .collect();
        (!fitting.is_empty()).then(|| *self.random.pick(&fitting))
    }

    pub(super) fn claim_again(&mut self) {
        let Some(at) = self.some_drawn() else { return };
        let mut claim = self.drawn[at].claim.clone();
        if self.random.per_mille(500) {
            let terms = self.cast.terms(&mut self.random, claim.resource.kind);
            claim.terms = match (terms, &claim.terms) {
                // An agent sends a claim again as it was, but for what its program may change.
                (Terms::Lease { attributes, .. }, Terms::Lease { grace, .. }) => {
                    Terms::Lease { grace: *grace, attributes, take_over: None }
                }
                (other @ Terms::Semaphore { .. }, _) => other,
                (_, same) => same.clone(),
            };
            claim.enqueue = self.random.per_mille(750);
        }
        if self.random.per_mille(100) {
            claim.ttl = Duration::from_secs(*self.random.pick(&CLAIM_TTLS));
        }
        self.ask(Request::Claim(claim));
    }

    pub(super) fn renew(&mut self) {
        let mut beats = Vec::new();
        if self.random.per_mille(350) {
            // As an agent does: everything that may be there.
            for at in 0..self.drawn.len() {
                if self.drawn[at].there && self.random.per_mille(850) {
                    beats.push(self.beat_of(at));
                }
            }
        }
        for _ in 0..self.random.number(1, 4) {
            let beat = self.some_beat();
            beats.extend(beat);
        }
        if self.random.per_mille(100) {
            let again = beats.clone();
            beats.extend(again);
        }
        if self.random.per_mille(20) {
            beats.clear();
        }
        self.ask(Request::Renew(beats));
    }

    fn beat_of(&mut self, at: usize) -> Beat {
        let other = self.random.per_mille(100).then(|| *self.random.pick(&CLAIM_TTLS));
        let Claim { id, resource, ttl, .. } = &self.drawn[at].claim;
        let subject = Subject::Claim { claim: *id, resource: resource.clone() };
        Beat { subject, ttl: other.map_or(*ttl, Duration::from_secs) }
    }

    fn some_beat(&mut self) -> Option<Beat> {
        match self.random.below(10) {
            0..6 => {
                let at = self.some_drawn()?;
                Some(self.beat_of(at))
            }
            6..9 => {
                let record = &self.some_program().record;
                let master = record.master();
                let subject = Subject::Session { session: record.owner.session, master };
                Some(Beat { subject, ttl: record.ttl })
            }
            _ => {
                let ttl = Duration::from_secs(*self.random.pick(&CLAIM_TTLS));
                let (id, resource) = (self.id(), self.resource());
                let elsewhere = self.elsewhere(&resource);
                let subject = match elsewhere {
                    Some(claim) => Subject::Claim { claim, resource },
                    None if self.random.per_mille(200) => {
                        let master = self.some_program().record.master();
                        Subject::Session { session: SessionId(id), master }
                    }
                    None => Subject::Claim { claim: ClaimId(id), resource },
                };
                let ttl = match &subject {
                    Subject::Claim { claim, .. } => self.ttl_of(*claim).unwrap_or(ttl),
                    Subject::Session { .. } => ttl,
                };
                Some(Beat { subject, ttl })
            }
        }
    }

    /// A claim that holds or waits for another resource of the same tenant.
    fn elsewhere(&mut self, resource: &Resource) -> Option<ClaimId> {
        let at = self.some_drawn()?;
        let Claim { id, resource: of, .. } = &self.drawn[at].claim;
        let (id, same) = (*id, of.tenant == resource.tenant);
        (same && self.is_there(at)).then_some(id)
    }

    fn ttl_of(&self, id: ClaimId) -> Option<Duration> {
        self.drawn.iter().find(|drawn| drawn.claim.id == id).map(|drawn| drawn.claim.ttl)
    }

    pub(super) fn release(&mut self) {
        if self.random.per_mille(80) {
            // It overtakes its claim, or the claim never comes.
            let Some(claim) = self.draw_claim() else { return };
            self.remember(&claim);
            return self.ask(Request::Release { claim: claim.id, resource: claim.resource });
        }
        let Some(at) = self.some_drawn() else { return };
        let Claim { id, mut resource, .. } = self.drawn[at].claim.clone();
        let mut id = id;
        if self.random.per_mille(40) {
            let other = self.resource();
            if let Some(claim) = self.elsewhere(&other) {
                (id, resource) = (claim, other);
            }
        }
        self.ask(Request::Release { claim: id, resource });
    }

    /// True if a claim holds or waits at this instant.
    fn is_there(&mut self, at: usize) -> bool {
        let Claim { id, resource, .. } = self.drawn[at].claim.clone();
        match self.oracle.handle(self.now_ms, Request::Inspect(resource)) {
            Answer::Standing(standing) => {
                standing.holders.iter().chain(&standing.waiters).any(|entry| entry.claim == id)
            }
            _ => false,
        }
    }

    pub(super) fn revoke(&mut self) {
        let resource = self.resource();
        match self.random.below(3) {
            0 => {
                let words = Revocation {
                    by: "root on b".to_owned(),
                    reason: Some("\"upgrade\" – part 2".to_owned()),
                    for_ms: self.random.below(2) * 60_000,
                };
                let revocation = Some(Arc::new(words));
                self.ask(Request::Revoke { resource, token: None, revocation });
            }
            1 => self.ask(Request::Revoke { resource, token: Some(1), revocation: None }),
            _ => {
                let Some(at) = self.some_drawn() else { return };
                let Claim { id, resource, .. } = self.drawn[at].claim.clone();
                self.revoke_by_token(resource, id);
            }
        }
    }
}
