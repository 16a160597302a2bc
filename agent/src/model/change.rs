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
    Granted {
        /// Which.
        claim: ClaimId,
        /// Of what.
        resource: Resource,
    },
    /// A grant may have been taken away.
    Lost {
        /// Which.
        claim: ClaimId,
        /// Of what.
        resource: Resource,
    },
    /// A message to a project, or to one session of it.
    Message {
        /// The tenant.
        tenant: Arc<str>,
        /// The project.
        project: Arc<str>,
        /// Only this session.
        session: Option<SessionId>,
        /// What was sent.
        payload: serde_json::Value,
    },
}
