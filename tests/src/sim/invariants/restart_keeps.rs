//! I9: a restart of the agent loses no valid hold.

use tenured::model::{ClaimId, SessionId};

use super::Verdict;

/// Compares what pages said before a start with what the agent knows after it.
#[derive(Default)]
pub(crate) struct RestartKeeps;

impl RestartKeeps {
    /// An agent started; `believed` is what the pages said, `known` what it has taken up.
    pub(crate) fn started(
        &self,
        host: usize,
        believed: &[(SessionId, ClaimId)],
        known: &[ClaimId],
    ) -> Verdict {
        match believed.iter().find(|(_, claim)| !known.contains(claim)) {
            None => Ok(()),
            Some((session, claim)) => Err(format!(
                "the agent of host {host} started and does not know {claim}, which the page of \
                 session {session} says is held"
            )),
        }
    }
}
