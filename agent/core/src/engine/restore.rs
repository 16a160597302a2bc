//! Taking up what an earlier run of the engine left in the journal.

use std::collections::HashMap;

use tenure_wire::Kind;

use super::claims::{Grant, State, Waiter};
use super::journal::{Saved, SavedGrant, SavedWaiter};
use super::semaphore::Semaphore;
use super::{Engine, EngineSettings, Occupation, TokenRange};
use crate::model::{Claim, ClaimId, Resource, Terms};
use crate::time::Boottime;

impl Engine {
    /// An engine that goes on where an earlier one stopped.
    ///
    /// Grants and waiters get a whole ttl from now on, which is never less than they had; waiters
    /// keep their order. Grants in `ended` have expired at that instant: their holders know. No token at or below a saved one is granted, whatever the range says.
    pub fn restore(
        settings: EngineSettings,
        tokens: TokenRange,
        saved: Saved,
        ended: &HashMap<ClaimId, Boottime>,
        now: Boottime,
    ) -> Engine {
        let mut engine = Engine::new(settings, tokens);
        engine.latest = now;
        engine.tokens.skip_past(saved.token_max());
        let limits: HashMap<Resource, u32> = saved.limits.into_iter().collect();
        let Saved { mut grants, mut waiters, sessions, routes, .. } = saved;
        grants.sort_unstable_by_key(|grant| grant.row);
        waiters.sort_unstable_by_key(|waiter| waiter.row);
        let mut semaphores = Semaphores { limits, found: HashMap::new() };
        for grant in grants {
            let ended = ended.get(&grant.claim.id).copied();
            engine.restore_grant(now, grant, ended, &mut semaphores);
        }
        for waiter in waiters {
            engine.restore_waiter(now, waiter, &mut semaphores);
        }
        // A run that was out of tokens may have left free permits with waiters.
        for (resource, semaphore) in semaphores.found {
            if semaphore.has_free_permit() && !semaphore.queue.is_empty() {
                engine.blocked.insert(resource.clone());
            }
            engine.resources.insert(resource, Occupation::Semaphore(semaphore));
        }
        for record in sessions {
            engine.restore_session(now, record);
        }
        for (tenant, version) in routes {
            engine.routes.restore(tenant.as_deref(), version);
        }
        engine
    }

    fn restore_grant(
        &mut self,
        now: Boottime,
        saved: SavedGrant,
        ended: Option<Boottime>,
        semaphores: &mut Semaphores,
    ) {
        let SavedGrant { row, claim, token, granted_at, in_grace, route_version } = saved;
        let (id, resource) = (claim.id, claim.resource.clone());
        let mut grant = Grant { granted_at, route_version, ..Grant::new(now, &claim, token) };
        grant.expires = now;
        if in_grace {
            grant.grace_until = Some(grant.grace_end(&claim));
        } else if let Some(ended) = ended {
            grant.expires = ended;
        } else {
            grant.renew(now, claim.ttl);
        }
        if resource.kind == Kind::Semaphore {
            semaphores.of(&claim).holders.insert(token, id);
        } else {
            self.resources.insert(resource.clone(), Occupation::Exclusive(id));
        }
        if resource.kind == Kind::Lease {
            self.routes.add(&resource, id);
        }
        self.next_row = self.next_row.max(row + 1);
        self.track(row, claim, State::Granted(grant));
    }

    fn restore_waiter(&mut self, now: Boottime, saved: SavedWaiter, semaphores: &mut Semaphores) {
        let SavedWaiter { row, claim, since } = saved;
        semaphores.of(&claim).queue.insert(row, claim.id);
        self.next_row = self.next_row.max(row + 1);
        let beaten_until = now + claim.ttl;
        self.track(row, claim, State::Waiting(Waiter { since, beaten_until }));
    }
}

/// The semaphores met so far.
struct Semaphores {
    limits: HashMap<Resource, u32>,
    found: HashMap<Resource, Semaphore>,
}

impl Semaphores {
    fn of(&mut self, claim: &Claim) -> &mut Semaphore {
        self.found.entry(claim.resource.clone()).or_insert_with(|| {
            let own = match claim.terms {
                Terms::Semaphore { limit, .. } => limit,
                _ => 1,
            };
            let saved = self.limits.get(&claim.resource).copied();
            let semaphore = Semaphore::new(saved.unwrap_or(own));
            Semaphore { limit_saved: saved.is_some(), ..semaphore }
        })
    }
}
