//! Changes of sessions, claims and keys: the lines of the trail.

use std::sync::Arc;

use tenure_core::model::{ClaimId, GoneReason, Resource, SessionId};

/// The outcome of an end of what was not there.
pub(crate) const NOT_FOUND: &str = "not_found";
/// The outcome of a revocation of what was not there.
const NONE_REVOKED: &str = "revoked 0";

/// A change of a session, a claim or a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub event: Event,
    pub session: Option<SessionId>,
    pub claim: Option<ClaimId>,
    pub resource: Option<Resource>,
    pub token: Option<u64>,
    /// The name of the session that it is about.
    pub holder: Option<Arc<str>>,
    pub outcome: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Register,
    /// Not in the trail.
    Wait,
    Grant,
    Preemption,
    Release,
    Revocation,
    Loss,
    Refusal,
    /// How many refusals were not written one by one.
    RefusalsLeftOut,
    /// A key was added, changed or removed.
    Key,
    /// Lines were left out.
    Dropped,
}

impl Fact {
    /// False if nothing is different: callers can have as many of those as they like.
    pub fn has_effect(&self) -> bool {
        self.event != Event::Refusal && ![NOT_FOUND, NONE_REVOKED].contains(&&*self.outcome)
    }

    pub fn new(event: Event, outcome: &str) -> Fact {
        let outcome = outcome.to_owned();
        Fact {
            event,
            session: None,
            claim: None,
            resource: None,
            token: None,
            holder: None,
            outcome,
        }
    }
}

/// The word for why a claim is not there.
pub(super) fn outcome(reason: GoneReason) -> &'static str {
    match reason {
        GoneReason::Released => "released",
        GoneReason::Expired => "expired",
        GoneReason::Preempted => "preempted",
        GoneReason::Revoked => "revoked",
        GoneReason::Unknown => "unknown",
        GoneReason::Conflict => "conflict",
    }
}
