//! Hints from the upstream's change feed.

use std::sync::Arc;

use super::{ClaimId, Resource, SessionId};

/// Something happened upstream.
///
/// A hint, never the truth: it may come late, twice, or not at all, and whoever gets one asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A holder or waiter of the resource came or went.
    Resource(Resource),
    /// A waiting claim may have been granted.
    Granted { claim: ClaimId, resource: Resource },
    /// A grant may have been taken away.
    Lost { claim: ClaimId, resource: Resource },
    /// A message to a project, or to one session of it.
    Message {
        /// The tenant.
        tenant: Arc<str>,
        /// The project.
        project: Arc<str>,
        /// Only this session.
        session: Option<SessionId>,
        payload: serde_json::Value,
    },
}
