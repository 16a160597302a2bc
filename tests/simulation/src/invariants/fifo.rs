//! I3: every resource is granted in the order of queueing, among those who still wait; a master by priority,
//! then in that order, and an expired lease to its former session before all others. Whoever claims while
//! nothing may be granted has a place from then on, whether the upstream queues it or not.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tenure::wire::Kind;
use tenure_core::model::{Claim, ClaimId, Resource, SessionId, StandingEntry};

use super::Verdict;
use super::ledger::Step;

/// The order of the queue. Kept here, not taken from the upstream's own order.
#[derive(Default)]
pub(crate) struct Fifo {
    arrivals: BTreeMap<Resource, Vec<ClaimId>>,
    /// Claims that have a place and are in no queue, by their place.
    postponed: BTreeMap<Resource, Vec<Postponed>>,
    /// Those of a lower rank come later, whenever they came.
    ranks: BTreeMap<ClaimId, Reverse<i32>>,
    /// Whose grant was the last.
    last: BTreeMap<Resource, SessionId>,
}

#[derive(Debug)]
struct Postponed {
    claim: ClaimId,
    /// The later one that was granted before it.
    overtaken_by: Option<ClaimId>,
}

impl Fifo {
    /// An agent claims.
    pub(crate) fn claimed(&mut self, claim: &Claim) {
        self.ranks.insert(claim.id, claim.rank());
    }

    /// The upstream was asked to queue a claim, and told it to come again.
    pub(crate) fn postponed(&mut self, resource: &Resource, claim: ClaimId) {
        let list = self.postponed.entry(resource.clone()).or_default();
        if list.iter().all(|it| it.claim != claim) {
            list.push(Postponed { claim, overtaken_by: None });
        }
    }

    /// A step of the upstream; `waiting` is who still waits after it.
    pub(crate) fn observe(
        &mut self,
        resource: &Resource,
        step: &Step,
        waiting: &[StandingEntry],
    ) -> Verdict {
        self.came_again(resource, step, waiting)?;
        let arrivals = self.arrivals.entry(resource.clone()).or_default();
        // A waiter of the same step as an immediate grant may have come after it.
        let before = arrivals.len();
        for entry in waiting {
            if !arrivals.contains(&entry.claim) {
                arrivals.push(entry.claim);
            }
        }
        let rank = |claim: &ClaimId| self.ranks.get(claim).copied().unwrap_or(Reverse(0));
        for grant in &step.granted {
            let former = self.last.insert(resource.clone(), grant.owner.session);
            let follows = !step.ended.is_empty() && former == Some(grant.owner.session);
            if resource.kind == Kind::Lease && follows {
                // The grant ran out, though a release that came in the same step may be what is told.
                continue;
            }
            let place = arrivals.iter().position(|claim| *claim == grant.claim);
            let place = (rank(&grant.claim), place.unwrap_or(before));
            let mut earlier = arrivals[..before].iter().enumerate();
            let overtaken = earlier.find(|(at, claim)| {
                (rank(claim), *at) < place && waiting.iter().any(|entry| entry.claim == **claim)
            });
            if let Some((_, overtaken)) = overtaken {
                return Err(format!(
                    "{} was granted {resource} before {overtaken}, which comes first and still \
                     waits",
                    grant.claim
                ));
            }
        }
        arrivals.retain(|claim| waiting.iter().any(|entry| entry.claim == *claim));
        Ok(())
    }

    fn came_again(
        &mut self,
        resource: &Resource,
        step: &Step,
        waiting: &[StandingEntry],
    ) -> Verdict {
        let Some(list) = self.postponed.get_mut(resource) else { return Ok(()) };
        for entry in step.granted.iter().chain(waiting) {
            let Some(place) = list.iter().position(|it| it.claim == entry.claim) else { continue };
            let came = list.remove(place);
            if let Some(other) = came.overtaken_by {
                return Err(format!(
                    "{other} was granted {resource} before {}, which was told to come again earlier",
                    came.claim
                ));
            }
            if step.granted.iter().any(|grant| grant.claim == came.claim) {
                for earlier in &mut list[..place] {
                    earlier.overtaken_by.get_or_insert(came.claim);
                }
            }
        }
        Ok(())
    }

    /// The upstream forgot everything.
    pub(crate) fn reset(&mut self) {
        self.arrivals.clear();
        self.postponed.clear();
        self.last.clear();
    }
}
