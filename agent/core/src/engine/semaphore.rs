//! Semaphores: as many permits as the limit says, strictly in the order of claiming.

use std::collections::BTreeMap;

use super::claims::{Grant, State, Tracked, Waiter};
use super::journal::Entry;
use super::settings::TOKEN_WAIT;
use super::{Engine, Occupation};
use crate::model::{
    Change, Claim, ClaimAnswer, ClaimId, GoneReason, Queue, Resource, Terms, spare,
};
use crate::time::Boottime;

#[derive(Debug)]
pub(super) struct Semaphore {
    /// In force for everybody: that of the latest claim.
    pub(super) limit: u32,
    /// True if the journal has a row for the limit. It needs one only when users disagree; else any
    /// of their claims tells.
    pub(super) limit_saved: bool,
    /// By token, so oldest grant first.
    pub(super) holders: BTreeMap<u64, ClaimId>,
    /// By row, so in the order of claiming.
    pub(super) queue: Queue<u64>,
}

impl Semaphore {
    pub(super) fn new(limit: u32) -> Semaphore {
        Semaphore { limit, limit_saved: false, holders: BTreeMap::new(), queue: Queue::default() }
    }

    pub(super) fn has_free_permit(&self) -> bool {
        self.holders.len() < self.limit as usize
    }

    fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }
}

/// The outcome for a claim.
enum Turn {
    Now,
    Queue,
    Refused,
}

impl Engine {
    pub(super) fn claim_permit(
        &mut self,
        now: Boottime,
        mut claim: Claim,
        limit: u32,
        keeps: bool,
    ) -> ClaimAnswer {
        let resource = claim.resource.clone();
        let in_force = self.semaphore_mut(&resource).map(|semaphore| semaphore.limit);
        let limit = in_force.filter(|_| keeps).unwrap_or(limit);
        let limit_was = in_force.filter(|in_force| *in_force != limit);
        // A restart takes the limit from any of the claims.
        claim.terms = Terms::Semaphore { limit, keeps };
        self.set_limit(&resource, limit);
        self.grant_heads(now, &resource);
        let can_grant = self.grants_in(now).is_none();
        let turn = match self.resources.get(&resource) {
            Some(Occupation::Semaphore(semaphore)) => {
                if can_grant && semaphore.has_free_permit() && semaphore.queue.is_empty() {
                    Turn::Now
                } else if claim.enqueue && semaphore.queue.len() < self.settings.queue_max {
                    Turn::Queue
                } else {
                    Turn::Refused
                }
            }
            _ => Turn::Refused,
        };
        let answer = match turn {
            Turn::Now => self.grant_permit(now, claim, limit, limit_was),
            Turn::Queue => self.enqueue(now, claim, limit, limit_was),
            Turn::Refused => self.permit_contended(now, &resource, limit, limit_was),
        };
        self.drop_unused(&resource);
        answer
    }

    fn grant_permit(
        &mut self,
        now: Boottime,
        claim: Claim,
        limit: u32,
        limit_was: Option<u32>,
    ) -> ClaimAnswer {
        let Some(token) = self.take_token() else {
            return ClaimAnswer::Quarantined { free_in: TOKEN_WAIT };
        };
        let (id, resource) = (claim.id, claim.resource.clone());
        if let Some(semaphore) = self.semaphore_mut(&resource) {
            semaphore.holders.insert(token, id);
        }
        let row = self.take_row();
        let grant = Grant::new(now, &claim, token);
        self.track(Tracked::new(now, row, claim, State::Granted(grant)));
        self.persist_claim(id);
        self.tell_changed(&resource);
        ClaimAnswer::Held { token, limit: Some(limit), limit_was }
    }

    fn enqueue(
        &mut self,
        now: Boottime,
        claim: Claim,
        limit: u32,
        limit_was: Option<u32>,
    ) -> ClaimAnswer {
        let (id, resource) = (claim.id, claim.resource.clone());
        let row = self.take_row();
        let mut position = 0;
        if let Some(semaphore) = self.semaphore_mut(&resource) {
            semaphore.queue.insert(row, id);
            position = semaphore.queue.len() as u64;
        }
        let waiter = Waiter { since: now, beaten_until: now + claim.ttl };
        self.track(Tracked::new(now, row, claim, State::Waiting(waiter)));
        self.persist_claim(id);
        self.tell_changed(&resource);
        // If a permit is free and cannot be granted now, this notes who is to get it.
        self.grant_heads(now, &resource);
        ClaimAnswer::Waiting { position, limit: Some(limit), limit_was }
    }

