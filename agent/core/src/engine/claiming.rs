//! Claims that are new: granted, queued or refused.

use tenure_wire::Kind;

use super::Engine;
use super::claims::{Grant, State, Tracked, Waiter};
use super::journal::Entry;
use super::occupation::{Limit, Occupation};
use super::queue::{Incumbent, fate};
use super::settings::TOKEN_WAIT;
use crate::model::{Claim, ClaimAnswer, ClaimId, GoneReason, Resource, Terms};
use crate::time::Boottime;

/// A semaphore's limit after a claim.
#[derive(Debug, Clone, Copy, Default)]
struct Permits {
    limit: Option<u32>,
    /// The one that the claim changed.
    was: Option<u32>,
}

impl Engine {
    pub(super) fn claim(&mut self, now: Boottime, mut claim: Claim) -> ClaimAnswer {
        if self.claims.get(claim.id).is_some() {
            return self.claim_again(now, &claim);
        }
        match self.tombstones.get(now, claim.id) {
            // Whoever waited and was thought dead may queue again, at the end; so may whoever was
            // granted while it waited, and never heard of it. A holder that was told never does.
            // The mark stays: this attempt may be refused, and its end replaces the mark.
            Some(GoneReason::Expired) | None => {}
            Some(reason) => return ClaimAnswer::Gone(reason),
        }
        // Whoever queues takes a place meanwhile, so that grants go in the order of claiming.
        if !claim.enqueue
            && let Some(free_in) = self.grants_in(now)
        {
            return ClaimAnswer::Quarantined { free_in };
        }
        if kind_of(&claim.terms) != claim.resource.kind {
            return ClaimAnswer::Gone(GoneReason::Conflict);
        }
        let resource = claim.resource.clone();
        if let Some(limit) = self.limit_of_others(&claim) {
            let permits = Permits { limit: Some(limit), was: None };
            return self.contended(now, &claim, permits);
        }
        let permits = self.set_limit(&mut claim);
        self.grant_heads(now, &resource);
        let answer = match self.incumbent(now, &claim) {
            Incumbent::Stays if claim.enqueue && self.has_place(&resource) => {
                self.enqueue(now, claim, permits)
            }
            Incumbent::Stays => self.contended(now, &claim, permits),
            makes_way => self.grant_now(now, claim, makes_way, permits),
        };
        self.drop_unused(&resource);
        answer
    }

    /// What becomes of the present holder for the sake of a claim that does not wait: nobody who waits
    /// is overtaken.
    fn incumbent(&self, now: Boottime, claim: &Claim) -> Incumbent {
        if self.grants_in(now).is_some() {
            return Incumbent::Stays;
        }
        let Some(occupation) = self.resources.get(&claim.resource) else { return Incumbent::None };
        let is_next = occupation.queue.front().is_none_or(|(place, _)| claim.rank() < place.0);
        if occupation.has_room() {
            return if is_next { Incumbent::None } else { Incumbent::Stays };
        }
        let holder = self.holder(&claim.resource);
        if let Some(holder) = holder.filter(|holder| self.is_taken_over(now, holder, claim)) {
            return Incumbent::TakenOver(holder.id());
        }
        match holder.map(|holder| fate(holder, claim)) {
            Some(Incumbent::Preempted(_)) if !is_next => Incumbent::Stays,
            Some(incumbent) => incumbent,
            None => Incumbent::Stays,
        }
    }

    fn is_taken_over(&self, now: Boottime, holder: &Tracked, claim: &Claim) -> bool {
        let Terms::Lease { take_over: Some(take_over), .. } = &claim.terms else { return false };
        let times = holder.lease_times(now, self.claims.notes_beats);
        holder.id() == take_over.from && times.is_some_and(|it| it.unbeaten >= take_over.unbeaten)
    }

    /// True if one more may wait.
    fn has_place(&self, resource: &Resource) -> bool {
        let waiting = self.resources.get(resource).map_or(0, |it| it.queue.len());
        waiting < self.settings.queue_max
    }

    fn grant_now(
        &mut self,
        now: Boottime,
        mut claim: Claim,
        incumbent: Incumbent,
        Permits { limit, was }: Permits,
    ) -> ClaimAnswer {
        let Some(token) = self.take_token() else {
            return ClaimAnswer::Quarantined { free_in: TOKEN_WAIT };
        };
        self.make_way(now, incumbent, &claim, token);
        if let Terms::Lease { take_over, .. } = &mut claim.terms {
            *take_over = None;
        }
        let (id, resource) = (claim.id, claim.resource.clone());
        let occupation = self.resources.get_or_insert(&resource, Occupation::default);
        occupation.holders.insert(token, id);
        let row = self.claims.take_row();
        let grant = Grant::new(now, &claim, token);
        self.track(Tracked::new(now, row, claim, State::Granted(grant)));
        self.list_grant(id, &resource);
        self.tell_changed(&resource);
        ClaimAnswer::Held { token, limit, limit_was: was }
    }

