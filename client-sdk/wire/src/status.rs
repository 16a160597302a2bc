//! `GET /v1/status`.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{EndedCommand, HoldView, Role, Tether};

/// The state of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum UpstreamState {
    /// Not reached yet.
    Connecting,
    /// Answers.
    Up,
    /// Does not answer.
    Down,
    /// Answers, but grants nothing yet: earlier holds that this agent knows nothing of may be valid.
    Quarantined,
}

/// The agent itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentStatus {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// A hash of the machine id keyed for Tenure.
    pub host_id: String,
    /// The host's name.
    pub host: String,
    /// This boot.
    pub boot_id: Uuid,
    /// How long it has run, ms.
    pub uptime_ms: u64,
    /// Its clock when it answered, ns: CLOCK_BOOTTIME, on macOS CLOCK_MONOTONIC. It tells a client in
    /// another time namespace that valid-untils mean nothing to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boottime_ns: Option<u64>,
    /// Sessions of all users.
    pub sessions: u64,
    /// Holds of all users, waiting ones not counted.
    pub holds: u64,
    /// Waiting holds of all users.
    pub waiters: u64,
}

/// How late beats were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatenessStatus {
    /// Beats sent since the start.
    pub beats: u64,
    /// The latest one of all, µs after it was due.
    pub max_us: u64,
    /// Half of the last 4096 beats were at most this late, µs.
    pub p50_us: u64,
    /// 999 of 1000 of the last 4096 beats were at most this late, µs.
    pub p999_us: u64,
}

/// How long the upstream took to answer, or a call to fail, in the last ten minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatencyStatus {
    /// How many answers, or failures, there were.
    pub answers: u64,
    /// Half of them took at most this long, µs, rounded up by a quarter at most.
    pub p50_us: u64,
    /// 99 of 100 of them took at most this long, µs, rounded up by a quarter at most.
    pub p99_us: u64,
    /// The same of a single minute: at least three of the ten minutes had a p99 of this or more, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_often_us: Option<u64>,
    /// The slowest one, µs.
    pub max_us: u64,
    /// How long ago that one came, ms.
    pub max_ago_ms: u64,
}

/// A time in which the upstream was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Outage {
    /// How long it lasted, ms.
    pub lasted_ms: u64,
    /// How long ago it ended, ms.
    pub ended_ms: u64,
}

/// One of several gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GatewayStatus {
    /// Its host and port.
    pub address: String,
    /// True of the one that the agent uses.
    pub in_use: bool,
    /// Why it could not be used when the agent looked last; absent of one that can be, or that nobody has looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<String>,
    /// How long it has been away, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_ms: Option<u64>,
}

/// The upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UpstreamStatus {
    /// `embedded`, `redis` or `gateway`.
    pub kind: String,
    /// Its state.
    pub state: UpstreamState,
    /// The kind of the store behind the gateway, if that is down and the gateway itself is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// Its address, without any secret; absent when it is in the agent itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The gateways, where several are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayStatus>,
    /// Its guarantee.
    pub guarantee: String,
    /// How long it has been reached, or else has not been, ms; absent when it is in the agent itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// The last time that it was not reached and came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
    /// The last error; for 10 s after it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How long ago that was, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error_ms: Option<u64>,
    /// How late beats were sent.
    pub beat_lateness: LatenessStatus,
    /// How long it took to answer lately; absent where nothing was asked, or it is in the agent itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyStatus>,
}

/// The answer to `POST /v1/quarantine/end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuarantineEnded {
    /// True if there was a quarantine.
    pub ended: bool,
    /// How long it would have been, ms.
    pub left_ms: u64,
}

/// A session and its holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionStatus {
    /// The session.
    pub session: Uuid,
    /// Its name.
    pub name: String,
    /// The kind of program.
    pub surface: String,
    /// Its tenant.
    pub tenant: String,
    /// Its project.
    pub project: String,
    /// Its user.
    pub uid: u32,
    /// The process that registered; absent where it cannot be seen from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its tether.
    pub tether: Tether,
    /// Its role in its project.
    pub role: Role,
    /// Open event streams.
    pub streams: u32,
    /// The command that was guarded, if it has ended, and processes which it started keep the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_command: Option<EndedCommand>,
    /// Its holds.
    pub holds: Vec<HoldView>,
}

/// The answer to `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// The agent.
    pub agent: AgentStatus,
    /// The upstream.
    pub upstream: UpstreamStatus,
    /// The caller's sessions; for root and the agent's own user, everybody's. A page of them: a session
    /// whose holds do not fit goes on with the rest of them on the next page.
    pub sessions: Vec<SessionStatus>,
    /// How many sessions there are to see, on whichever page.
    #[serde(default)]
    pub total: u64,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
