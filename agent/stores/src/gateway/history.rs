//! Changes of who holds what, between an agent and a gateway.

use serde::{Deserialize, Serialize};
use tenure_core::model::{HistoryEntry, Resource};

#[derive(Serialize, Deserialize)]
pub(super) struct HistoryOf {
    pub(super) resource: Resource,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Changes {
    pub(super) changes: Vec<HistoryEntry>,
}