    fn permit_contended(
        &self,
        now: Boottime,
        resource: &Resource,
        limit: u32,
        limit_was: Option<u32>,
    ) -> ClaimAnswer {
        let oldest = match self.resources.get(resource) {
            Some(Occupation::Semaphore(semaphore)) => semaphore.holders.values().next(),
            _ => None,
        };
        let oldest = oldest.and_then(|id| self.claims.get(id));
        ClaimAnswer::Contended {
            holder: oldest.map(|tracked| tracked.standing(now)),
            free_in: oldest.map(|tracked| tracked.deadline() - now),
            limit: Some(limit),
            limit_was,
        }
    }

    /// Gives free permits to whoever waits first and is alive.
    pub(super) fn grant_heads(&mut self, now: Boottime, resource: &Resource) {
        loop {
            let Some(Occupation::Semaphore(semaphore)) = self.resources.get(resource) else {
                return;
            };
            let Some((row, id)) = semaphore.queue.front() else { return };
            if !semaphore.has_free_permit() {
                return;
            }
            // Those who wait may have run out together with the holder.
            if self.has_done_much() {
                self.blocked.insert(resource.clone());
                return;
            }
            let alive = self.claims.get(&id).is_some_and(|tracked| now < tracked.deadline());
            if !alive {
                if let Some(semaphore) = self.semaphore_mut(resource) {
                    semaphore.queue.remove(row);
                }
                self.retire(now, id, GoneReason::Expired);
                self.tell(Change::Lost { claim: id, resource: resource.clone() });
                self.tell_changed(resource);
                continue;
            }
            if self.grants_in(now).is_some() {
                self.blocked.insert(resource.clone());
                return;
            }
            let Some(token) = self.take_token() else {
                self.blocked.insert(resource.clone());
                return;
            };
            self.grant_waiter(now, resource, row, id, token);
        }
    }

    fn grant_waiter(
        &mut self,
        now: Boottime,
        resource: &Resource,
        row: u64,
        id: ClaimId,
        token: u64,
    ) {
        if let Some(semaphore) = self.semaphore_mut(resource) {
            semaphore.queue.remove(row);
            semaphore.holders.insert(token, id);
        }
        if let Some(tracked) = self.claims.get_mut(&id) {
            tracked.state = State::Granted(Grant::unconfirmed(now, &tracked.claim, token));
            let deadline = tracked.deadline();
            if deadline < tracked.armed {
                self.timers.disarm(tracked.armed, super::Timer::Claim(id));
                self.timers.arm(deadline, super::Timer::Claim(id));
                tracked.armed = deadline;
            }
        }
        self.persist(Entry::WaiterEnded { row });
        self.persist_claim(id);
        self.tell_changed(resource);
        self.tell(Change::Granted { claim: id, resource: resource.clone() });
    }

    fn set_limit(&mut self, resource: &Resource, limit: u32) {
        let occupation = self
            .resources
            .entry(resource.clone())
            .or_insert_with(|| Occupation::Semaphore(Semaphore::new(limit)));
        let Occupation::Semaphore(semaphore) = occupation else { return };
        if semaphore.limit == limit {
            return;
        }
        semaphore.limit = limit;
        semaphore.limit_saved = true;
        self.persist(Entry::Limit { resource: resource.clone(), limit });
        self.tell_changed(resource);
    }

    /// Forgets a semaphore, and its limit, with its last user.
    pub(super) fn drop_unused(&mut self, resource: &Resource) {
        let Some(Occupation::Semaphore(semaphore)) = self.resources.get(resource) else { return };
        if !semaphore.is_unused() {
            return;
        }
        let limit_saved = semaphore.limit_saved;
        self.resources.remove(resource);
        spare::shrink_map(&mut self.resources);
        self.blocked.remove(resource);
        if limit_saved {
            self.persist(Entry::LimitEnded { resource: resource.clone() });
        }
    }

    pub(super) fn semaphore_mut(&mut self, resource: &Resource) -> Option<&mut Semaphore> {
        match self.resources.get_mut(resource) {
            Some(Occupation::Semaphore(semaphore)) => Some(semaphore),
            _ => None,
        }
    }
}
