//! Events of `GET /v1/events` and `GET /v1/observe`.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{HoldView, Kind, LimitChanged, Role, Standing};

/// Why a hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LostReason {
    /// Its valid-until passed before a renewal was confirmed.
    Expired,
    /// A session of higher priority took it.
    Preempted,
    /// The program broke its own progress promise.
    Stalled,
    /// It lasted as long as it was allowed to.
    MaxHold,
    /// An administrator took it away.
    Revoked,
    /// The upstream lost its data.
    UpstreamReset,
    /// The upstream says that somebody else has it.
    Conflict,
    /// The agent is stopping.
    AgentStopping,
    /// The machine slept past its valid-until.
    Slept,
}

impl LostReason {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            LostReason::Expired => "expired",
            LostReason::Preempted => "preempted",
            LostReason::Stalled => "stalled",
            LostReason::MaxHold => "max_hold",
            LostReason::Revoked => "revoked",
            LostReason::UpstreamReset => "upstream_reset",
            LostReason::Conflict => "conflict",
            LostReason::AgentStopping => "agent_stopping",
            LostReason::Slept => "slept",
        }
    }
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a hold ended without being lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReleasedCause {
    /// The client released it, or cancelled its wait.
    Client,
    /// The wait reached its `timeout_ms`.
    WaitTimeout,
    /// The session ended.
    SessionEnded,
}

/// Everything the session holds or waits for: the first event of a fresh stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SnapshotEvent {
    /// The session.
    pub session: Uuid,
    /// The role of the session in its project.
    pub role: Role,
    /// Its holds.
    pub holds: Vec<HoldView>,
}

/// The hold that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoldEvent {
    /// The hold.
    pub hold: Uuid,
    /// Its kind.
    pub kind: Kind,
    /// Its name; for a master the project.
    pub name: String,
}

/// The place in the queue changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueuedEvent {
    /// The hold.
    #[serde(flatten)]
    pub of: HoldEvent,
    /// 1 is next.
    pub position: u64,
}

/// A hold was granted, or is out of danger again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantedEvent {
    /// The hold.
    #[serde(flatten)]
    pub of: HoldEvent,
    /// The fencing token of the grant.
    pub token: u64,
    /// How long the hold outlives its last beat, ms.
    pub ttl_ms: u64,
    /// How long it is valid from now on unless renewed, ms.
    pub valid_ms: u64,
    /// The same as an instant of CLOCK_BOOTTIME, ns.
    pub valid_until_boottime_ns: u64,
    /// The slot on the session's page.
    pub slot: u32,
    /// Semaphore only: the limit in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Semaphore only: the request for it changed the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_changed: Option<LimitChanged>,
}

/// A renewal is unknown: the hold is valid, but not for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JeopardyEvent {
    /// The hold.
    #[serde(flatten)]
    pub of: HoldEvent,
    /// The fencing token of the grant.
    pub token: u64,
    /// The cause.
    pub cause: String,
    /// How long it is valid from now on unless renewed, ms.
    pub valid_ms: u64,
}

/// A hold is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LostEvent {
    /// The hold.
    #[serde(flatten)]
    pub of: HoldEvent,
    /// The fencing token that it had.
    pub token: u64,
    /// Why.
    pub reason: LostReason,
    /// `revoked` only: the user and host that took it away, such as `root on hostb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// `revoked`: the reason that they gave; `expired` and `slept`: what kept it from being renewed, and for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl LostEvent {
    /// The reason as people read it, such as `revoked by root on hostb: upgrade`.
    pub fn words(&self) -> String {
        let mut words = self.reason.to_string();
        if let Some(by) = &self.by {
            words.push_str(" by ");
            words.push_str(by);
        }
        if let Some(detail) = &self.detail {
            words.push_str(": ");
            words.push_str(detail);
        }
        words
    }
}

/// A hold was given back, or a wait ended without a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleasedEvent {
    /// The hold.
    #[serde(flatten)]
    pub of: HoldEvent,
    /// The fencing token that it had; absent when it never was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Why.
    pub cause: ReleasedCause,
}

/// A broadcast to the project, or a push to this session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageEvent {
    /// The project it was sent to.
    pub project: String,
    /// True if it was meant for this session alone.
    pub direct: bool,
    /// The message, such as `{"type":"session_ended","session":"…"}`.
    pub payload: serde_json::Value,
}

/// The agent ends the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShutdownEvent {
    /// `stopping` (holds are released), `restarting` (holds survive: reconnect), `session_ended`
    /// or `lagged` (reconnect).
    pub cause: String,
}

/// One event of a session's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Events))]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum Event {
    /// All holds with their state.
    Snapshot(SnapshotEvent),
    /// The place in the queue changed.
    Queued(QueuedEvent),
    /// Granted.
    Granted(GrantedEvent),
    /// In danger.
    Jeopardy(JeopardyEvent),
    /// Out of danger again.
    Safe(GrantedEvent),
    /// Gone.
    Lost(LostEvent),
    /// Given back.
    Released(ReleasedEvent),
    /// The project's master, or a watched resource, changed.
    Standing(Standing),
    /// A message.
    Message(MessageEvent),
    /// The stream ends.
    Shutdown(ShutdownEvent),
}

impl Event {
    /// The `event:` field of the stream.
    pub const fn name(&self) -> &'static str {
        match self {
            Event::Snapshot(_) => "snapshot",
            Event::Queued(_) => "queued",
            Event::Granted(_) => "granted",
            Event::Jeopardy(_) => "jeopardy",
            Event::Safe(_) => "safe",
            Event::Lost(_) => "lost",
            Event::Released(_) => "released",
            Event::Standing(_) => "standing",
            Event::Message(_) => "message",
            Event::Shutdown(_) => "shutdown",
        }
    }

    /// The `data:` field of the stream: one line of JSON.
    ///
    /// # Errors
    ///
    /// Those of [`serde_json::to_string`]; none for the shapes of this enum.
    pub fn data(&self) -> serde_json::Result<String> {
        match self {
            Event::Snapshot(data) => serde_json::to_string(data),
            Event::Queued(data) => serde_json::to_string(data),
            Event::Granted(data) | Event::Safe(data) => serde_json::to_string(data),
            Event::Jeopardy(data) => serde_json::to_string(data),
            Event::Lost(data) => serde_json::to_string(data),
            Event::Released(data) => serde_json::to_string(data),
            Event::Standing(data) => serde_json::to_string(data),
            Event::Message(data) => serde_json::to_string(data),
            Event::Shutdown(data) => serde_json::to_string(data),
        }
    }

    /// Reads an event from the two fields of the stream; `None` for a name that this version does
    /// not know, which a client skips.
    ///
    /// # Errors
    ///
    /// When the data is not what the name promises.
    pub fn parse(name: &str, data: &str) -> serde_json::Result<Option<Event>> {
        Ok(Some(match name {
            "snapshot" => Event::Snapshot(serde_json::from_str(data)?),
            "queued" => Event::Queued(serde_json::from_str(data)?),
            "granted" => Event::Granted(serde_json::from_str(data)?),
            "jeopardy" => Event::Jeopardy(serde_json::from_str(data)?),
            "safe" => Event::Safe(serde_json::from_str(data)?),
            "lost" => Event::Lost(serde_json::from_str(data)?),
            "released" => Event::Released(serde_json::from_str(data)?),
            "standing" => Event::Standing(serde_json::from_str(data)?),
            "message" => Event::Message(serde_json::from_str(data)?),
            "shutdown" => Event::Shutdown(serde_json::from_str(data)?),
            _ => return Ok(None),
        }))
    }
}
