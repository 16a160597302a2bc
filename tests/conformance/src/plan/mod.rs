//! The operations of a run, drawn from its seed before it begins.

mod cast;
mod claims;
mod draft;
mod looks;
mod time;

use std::ops::Range;

use draft::Draft;
use tenure_core::model::{ClaimId, Request, Resource};

use crate::operation::Operation;
use crate::replay::Difference;

/// Requests of a run, without those that end it.
const REQUESTS: usize = 400;

/// Most µs that a request takes, grants not counted.
const TICK_MAX_US: u64 = 3;

/// So many of a thousand runs begin with more of everything than goes into one page of an answer.
const CROWDED: u32 = 15;

/// The operations of a run, and their instants.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The µs within its ms at which the store's clock stands when time has passed.
    pub(crate) phase_us: u64,
    /// How much time every request takes there, besides one µs for each grant.
    pub(crate) tick_us: u64,
    /// True if nobody does what is due when it is due.
    pub(crate) lazy: bool,
    pub(crate) operations: Vec<Operation>,
    /// How many of the last operations let everything run out. Without them something is left.
    ending: usize,
}

impl Plan {
    /// The plan of a seed, with one of these ways of upkeep.
    pub(crate) fn draw(seed: u64, upkeep_in_time: &[bool]) -> Plan {
        let mut draft = Draft::begin(seed, upkeep_in_time);
        if draft.random.per_mille(CROWDED) {
            draft.crowd();
        }
        let requests = draft.requests + REQUESTS;
        while draft.requests < requests {
            draft.add();
        }
        let ending = draft.end();
        let phase_us = draft.random.number(400, 500);
        let tick_us = draft.random.number(1, TICK_MAX_US);
        Plan { phase_us, tick_us, lazy: draft.lazy, operations: draft.operations, ending }
    }

    /// A plan of given operations, the last of which let everything run out.
    pub(crate) fn of(operations: Vec<Operation>, removable: usize, lazy: bool) -> Plan {
        let ending = operations.len() - removable;
        Plan { phase_us: 450, tick_us: 2, lazy, operations, ending }
    }

    /// True if it goes on until everything has run out.
    pub(crate) fn ends(&self) -> bool {
        self.ending > 0
    }

    /// How many of its first operations may be left out.
    pub(crate) fn removable(&self) -> usize {
        self.operations.len() - self.ending
    }

    /// The plan without some of its operations.
    pub(crate) fn without(&self, left_out: Range<usize>) -> Plan {
        let mut plan = self.clone();
        plan.operations.drain(left_out);
        plan
    }

    /// The plan up to where it showed a difference.
    pub(crate) fn cut(mut self, difference: &Difference) -> Plan {
        if difference.at < self.operations.len() {
            self.operations.truncate(difference.at + 1);
            self.ending = 0;
        }
        self
    }

    /// Every claim of a resource that occurs in it.
    pub(crate) fn claims_of(&self, resource: &Resource) -> Vec<ClaimId> {
        let claims = self.operations.iter().filter_map(|operation| match operation {
            Operation::Ask(Request::Claim(claim)) if claim.resource == *resource => Some(claim.id),
            _ => None,
        });
        claims.collect()
    }

    /// Every resource that occurs in it.
    pub(crate) fn resources(&self) -> Vec<Resource> {
        let mut found: Vec<Resource> = Vec::new();
        for operation in &self.operations {
            let resource = match operation {
                Operation::Ask(Request::Claim(claim)) => &claim.resource,
                Operation::Ask(Request::Release { resource, .. } | Request::Inspect(resource)) => {
                    resource
                }
                _ => continue,
            };
            found.push(resource.clone());
        }
        found.sort();
        found.dedup();
        found
    }
}
