//! The state of a claim, and the effects of a repeated claim and a beat on it.

use std::collections::{BTreeMap, HashMap, btree_map};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_wire::Kind;

use super::journal::{Entry, SavedGrant, SavedWaiter};
use super::occupation::Place;
use super::settings::CONFIRM_WITHIN;
use super::timers::look_at;
use super::{Engine, Timer};
use crate::model::{
    BeatAnswer, Claim, ClaimAnswer, ClaimId, GoneReason, LeaseTimes, Resource, StandingEntry,
    Terms, spare,
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
    /// When it was granted or renewed last.
    pub(super) renewed_at: Boottime,
    /// The ttl for which it was renewed last, if that is not its claim's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) renewed_for: Option<Duration>,
    pub(super) expires: Boottime,
    /// Lease only: it has expired, and until then only its session is granted the lease.
    pub(super) grace_until: Option<Boottime>,
    /// Lease only: the version of the routing table when this line of it changed last.
    pub(super) route_version: u64,
    /// Its waiter has not shown yet that it knows of it: without a beat until `expires` others are granted
    /// the resource from this instant on, and no grace is kept.
    pub(super) unconfirmed_until: Option<Boottime>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub(super) since: Boottime,
    pub(super) beaten_until: Boottime,
}

/// The claims that are granted or wait.
#[derive(Debug)]
pub(super) struct Claims {
    /// Boxed, so that a growing table moves pointers.
    by_id: HashMap<ClaimId, Box<Tracked>>,
    /// The row of the next one; also its place in a queue.
    pub(super) next_row: u64,
    /// How many have which ttl.
    ttls: BTreeMap<Duration, usize>,
    /// False where beats are taken by the rules of an earlier program.
    pub(super) notes_beats: bool,
}

