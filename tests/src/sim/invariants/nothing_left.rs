//! I5: whoever ended leaves nothing behind.
//!
//! Three things are checked: a claim whose release was confirmed is never seen again; a grant or a
//! place in a queue that its agent knows nothing of, and has no reason to know nothing of, does not
//! stay (somebody's claim was answered when nobody waited for it any more); and at the end of a run
//! nothing is left anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenured::model::ClaimId;

use super::super::time::TrueTime;
use super::Verdict;

/// A claim that its agent does not know may be there for so long: its release is on its way.
const GHOST_MAX: Duration = Duration::from_millis(500);

/// Claims that the upstream has confirmed to be released, and those that nobody owns up to.
#[derive(Default)]
pub(crate) struct NothingLeft {
    released: BTreeSet<ClaimId>,
    ghosts: BTreeMap<ClaimId, TrueTime>,
}

impl NothingLeft {
    /// An agent was told that its release of this claim is done.
    pub(crate) fn released(&mut self, claim: ClaimId) {
        self.released.insert(claim);
    }

    /// The upstream has these, held or waiting.
    pub(crate) fn present(&self, claims: impl Iterator<Item = ClaimId>) -> Verdict {
        for claim in claims {
            if self.released.contains(&claim) {
                return Err(format!(
                    "{claim} was confirmed to be released, and the upstream has it still, or again"
                ));
            }
        }
        Ok(())
    }

    /// These are upstream, and their agents know nothing of them.
    pub(crate) fn unowned(&mut self, now: TrueTime, ghosts: &[ClaimId]) -> Verdict {
        self.ghosts.retain(|claim, _| ghosts.contains(claim));
        for claim in ghosts {
            let since = *self.ghosts.entry(*claim).or_insert(now);
            if now.since(since) > GHOST_MAX {
                return Err(format!(
                    "{claim} is upstream, and its agent has known nothing of it for {:?}",
                    now.since(since)
                ));
            }
        }
        Ok(())
    }

    /// An agent keeps so many waits whose callers are gone.
    pub(crate) fn abandoned(&self, host: usize, count: usize) -> Verdict {
        if count == 0 {
            return Ok(());
        }
        Err(format!("host {host} keeps {count} waits whose callers are gone"))
    }

    /// The run is over, and there must be nothing of `what`.
    pub(crate) fn finished(&self, what: &str, left: &[String]) -> Verdict {
        if left.is_empty() {
            return Ok(());
        }
        Err(format!("after all programs ended there is left {what}: {}", left.join(", ")))
    }
}
