//! `GET /v1/history`.

use serde::{Deserialize, Serialize};

use super::Kind;

/// The sort of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// Somebody was granted it.
    Granted,
    /// Its holder gave it back, or the holder's session ended.
    Released,
    /// Its holder lost it.
    Lost,
}

impl Happened {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Happened::Granted => "granted",
            Happened::Released => "released",
            Happened::Lost => "lost",
        }
    }
}

impl std::fmt::Display for Happened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One change of who holds a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryEntry {
    /// How long ago it happened, ms.
    pub ago_ms: u64,
    /// The sort of the change.
    pub what: Happened,
    /// The fencing token of the grant.
    pub token: u64,
    /// The host of the holder.
    pub host: String,
    /// The name of the holder's session.
    pub name: String,
    /// The holder's process and its user, as far as its agent knew them.
    #[serde(flatten)]
    pub program: ProgramView,
    /// How long it had been held at its end, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
    /// Why it ended: `released`, `session_ended`, `wait_timeout`, or the reason of a loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in more words, such as `its process ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The exit status of the process or command that held it; 128 + the signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The user and host that took it away, for one that was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A program as people look for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProgramView {
    /// The process that registered, on its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The name of its user on its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its command line, cut to 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// The last changes of who holds a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// The tenant.
    pub tenant: String,
    /// The kind.
    pub kind: Kind,
    /// The name.
    pub name: String,
    /// Newest first; at most 50, of the last 7 days.
    pub changes: Vec<HistoryEntry>,
}
