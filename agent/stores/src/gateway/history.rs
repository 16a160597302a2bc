//! Changes of who holds what, between an agent and a gateway.

use serde::{Deserialize, Serialize};
use serde_json::Error;
use tenure_core::model::{HistoryEntry, RECORD_MAX, Resource, TEXT_BYTES_MAX};

#[derive(Serialize, Deserialize)]
pub(super) struct HistoryOf {
    pub(super) resource: Resource,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Changes {
    pub(super) changes: Vec<HistoryEntry>,
}

/// Changes that a store may keep.
pub(super) fn sound(changes: Vec<HistoryEntry>) -> Result<Vec<HistoryEntry>, Error> {
    if changes.len() > RECORD_MAX || !changes.iter().all(HistoryEntry::is_short) {
        let rule = format!("at most {RECORD_MAX} changes with texts of {TEXT_BYTES_MAX} bytes");
        return Err(serde::de::Error::custom(rule));
    }
    Ok(changes)
}
