//! Hints from the upstream's change feed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ClaimId, Resource, SessionId};

/// Something happened upstream.
///
/// A hint, never the truth: it may come late, twice, or not at all, and makes its receiver ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// A holder or waiter of the resource came or went.
    Resource(Resource),
    /// A waiting claim may have been granted.
    Granted { claim: ClaimId, resource: Resource },
    /// A grant may have been taken away.
    Lost { claim: ClaimId, resource: Resource },
    /// A message to a project, or to one session of it.
    Message {
        tenant: Arc<str>,
        project: Arc<str>,
        /// Only this session.
        session: Option<SessionId>,
        payload: serde_json::Value,
    },
}
