//! Hints from the upstream's change feed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ClaimId, Resource, SessionId};
use crate::time::Boottime;

/// What a grant to a waiter said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantHint {
    /// The fencing token.
    pub token: u64,
    /// Semaphore only: the limit in force.
    pub limit: Option<u32>,
    /// Others are granted it no earlier than this, by the clock of whoever is told, though no beat confirms it.
    pub confirm_by: Boottime,
}

/// Something happened upstream.
///
/// A hint, never the truth: it may come late, twice, or not at all, and makes its receiver ask. One that carries
/// what a grant said may be acted on until the instant that it names, while its receiver asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// A holder or waiter of the resource came or went.
    Resource(Resource),
    /// A waiting claim may have been granted.
    Granted {
        claim: ClaimId,
        resource: Resource,
        /// What the grant said, where that is known.
        grant: Option<GrantHint>,
    },
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
