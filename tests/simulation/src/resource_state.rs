//! The effects of a store, and a check that each was allowed.

use std::collections::BTreeMap;

use tenure::wire::Kind;
use tenure_core::model::{ClaimId, GoneReason, Resource, StandingEntry, UpstreamStanding};

use super::core::Core;
use super::invariants::{End, Invariant, Moment};

/// How a resource stands after a step of a store.
#[derive(Debug, Clone)]
pub(crate) struct ResourceState {
    pub(crate) resource: Resource,
    /// How.
    pub(crate) standing: UpstreamStanding,
    /// The highest limit that was in force within the step, if it hides several.
    pub(crate) highest_limit: Option<u32>,
    /// Why those have it no longer who had it before.
    pub(crate) ended: BTreeMap<ClaimId, GoneReason>,
    /// Expired leases that wait for their former holder.
    pub(crate) in_grace: Vec<ClaimId>,
}

impl ResourceState {
    /// Nobody has it.
    pub(crate) fn none(resource: Resource) -> ResourceState {
        let (standing, ended) = (UpstreamStanding::default(), BTreeMap::new());
        ResourceState { resource, standing, highest_limit: None, ended, in_grace: Vec::new() }
    }

    /// True if a watcher sees no difference from the other.
    pub(crate) fn is_like(&self, other: &ResourceState) -> bool {
        let same = |one: &[StandingEntry], other: &[StandingEntry]| {
            let claims = |of: &StandingEntry| (of.claim, of.token);
            one.iter().map(claims).eq(other.iter().map(claims))
        };
        same(&self.standing.holders, &other.standing.holders)
            && same(&self.standing.waiters, &other.standing.waiters)
            && self.standing.limit == other.standing.limit
            && self.in_grace == other.in_grace
    }
}

impl Core {
    /// Takes down a step of a store, and holds it against the rules of the order of things. What it
    /// means for pages is to be judged when the step counts.
    pub(crate) fn take_down(&mut self, step: Vec<ResourceState>) -> Vec<Moment> {
        let mut moments = Vec::new();
        let mut grants = Vec::new();
        for ResourceState { resource, standing, highest_limit, ended, in_grace } in step {
            let step = self.checks.ledger.observe(&resource, standing.clone());
            for claim in &step.ended {
                let end = End::Gone(ended.get(claim).copied().unwrap_or(GoneReason::Unknown));
                self.line(|| format!("upstream: {claim} of {resource} ended: {end:?}"));
                self.checks.ledger.ended(self.now, *claim, end);
                self.seen(end.as_str());
                moments.push(Moment::Ended(*claim, end));
            }
            let expired = End::Gone(GoneReason::Expired);
            moments.extend(in_grace.into_iter().map(|claim| Moment::Ended(claim, expired)));
            for grant in &step.granted {
                self.seen(match resource.kind {
                    Kind::Master => "grant of a master",
                    Kind::Leader => "grant of a leader",
                    Kind::Lease => "grant of a lease",
                    Kind::Semaphore => "grant of a permit",
                });
                self.line(|| {
                    let (claim, token) = (grant.claim, grant.token);
                    format!("upstream: {claim} granted {resource}, token {token}")
                });
                moments.push(Moment::Granted {
                    resource: resource.clone(),
                    claim: grant.claim,
                    holders: standing.holders.len(),
                    limit: step.limit.max(highest_limit.unwrap_or(0) as usize),
                });
                grants.push((resource.clone(), grant.clone()));
            }
            let verdict = self.checks.fifo.observe(&resource, &step, &standing.waiters);
            self.judge(Invariant::Fifo, verdict);
            let present = standing.holders.iter().chain(&standing.waiters);
            let verdict = self.checks.left.present(present.map(|entry| entry.claim));
            self.judge(Invariant::NothingLeft, verdict);
        }
        let verdict = self.checks.tokens.granted(&grants);
        self.judge(Invariant::RisingTokens, verdict);
        moments
    }
}
