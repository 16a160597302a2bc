//! The engine's limits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::defaults;

/// How soon to ask again when no durable token is left.
pub(super) const TOKEN_WAIT: Duration = Duration::from_millis(50);

/// How long what a waiter was granted is kept for it, until a beat of it comes.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSettings {
    /// How long an ended claim or session is remembered, so that a late copy of it is refused.
    pub tombstone: Duration,
    /// Most ended claims remembered; beyond, the oldest is forgotten.
    pub tombstones_max: usize,
    /// Most waiters of one resource; beyond, a claim is answered as if it would not queue.
    pub queue_max: usize,
}

impl EngineSettings {
    /// Most ended sessions remembered. There are fewer of them than of claims.
    pub(super) fn ended_sessions_max(&self) -> usize {
        self.tombstones_max / 4
    }
}

impl Default for EngineSettings {
    fn default() -> EngineSettings {
        EngineSettings {
            tombstone: Duration::from_secs(60),
            tombstones_max: 100_000,
            queue_max: defaults::QUEUE_MAX,
        }
    }
}
