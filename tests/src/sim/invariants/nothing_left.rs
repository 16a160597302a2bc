//! I5: whoever ended leaves nothing behind.

use std::collections::BTreeSet;

use tenured::model::ClaimId;

use super::Verdict;

/// Claims that the upstream has confirmed to be released.
#[derive(Default)]
pub(crate) struct NothingLeft {
    released: BTreeSet<ClaimId>,
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

    /// The run is over, and there must be nothing of `what`.
    pub(crate) fn finished(&self, what: &str, left: &[String]) -> Verdict {
        if left.is_empty() {
            return Ok(());
        }
        Err(format!("after all programs ended there is left {what}: {}", left.join(", ")))
    }
}
