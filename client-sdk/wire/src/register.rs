//! `POST /v1/register`.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The tenant of whoever names none.
pub const DEFAULT_TENANT: &str = "default";
/// The project of a session that names none.
pub const DEFAULT_PROJECT: &str = "default";

/// The tie of a session to life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tether {
    /// Alive while one of the session's event streams is open.
    Connection,
    /// Alive while a process lives: the one that registered, or the one that `pid` names.
    Process,
    /// Alive while `POST /v1/beat` comes within `keepalive_ms`.
    Keepalive,
}

/// Proof that a session belongs to the caller, to take it up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// The session to take up again.
    pub session: Uuid,
    /// The secret that its registration returned.
    pub secret: String,
}

/// Registers a program with the agent, or resumes an earlier registration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Register {
    /// The holder's name as people see it; 1–200 bytes. Default: that of the program or script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The kind of program, such as `cli` or `claude_desktop`. Default `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surface: Option<String>,
    /// The tenant in which all names are looked up. Default `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The project whose master this session may become. Naming one announces the session to the
    /// project's other sessions. Default `default`, unannounced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Default `keepalive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tether: Option<Tether>,
    /// The process that a process tether is tied to in place of the caller: one of the caller's user, for root anybody's, by the number
    /// that it has in the agent's PID namespace, which must be the caller's. Default: the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How long a keepalive tether lasts without a call, ms. Default 30 000. A call that waits for a grant
    /// is a sign of life when it comes, and while it waits as long as the session holds nothing; a
    /// session that holds something must send `POST /v1/beat` meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive_ms: Option<u64>,
    /// How long a connection tether waits for its first stream, 3 000 at least, and how long it outlives its last stream while the
    /// process lives, ms. Default 3 000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linger_ms: Option<u64>,
    /// The program's own promise to call `/v1/beat` at least this often, ms. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_ms: Option<u64>,
    /// How long the session outlives its last beat upstream, ms. Default 90 000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The guarded work goes on until the tether ends: a lost hold is kept from others until then,
    /// or until its valid-until has passed. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarded: Option<bool>,
    /// How many holds the session may have at once, waiting ones counted, 1 to 4095: so many slots
    /// has its page. Default 63.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<u32>,
    /// Take up an earlier session instead of making one; every other field is then ignored but `pid`, which a session that is tied to
    /// another process needs again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
}

/// Facts about the agent that a client talks to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentInfo {
    /// The agent's version.
    pub version: String,
    /// A hash of the machine id keyed for Tenure.
    pub host_id: String,
    /// The sort of upstream: `embedded`, `redis`, `gateway`.
    pub upstream: String,
    /// The guarantee of that upstream.
    pub guarantee: String,
}

/// The answer to [`Register`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Registered {
    /// The session.
    pub session: Uuid,
    /// The secret for [`Resume`]; hex.
    pub secret: String,
    /// How long the session outlives its last beat upstream, ms.
    pub ttl_ms: u64,
    /// How often the agent beats for the session, ms.
    pub beat_ms: u64,
    /// Path of the session's validity page.
    pub page: String,
    /// The boot in which BOOTTIME instants of this session mean something.
    pub boot_id: Uuid,
    /// True if an earlier session was taken up.
    pub resumed: bool,
    /// The agent.
    pub agent: AgentInfo,
}