    /// Writes a grant to the journal, and a lease into the routing table.
    pub(super) fn list_grant(&mut self, id: ClaimId, resource: &Resource) {
        if resource.kind == Kind::Lease {
            self.routes.add(resource, id);
            self.route_changed(id);
        } else {
            self.persist_claim(id);
        }
    }

    fn enqueue(
        &mut self,
        now: Boottime,
        claim: Claim,
        Permits { limit, was }: Permits,
    ) -> ClaimAnswer {
        let (id, resource) = (claim.id, claim.resource.clone());
        let row = self.claims.take_row();
        let waiter = Waiter { since: now, beaten_until: now + claim.ttl };
        let tracked = Tracked::new(now, row, claim, State::Waiting(waiter));
        let occupation = self.resources.get_or_insert(&resource, Occupation::default);
        occupation.join(&tracked);
        let position = occupation.queue.position(tracked.place());
        self.track(tracked);
        self.persist_claim(id);
        self.tell_changed(&resource);
        // If something is free and cannot be granted now, this notes who is to get it.
        self.grant_heads(now, &resource);
        ClaimAnswer::Waiting { position, limit, limit_was: was }
    }

    /// Names the holder, or the waiter that is about to be granted.
    fn contended(
        &self,
        now: Boottime,
        claim: &Claim,
        Permits { limit, was }: Permits,
    ) -> ClaimAnswer {
        let occupation = self.resources.get(&claim.resource);
        let holder = occupation.and_then(|it| it.holders.first());
        let next = || occupation.filter(|it| it.limit.is_none())?.queue.front();
        let named = holder.or_else(|| next().map(|(_, id)| id));
        let named = named.and_then(|id| self.claims.get(id));
        let free_in = named.and_then(|holder| match &holder.state {
            State::Granted(_) if limit.is_some() => Some(holder.deadline() - now),
            State::Granted(grant) => {
                let own = holder.claim.owner.session == claim.owner.session;
                let free_at = if own { grant.expires } else { grant.grace_end(&holder.claim) };
                Some(free_at - now)
            }
            State::Waiting(_) => None,
        });
        let holder = named.map(|named| named.standing(now));
        ClaimAnswer::Contended { holder, free_in, limit, limit_was: was }
    }

    /// The limit in force, if a claim asks for another and may not change that of others.
    fn limit_of_others(&self, claim: &Claim) -> Option<u32> {
        let Terms::Semaphore { limit, keeps: false, only_own: true } = claim.terms else {
            return None;
        };
        let occupation = self.resources.get(&claim.resource)?;
        let in_force = occupation.permits().filter(|in_force| *in_force != limit)?;
        let holders = occupation.holders.iter().map(|(_, id)| id);
        let mut users = holders.chain(occupation.queue.iter().map(|(_, id)| id));
        users.any(|user| !user.shares_mark(claim.id)).then_some(in_force)
    }

    /// Sets the limit of a semaphore to what a claim asks for.
    fn set_limit(&mut self, claim: &mut Claim) -> Permits {
        let Terms::Semaphore { limit, keeps, .. } = &mut claim.terms else {
            return Permits::default();
        };
        let resource = &claim.resource;
        let in_force = self.resources.get(resource).and_then(Occupation::permits);
        // A restart takes the limit from any of the claims.
        *limit = in_force.filter(|_| *keeps).unwrap_or(*limit);
        let permits = *limit;
        let was = in_force.filter(|in_force| *in_force != permits);
        let set = Limit { permits, is_saved: was.is_some() };
        let occupation = self.resources.get_or_insert(resource, || Occupation::of_permits(set));
        if was.is_some() {
            occupation.limit = Some(set);
            self.persist(Entry::Limit { resource: resource.clone(), limit: permits });
            self.tell_changed(resource);
        }
        Permits { limit: Some(permits), was }
    }

    /// Forgets a resource, and its limit, with its last user.
    pub(super) fn drop_unused(&mut self, resource: &Resource) {
        let Some(occupation) = self.resources.get(resource).filter(|it| it.is_unused()) else {
            return;
        };
        let is_saved = occupation.limit.is_some_and(|limit| limit.is_saved);
        self.resources.remove(resource);
        if is_saved {
            self.persist(Entry::LimitEnded { resource: resource.clone() });
        }
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
