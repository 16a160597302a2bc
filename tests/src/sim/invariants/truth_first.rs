//! I8: no reply, event or page says *held* before the upstream said so.

use tenured::model::ClaimId;

use super::Verdict;
use super::ledger::Ledger;

/// Compares what is said with what the upstream granted.
#[derive(Default)]
pub struct TruthFirst;

impl TruthFirst {
    /// `by` says that the claim is held with that token.
    pub fn said(&self, ledger: &Ledger, by: &str, claim: ClaimId, token: u64) -> Verdict {
        match ledger.fact(claim) {
            Some(fact) if fact.token == token => Ok(()),
            Some(fact) => Err(format!(
                "{by} says that {claim} is held with token {token}; the upstream granted it with \
                 {}",
                fact.token
            )),
            None => Err(format!("{by} says that {claim} is held; the upstream never granted it")),
        }
    }
}
