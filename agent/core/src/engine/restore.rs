//! Taking up what an earlier run of the engine left in the journal.

use std::collections::{BTreeMap, HashMap};

use super::claims::{Grant, State, Tracked, Waiter};
use super::journal::{Saved, SavedGrant, SavedWaiter};
use super::sessions::Announced;
use super::{Engine, EngineSettings, TokenRange};
use crate::model::{ClaimId, Resource, Terms};
use crate::time::Boottime;

impl Engine {
    /// An engine that goes on where an earlier one stopped.
    ///
    /// Grants and waiters get a whole ttl from now on, which is never less than they had; waiters
    /// keep their order. Grants in `ended` have expired at that instant: their holders know. No token
    /// at or below a saved one is granted, whatever the range says. Marks of what has ended are not in
    /// the journal.
    pub fn restore(
        settings: EngineSettings,
        tokens: TokenRange,
        saved: Saved,
        ended: &HashMap<ClaimId, Boottime>,
        now: Boottime,
    ) -> Engine {
        let mut image = Engine::new(settings, tokens).freeze();
        image.latest = now;
        image.tokens.skip_past(saved.token_max());
        let Saved { mut grants, mut waiters, limits, sessions, routes, changes } = saved;
        grants.sort_unstable_by_key(|grant| grant.row);
        waiters.sort_unstable_by_key(|waiter| waiter.row);
        let grants = grants.into_iter().map(|grant| {
            let ended = ended.get(&grant.claim.id).copied();
            granted(now, grant, ended)
        });
        let waiters = waiters.into_iter().map(|waiter| waiting(now, waiter));
        let mut in_force: BTreeMap<Resource, (u32, bool)> = BTreeMap::new();
        let limits: HashMap<Resource, u32> = limits.into_iter().collect();
        for tracked in grants.chain(waiters) {
            let resource = &tracked.claim.resource;
            if let Terms::Semaphore { limit, .. } = tracked.claim.terms {
                let saved = limits.get(resource).copied();
                let limit = (saved.unwrap_or(limit), saved.is_some());
                in_force.entry(resource.clone()).or_insert(limit);
            }
            image.next_row = image.next_row.max(tracked.row + 1);
            image.claims.push(tracked);
        }
        let in_force =
            in_force.into_iter().map(|(resource, (limit, saved))| (resource, limit, saved));
        image.limits = in_force.collect();
        let announced = (0..).zip(sessions).map(|(place, record)| {
            let expires = now + record.ttl;
            Announced { record, place, expires, armed: expires }
        });
        image.sessions = announced.collect();
        image.routes = routes;
        image.changes = changes;
        let mut engine = Engine::thaw(image);
        // A run that was out of tokens may have left something free that somebody waits for.
        engine.resources.block_all();
        engine
    }
}

fn granted(now: Boottime, saved: SavedGrant, ended: Option<Boottime>) -> Tracked {
    let SavedGrant { row, claim, token, granted_at, in_grace, route_version } = saved;
    let mut grant = Grant { granted_at, route_version, ..Grant::new(now, &claim, token) };
    if in_grace {
        grant.expires = now;
        grant.grace_until = Some(grant.grace_end(&claim));
    } else if let Some(ended) = ended {
        grant.expires = ended;
    }
    grant.renewed_at = grant.expires.before(claim.ttl);
    Tracked::new(now, row, claim, State::Granted(grant))
}

fn waiting(now: Boottime, saved: SavedWaiter) -> Tracked {
    let SavedWaiter { row, claim, since } = saved;
    let beaten_until = now + claim.ttl;
    Tracked::new(now, row, claim, State::Waiting(Waiter { since, beaten_until }))
}