impl Claims {
    pub(super) fn new() -> Claims {
        let (by_id, ttls) = (HashMap::new(), BTreeMap::new());
        Claims { by_id, next_row: 1, ttls, notes_beats: true }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn get(&self, id: ClaimId) -> Option<&Tracked> {
        self.by_id.get(&id).map(|tracked| &**tracked)
    }

    pub(super) fn get_mut(&mut self, id: ClaimId) -> Option<&mut Tracked> {
        self.by_id.get_mut(&id).map(|tracked| &mut **tracked)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ClaimId> {
        self.by_id.keys().copied()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Tracked> {
        self.by_id.values().map(|tracked| &**tracked)
    }

    pub(super) fn take_row(&mut self) -> u64 {
        let row = self.next_row;
        self.next_row += 1;
        row
    }

    fn insert(&mut self, tracked: Tracked) {
        *self.ttls.entry(tracked.claim.ttl).or_default() += 1;
        self.by_id.insert(tracked.id(), Box::new(tracked));
    }

    pub(super) fn remove(&mut self, id: ClaimId) -> Option<Tracked> {
        let tracked = self.by_id.remove(&id)?;
        spare::shrink_map(&mut self.by_id);
        if let btree_map::Entry::Occupied(mut count) = self.ttls.entry(tracked.claim.ttl) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(*tracked)
    }

    /// The longest ttl; zero if there is none.
    pub(super) fn longest_ttl(&self) -> Duration {
        self.ttls.last_key_value().map_or(Duration::ZERO, |(ttl, _)| *ttl)
    }
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

    /// Its place in a queue.
    pub(super) fn place(&self) -> Place {
        (self.claim.rank(), self.row)
    }

    pub(super) fn is_of_lease(&self) -> bool {
        self.claim.resource.kind == Kind::Lease
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
        let (since, unbeaten) = match &self.state {
            State::Granted(grant) => (grant.granted_at, Some(now - grant.renewed_at)),
            State::Waiting(waiter) => (waiter.since, None),
        };
        StandingEntry {
            claim: self.claim.id,
            owner: self.claim.owner.clone(),
            token: self.token(),
            since: now - since,
            unbeaten,
        }
    }

    /// The times of a lease that is held.
    pub(super) fn lease_times(&self, now: Boottime, notes_beats: bool) -> Option<LeaseTimes> {
        let (State::Granted(grant), Terms::Lease { grace, .. }) = (&self.state, &self.claim.terms)
        else {
            return None;
        };
        let unbeaten = match notes_beats {
            true => now - grant.renewed_at,
            // As if each beat left the claim's ttl.
            false => (now + self.claim.ttl).since(grant.expires),
        };
        let ttl = grant.renewed_for.unwrap_or(self.claim.ttl);
        Some(LeaseTimes { ttl, grace: *grace, unbeaten })
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
        Grant {
            token,
            granted_at: now,
            renewed_at: now,
            renewed_for: None,
            expires,
            grace_until: None,
            route_version: 0,
            unconfirmed_until: None,
        }
    }

    /// One that its waiter does not know of yet. Its next beat makes it like any other; without one the
    /// resource is soon free for who waits behind. Before `kept_until` it is free for nobody.
    pub(super) fn unconfirmed(
        now: Boottime,
        claim: &Claim,
        token: u64,
        kept_until: Option<Boottime>,
    ) -> Grant {
        let mut grant = Grant::new(now, claim, token);
        grant.expires = grant.expires.min(now + CONFIRM_WITHIN);
        grant.unconfirmed_until = Some(kept_until.unwrap_or(grant.expires).max(grant.expires));
        grant
    }

    pub(super) fn renew(&mut self, now: Boottime, ttl: Duration) {
        self.unconfirmed_until = None;
        self.renewed_at = now;
        // Never earlier: the holder may go by an answer to a longer ttl.
        self.expires = self.expires.max(now + ttl);
    }

    /// Until when nobody else is granted a lease that expired.
    pub(super) fn grace_end(&self, claim: &Claim) -> Boottime {
        if let Some(until) = self.unconfirmed_until {
            return until;
        }
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
                self.change_attributes(claim);
                ClaimAnswer::Waiting { position, limit, limit_was: None }
            }
            BeatAnswer::Gone(reason) => ClaimAnswer::Gone(reason),
            BeatAnswer::Revoked(_) => ClaimAnswer::Gone(GoneReason::Revoked),
            // Not an answer to a claim's beat, nor one of an engine.
            BeatAnswer::Session { .. } | BeatAnswer::Failed(_) => {
                ClaimAnswer::Gone(GoneReason::Unknown)
            }
        }
    }

    pub(super) fn renew_claim(
        &mut self,
        now: Boottime,
        id: ClaimId,
        resource: &Resource,
        ttl: Duration,
    ) -> BeatAnswer {
        let notes_beats = self.claims.notes_beats;
        let Some(tracked) = self.claims.get_mut(id) else {
            // Claims that ended have left a mark: a claim without one is not somebody else's doing,
            // but of a store that has forgotten it.
            let Some(reason) = self.tombstones.get(now, id) else {
                return BeatAnswer::Gone(GoneReason::Unknown);
            };
            let revocation =
                self.tombstones.explanation(id).filter(|_| reason == GoneReason::Revoked);
            return revocation.map_or(BeatAnswer::Gone(reason), BeatAnswer::Revoked);
        };
        if tracked.claim.resource != *resource {
            return BeatAnswer::Gone(GoneReason::Conflict);
        }
        let place = tracked.place();
        let mut out_of_grace = false;
        let token = match &mut tracked.state {
            State::Granted(grant) => {
                grant.renew(now, ttl);
                let is_another = ttl != tracked.claim.ttl && notes_beats;
                grant.renewed_for = is_another.then_some(ttl);
                out_of_grace = grant.grace_until.take().is_some();
                Some(grant.token)
            }
            State::Waiting(waiter) => {
                waiter.beaten_until = waiter.beaten_until.max(now + ttl);
                None
            }
        };
        self.arm_earlier(id);
        if out_of_grace {
            self.route_changed(id);
            self.tell_changed(resource);
        }
        // A beat of an exclusive holder has no need of its resource.
        if let Some(token) = token.filter(|_| resource.kind != Kind::Semaphore) {
            return BeatAnswer::Held { token, limit: None };
        }
        let occupation = self.resources.get(resource);
        let limit = occupation.and_then(|occupation| occupation.permits());
        match token {
            Some(token) => BeatAnswer::Held { token, limit },
            None => {
                let position = occupation.map_or(0, |it| it.queue.position(place));
                BeatAnswer::Waiting { position, limit }
            }
        }
    }

    /// Has a claim's timer go off no later than its deadline.
    pub(super) fn arm_earlier(&mut self, id: ClaimId) {
        let Some(tracked) = self.claims.get_mut(id) else { return };
        let deadline = tracked.deadline();
        if deadline < tracked.armed {
            self.timers.disarm(tracked.armed, Timer::Claim(id));
            self.timers.arm(deadline, Timer::Claim(id));
            tracked.armed = deadline;
        }
    }

    /// Starts to track a claim.
    pub(super) fn track(&mut self, tracked: Tracked) {
        self.timers.arm(tracked.armed, Timer::Claim(tracked.id()));
        self.claims.insert(tracked);
    }

    pub(super) fn take_token(&mut self) -> Option<u64> {
        let token = self.tokens.take();
        if self.tokens.should_ask() {
            self.out.effects.push_back(super::Effect::ReserveTokens);
        }
        token
    }

    pub(super) fn persist_claim(&mut self, id: ClaimId) {
        if let Some(entry) = self.claims.get(id).map(Tracked::entry) {
            self.persist(entry);
        }
    }
}
