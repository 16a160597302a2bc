//! `POST /v1/beat`, `POST /v1/checkpoint` and `POST /v1/leftovers`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{HoldState, Kind, LostEvent};

/// Says that the program lives and gets on. Local only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Beat {
    /// The session.
    pub session: Uuid,
    /// A hold that the program relies on: the answer says how long it is valid. Once it is over the beat is refused as
    /// `hold_lost`, with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Uuid>,
}

/// The answer to a [`Beat`] that names a hold, or of a session that has lost holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Beaten {
    /// How long the hold is valid from now on unless renewed, ms; 0 while it is waited for, and if no hold was named.
    pub valid_ms: u64,
    /// The same as an instant of CLOCK_BOOTTIME, ns.
    pub valid_until_boottime_ns: u64,
    /// The holds that the session has lost since the last answer to a beat, oldest first: the last 64 at most. Each is
    /// told once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostEvent>,
    /// How many were lost besides, before those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_more: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Renews everything of the session upstream now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The session.
    pub session: Uuid,
}

/// Says that the command that was guarded has ended, and that processes which it started keep the session. Local only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Leftovers {
    /// The session.
    pub session: Uuid,
    /// The exit status of the command; 128 + the signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Some of those processes, 8 at most, by their ids as whoever guarded the command sees them: the name of the program of
    /// each, 200 bytes at most. Empty where the system does not tell.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub processes: BTreeMap<u32, String>,
    /// How many there are besides.
    #[serde(default)]
    pub more: u64,
}

/// A command that has ended while processes which it started keep its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndedCommand {
    /// How long ago it ended, ms.
    pub ended_ms: u64,
    /// Its exit status; 128 + the signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Some of those processes, as of the end of the command: the name of the program by the process id.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub leftovers: BTreeMap<u32, String>,
    /// How many there were besides.
    #[serde(default)]
    pub more: u64,
}

/// The role of a session in its project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Holds the project's master.
    Master,
    /// Announced in the project, not its master.
    Peer,
    /// Not announced in any project.
    None,
}

/// A hold as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoldView {
    /// The hold.
    pub hold: Uuid,
    /// Its kind.
    pub kind: Kind,
    /// Its name; for a master the project.
    pub name: String,
    /// Its state.
    pub state: HoldState,
    /// The token of the grant; absent while waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// How long it has been held, ms; absent while waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// How long the hold outlives its last beat, ms.
    pub ttl_ms: u64,
    /// How long it is valid from now on unless renewed, ms; 0 while waiting.
    pub valid_ms: u64,
    /// The same as an instant of CLOCK_BOOTTIME, ns; 0 while waiting.
    pub valid_until_boottime_ns: u64,
    /// The slot on the session's page.
    pub slot: u32,
    /// Place in the queue while waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Semaphore only: the limit in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The client's id for the request that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The answer to [`Checkpoint`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Checkpointed {
    /// True.
    pub ok: bool,
    /// How long the session outlives this beat upstream, ms.
    pub ttl_remaining_ms: u64,
    /// The role of the session in its project.
    pub role: Role,
    /// Everything it holds or waits for.
    pub holds: Vec<HoldView>,
}
