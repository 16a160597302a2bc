//! Reports of an upstream to its agent.

use super::{Answer, CallId, Change, ClaimId, Failure, GoneReason};
use crate::time::Boottime;

/// Something that the upstream has to say.
#[derive(Debug)]
pub enum Report {
    /// The outcome of a call.
    Answer {
        call: CallId,
        /// The instant just before the request, or the last repetition of it, was sent.
        sent_at: Boottime,
        /// The answer, or why there is none.
        result: Result<Answer, Failure>,
    },
    /// A hint.
    Change(Change),
    /// A claim has ended, and not by its release: the truth, told before whatever follows from it.
    Lost {
        claim: ClaimId,
        /// Why.
        reason: GoneReason,
    },
    /// Hints may have been lost: read everything again.
    FeedLost,
}
