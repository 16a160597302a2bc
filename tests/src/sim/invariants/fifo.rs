//! I3: a semaphore is granted in the order of queueing, among those who still wait.

use std::collections::BTreeMap;

use tenured::model::{ClaimId, Resource, StandingEntry};

use super::Verdict;
use super::ledger::Step;

/// Who queued when. Kept here, not taken from the upstream's own order.
#[derive(Default)]
pub(crate) struct Fifo {
    arrivals: BTreeMap<Resource, Vec<ClaimId>>,
}

impl Fifo {
    /// A step of the upstream; `waiting` is who still waits after it.
    pub(crate) fn observe(
        &mut self,
        resource: &Resource,
        step: &Step,
        waiting: &[StandingEntry],
    ) -> Verdict {
        let arrivals = self.arrivals.entry(resource.clone()).or_default();
        // Who came in the same step as a grant at once may have come after it.
        let before = arrivals.len();
        for entry in waiting {
            if !arrivals.contains(&entry.claim) {
                arrivals.push(entry.claim);
            }
        }
        for grant in &step.granted {
            let place = arrivals.iter().position(|claim| *claim == grant.claim);
            let overtaken = arrivals[..place.unwrap_or(before)]
                .iter()
                .find(|claim| waiting.iter().any(|entry| entry.claim == **claim));
            if let Some(overtaken) = overtaken {
                return Err(format!(
                    "{} was granted {resource} before {overtaken}, which queued earlier and still \
                     waits",
                    grant.claim
                ));
            }
        }
        arrivals.retain(|claim| waiting.iter().any(|entry| entry.claim == *claim));
        Ok(())
    }

    /// The upstream forgot everything.
    pub(crate) fn reset(&mut self) {
        self.arrivals.clear();
    }
}
