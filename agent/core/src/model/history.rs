//! The past of a resource: its holders, and why it moved on.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_wire::Happened;

use super::{ClaimId, Owner, Program, Resource};

/// Most changes of a resource that are kept.
pub const HISTORY_MAX: usize = 50;
/// How long a change is kept.
pub const HISTORY_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Most changes in one [`Request::Record`](super::Request::Record).
pub const RECORD_MAX: usize = 128;

/// Most bytes of each text in a change.
pub const TEXT_BYTES_MAX: usize = 1024;

/// One change of who holds a resource. The claim and what happened say which one it is: told twice it is
/// kept once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    pub resource: Resource,
    pub claim: ClaimId,
    pub owner: Owner,
    pub token: u64,
    pub what: Happened,
    /// The holder's process, as far as its agent knew it.
    #[serde(default, skip_serializing_if = "Holder::is_unknown")]
    pub holder: Holder,
    /// Why it ended; nothing for a grant.
    #[serde(default, skip_serializing_if = "Ending::is_nothing")]
    pub end: Ending,
    /// How long it had been held at its end.
    #[serde(default)]
    pub held: Duration,
    /// How long ago it happened, when this is sent. Nobody's clock is compared with another's.
    #[serde(default)]
    pub ago: Duration,
}

impl HistoryEntry {
    /// True if both tell of the same change.
    pub fn is_same(&self, other: &HistoryEntry) -> bool {
        (self.claim, self.what) == (other.claim, other.what)
    }

    /// For how much longer a hold that has ended is kept from others; `None` if it is not.
    pub fn kept_for(&self) -> Option<Duration> {
        self.end.kept.checked_sub(self.ago).filter(|left| !left.is_zero())
    }
}

/// The process of a holder, on its host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Program::is_unknown")]
    pub program: Program,
}

impl Holder {
    fn is_unknown(&self) -> bool {
        *self == Holder::default()
    }
}

/// Why a hold ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The word of the wire: `released`, `session_ended`, or the reason of a loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// The same in more words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Arc<str>>,
    /// That of the process or command that held it: its exit code, or 128 + the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The words for somebody who took it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
    /// How long the hold is kept from others after its end, as its holder asked.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub kept: Duration,
}

impl Ending {
    fn is_nothing(&self) -> bool {
        *self == Ending::default()
    }
}
