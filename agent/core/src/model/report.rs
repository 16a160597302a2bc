//! Reports of an upstream to its agent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Answer, CallId, Change, ClaimId, Failure, GoneReason, Revocation};
use crate::time::Boottime;

/// Something that the upstream has to say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// The outcome of a call.
    Answer {
        call: CallId,
        /// The instant just before the request, or the last repetition of it, was sent.
        sent_at: Boottime,
        result: Result<Answer, Failure>,
    },
    Change(Change),
    /// A claim has ended, and not by its release: the truth, told before whatever follows from it.
    Lost {
        claim: ClaimId,
        reason: GoneReason,
        /// The words of whoever revoked it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revocation: Option<Arc<Revocation>>,
    },
    /// Hints may have been lost: read everything again.
    FeedLost,
}
