//! I2: tokens strictly increase in grant order, across restarts and losses of the upstream.

use tenure_core::model::{Resource, StandingEntry};

use super::Verdict;

/// The highest token so far, of all resources: a namespace has one sequence.
#[derive(Default)]
pub(crate) struct RisingTokens {
    last: u64,
}

impl RisingTokens {
    /// The upstream's grants in one step, of all resources.
    pub(crate) fn granted(&mut self, grants: &[(Resource, StandingEntry)]) -> Verdict {
        let mut tokens: Vec<u64> = grants.iter().map(|(_, entry)| entry.token).collect();
        tokens.sort_unstable();
        for token in tokens {
            if token <= self.last {
                return Err(format!(
                    "token {token} was granted after token {}: {grants:?}",
                    self.last
                ));
            }
            self.last = token;
        }
        Ok(())
    }
}
