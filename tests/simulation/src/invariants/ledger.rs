//! The upstream's true grants: every claim of an agent or a page is measured by them.

use std::collections::BTreeMap;

use tenure_core::model::{ClaimId, GoneReason, Resource, StandingEntry, UpstreamStanding};

use super::super::time::TrueTime;

/// How a grant ended upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As the upstream says.
    Gone(GoneReason),
    /// The upstream lost its data.
    Reset,
    /// The upstream lost its data, and grants nothing until what it forgot must have ended.
    ResetAndQuarantine,
}

impl End {
    /// For people.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            End::Gone(GoneReason::Released) => "upstream: released",
            End::Gone(GoneReason::Expired) => "upstream: expired",
            End::Gone(GoneReason::Preempted) => "upstream: preempted",
            End::Gone(GoneReason::Revoked) => "upstream: revoked",
            End::Gone(GoneReason::Unknown | GoneReason::Conflict) => "upstream: unknown",
            End::Reset | End::ResetAndQuarantine => "upstream: reset",
        }
    }

    /// True if the holder could not know: from that instant until its agent hears of it, its page is
    /// behind the truth. These are the only exceptions from exclusion; a fenced resource refuses
    /// such a holder by its token.
    pub(crate) fn is_unannounced(self) -> bool {
        matches!(
            self,
            End::Reset
                | End::ResetAndQuarantine
                | End::Gone(GoneReason::Preempted | GoneReason::Revoked)
        )
    }

    /// True if another claim may be granted the same before the holder knows.
    pub(crate) fn is_overlapping(self) -> bool {
        self.is_unannounced() && self != End::ResetAndQuarantine
    }
}

/// Facts of a claim.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub(crate) resource: Resource,
    /// Its token.
    pub(crate) token: u64,
    /// Tokens that it was granted with before: a doubled request that comes late can have a claim
    /// granted anew after it expired.
    pub(crate) earlier: Vec<u64>,
    /// How it ended, if it has.
    pub(crate) end: Option<End>,
    /// When.
    pub(crate) ended_at: Option<TrueTime>,
}

/// The change of a resource in one step of the upstream.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// New grants, lowest token first.
    pub(crate) granted: Vec<StandingEntry>,
    /// Grants that ended.
    pub(crate) ended: Vec<ClaimId>,
    /// Permits in all.
    pub(crate) limit: usize,
}

/// An effect of the upstream, to be compared with the pages at that instant.
#[derive(Debug)]
pub(crate) enum Moment {
    /// It let go of a grant.
    Ended(ClaimId, End),
    /// It granted a claim.
    Granted {
        resource: Resource,
        claim: ClaimId,
        /// How many grants of it there are now.
        holders: usize,
        /// How many there may be.
        limit: usize,
    },
}

/// Every grant of the run.
#[derive(Default)]
pub(crate) struct Ledger {
    facts: BTreeMap<ClaimId, Fact>,
    standings: BTreeMap<Resource, UpstreamStanding>,
}

impl Ledger {
    /// Takes down how a resource stands now, and tells what is different.
    pub(crate) fn observe(&mut self, resource: &Resource, after: UpstreamStanding) -> Step {
        let before = self.standings.remove(resource).unwrap_or_default();
        let has = |list: &[StandingEntry], claim| list.iter().any(|entry| entry.claim == claim);
        let mut granted: Vec<_> = after
            .holders
            .iter()
            .filter(|entry| !has(&before.holders, entry.claim))
            .cloned()
            .collect();
        granted.sort_by_key(|entry| entry.token);
        let ended = before.holders.iter().filter(|entry| !has(&after.holders, entry.claim));
        let step = Step {
            ended: ended.map(|entry| entry.claim).collect(),
            limit: after.limit.map_or(1, |limit| limit as usize),
            granted,
        };
        for entry in &step.granted {
            let mut earlier = Vec::new();
            if let Some(former) = self.facts.remove(&entry.claim) {
                earlier = former.earlier;
                earlier.push(former.token);
            }
            let (resource, token) = (resource.clone(), entry.token);
            self.facts
                .insert(entry.claim, Fact { resource, token, earlier, end: None, ended_at: None });
        }
        self.standings.insert(resource.clone(), after);
        step
    }

    /// Takes down how a grant ended.
    pub(crate) fn ended(&mut self, now: TrueTime, claim: ClaimId, end: End) {
        if let Some(fact) = self.facts.get_mut(&claim) {
            fact.end = Some(end);
            fact.ended_at = Some(now);
        }
    }

    /// The upstream forgot everything.
    pub(crate) fn reset(&mut self, end: End) {
        self.standings.clear();
        for fact in self.facts.values_mut().filter(|fact| fact.end.is_none()) {
            fact.end = Some(end);
        }
    }

    /// Facts of a claim that was granted.
    pub(crate) fn fact(&self, claim: ClaimId) -> Option<&Fact> {
        self.facts.get(&claim)
    }

    /// How a resource stands.
    pub(crate) fn standing(&self, resource: &Resource) -> Option<&UpstreamStanding> {
        self.standings.get(resource)
    }

    /// How every resource stands.
    pub(crate) fn standings(&self) -> impl Iterator<Item = (&Resource, &UpstreamStanding)> {
        self.standings.iter()
    }

    /// How many grants there were.
    pub(crate) fn grants(&self) -> usize {
        self.facts.len()
    }
}
