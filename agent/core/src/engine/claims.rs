//! The state of a claim, and the effects of a repeated claim and a beat on it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_wire::Kind;

use super::journal::{Entry, SavedGrant, SavedWaiter};
use super::settings::CONFIRM_WITHIN;
use super::timers::look_at;
use super::{Engine, Occupation, Timer};
use crate::model::{
    BeatAnswer, Claim, ClaimAnswer, ClaimId, GoneReason, Resource, StandingEntry, Terms,
};
use crate::time::Boottime;

/// A claim that is granted or waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// Its row in the journal, and its place in the order of claiming.
    pub(super) row: u64,
    pub(super) claim: Claim,
    /// When its timer goes off; see [`super::timers`].
    pub(super) armed: Boottime,
    pub(super) state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Granted(Grant),
    Waiting(Waiter),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) token: u64,
    pub(super) granted_at: Boottime,
    pub(super) expires: Boottime,
    /// Lease only: it has expired, and until then only its session is granted the lease.
    pub(super) grace_until: Option<Boottime>,
    /// Lease only: the version of the routing table when this line of it changed last.
    pub(super) route_version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub(super) since: Boottime,
    pub(super) beaten_until: Boottime,
}

impl Tracked {
    pub(super) fn new(now: Boottime, row: u64, claim: Claim, state: State) -> Tracked {
        let mut tracked = Tracked { row, claim, armed: Boottime::ZERO, state };
        tracked.armed = look_at(now, tracked.deadline());
        tracked
    }

    pub(super) fn id(&self) -> ClaimId {
        self.claim.id
    }

    /// When it ends, or changes, unless it is renewed.
    pub(super) fn deadline(&self) -> Boottime {
        match &self.state {
            State::Granted(grant) => grant.grace_until.unwrap_or(grant.expires),
            State::Waiting(waiter) => waiter.beaten_until,
        }
    }

    pub(super) fn token(&self) -> u64 {
        match &self.state {
            State::Granted(grant) => grant.token,
            State::Waiting(_) => 0,
        }
    }

    pub(super) fn standing(&self, now: Boottime) -> StandingEntry {
        let since = match &self.state {
            State::Granted(grant) => grant.granted_at,
            State::Waiting(waiter) => waiter.since,
        };
        StandingEntry {
            claim: self.claim.id,
            owner: self.claim.owner.clone(),
            token: self.token(),
            since: now - since,
        }
    }

    /// Its row of the journal.
    pub(super) fn entry(&self) -> Entry {
        let row = self.row;
        let claim = self.claim.clone();
        match &self.state {
            State::Granted(grant) => Entry::Grant(Box::new(SavedGrant {
                row,
                claim,
                token: grant.token,
                granted_at: grant.granted_at,
                in_grace: grant.grace_until.is_some(),
                route_version: grant.route_version,
            })),
            State::Waiting(waiter) => {
                Entry::Waiter(Box::new(SavedWaiter { row, claim, since: waiter.since }))
            }
        }
    }
}

impl Grant {
    pub(super) fn new(now: Boottime, claim: &Claim, token: u64) -> Grant {
        let expires = now + claim.ttl;
        Grant { token, granted_at: now, expires, grace_until: None, route_version: 0 }
    }

    /// One that its waiter does not know of yet. Its next beat makes it like any other; without one the
    /// permit is soon free for who waits behind.
    pub(super) fn unconfirmed(now: Boottime, claim: &Claim, token: u64) -> Grant {
        let mut grant = Grant::new(now, claim, token);
        grant.expires = grant.expires.min(now + CONFIRM_WITHIN);
        grant
    }

    pub(super) fn renew(&mut self, now: Boottime, ttl: Duration) {
        // Never earlier: the holder may go by an answer to a longer ttl.
        self.expires = self.expires.max(now + ttl);
    }

    /// Until when nobody else is granted a lease that expired.
    pub(super) fn grace_end(&self, claim: &Claim) -> Boottime {
        let grace = match &claim.terms {
            Terms::Lease { grace, .. } => *grace,
            _ => Duration::ZERO,
        };
        self.expires + grace
    }
}

impl Engine {
    pub(super) fn claim_again(&mut self, now: Boottime, claim: &Claim) -> ClaimAnswer {
        match self.renew_claim(now, claim.id, &claim.resource, claim.ttl) {
            BeatAnswer::Held { token, limit } => {
                self.change_attributes(claim);
                ClaimAnswer::Held { token, limit, limit_was: None }
            }
            BeatAnswer::Waiting { position, limit } => {
                ClaimAnswer::Waiting { position, limit, limit_was: None }
            }
            BeatAnswer::Gone(reason) => ClaimAnswer::Gone(reason),
            // Not an answer to a claim's beat.
            BeatAnswer::Session { .. } => ClaimAnswer::Gone(GoneReason::Unknown),
        }
    }

    pub(super) fn renew_claim(
        &mut self,
        now: Boottime,
        id: ClaimId,
        resource: &Resource,
        ttl: Duration,
    ) -> BeatAnswer {
        let Some(tracked) = self.claims.get_mut(&id) else {
            // Claims that ended have left a mark: a claim without one is not somebody else's doing,
            // but of a store that has forgotten it.
            let reason = self.tombstones.get(now, id).unwrap_or(GoneReason::Unknown);
            return BeatAnswer::Gone(reason);
        };
        if tracked.claim.resource != *resource {
            return BeatAnswer::Gone(GoneReason::Conflict);
        }
        let row = tracked.row;
        let mut out_of_grace = false;
        let token = match &mut tracked.state {
            State::Granted(grant) => {
                grant.renew(now, ttl);
                out_of_grace = grant.grace_until.take().is_some();
                Some(grant.token)
            }
            State::Waiting(waiter) => {
                waiter.beaten_until = waiter.beaten_until.max(now + ttl);
                None
            }
        };
        let deadline = tracked.deadline();
        if deadline < tracked.armed {
            self.timers.disarm(tracked.armed, Timer::Claim(id));
            self.timers.arm(deadline, Timer::Claim(id));
            tracked.armed = deadline;
        }
        if out_of_grace {
            self.route_changed(id);
            self.tell_changed(resource);
        }
        let semaphore = match resource.kind {
            Kind::Semaphore => self.resources.get(resource),
            _ => None,
        };
        let (limit, position) = match semaphore {
            Some(Occupation::Semaphore(semaphore)) => {
                let position = if token.is_some() { 0 } else { semaphore.queue.position(row) };
                (Some(semaphore.limit), position)
            }
            _ => (None, 0),
        };
        match token {
            Some(token) => BeatAnswer::Held { token, limit },
            None => BeatAnswer::Waiting { position, limit },
        }
    }

    /// Starts to track a claim.
    pub(super) fn track(&mut self, tracked: Tracked) {
        self.timers.arm(tracked.armed, Timer::Claim(tracked.id()));
        *self.ttls.entry(tracked.claim.ttl).or_default() += 1;
        self.claims.insert(tracked.id(), Box::new(tracked));
    }

    pub(super) fn take_row(&mut self) -> u64 {
        let row = self.next_row;
        self.next_row += 1;
        row
    }

    pub(super) fn take_token(&mut self) -> Option<u64> {
        let token = self.tokens.take();
        if self.tokens.should_ask() {
            self.effects.push_back(super::Effect::ReserveTokens);
        }
        token
    }

    pub(super) fn persist_claim(&mut self, id: ClaimId) {
        if let Some(entry) = self.claims.get(&id).map(|tracked| tracked.entry()) {
            self.persist(entry);
        }
    }
}
