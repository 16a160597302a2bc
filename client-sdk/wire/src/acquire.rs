//! `POST /v1/acquire` and `POST /v1/release`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The kind of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One per tenant and project; a higher priority preempts.
    Master,
    /// One per role.
    Leader,
    /// One holder, with address and grace, listed in the routing table.
    Lease,
    /// As many permits as the limit says, first come first served.
    Semaphore,
}

impl Kind {
    /// All kinds, in the order in which documents name them.
    pub const ALL: [Kind; 4] = [Kind::Master, Kind::Leader, Kind::Lease, Kind::Semaphore];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Master => "master",
            Kind::Leader => "leader",
            Kind::Lease => "lease",
            Kind::Semaphore => "semaphore",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            format!("{text:?} is not a kind: use master, leader, lease or semaphore")
        })
    }
}

/// The behaviour while the resource is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Try once.
    #[default]
    None,
    /// Answer when granted, or at `timeout_ms`.
    Block,
    /// Answer now; `granted` comes as an event.
    Queue,
}

/// A lease's entry in the routing table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Attributes {
    /// The holder's address, such as `10.0.0.7:8982`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The proxy in front of the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_id: Option<String>,
    /// 0–255. Default: CRC-32/IEEE of the name, modulo 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u16>,
    /// A word of the holder's own. Default `active`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// Asks for a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Acquire {
    /// The session that asks.
    pub session: Uuid,
    /// The kind of the resource.
    pub kind: Kind,
    /// The name; 1–200 bytes of visible UTF-8 in the normal form NFC. A master has none: it is its session's project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The behaviour while it is taken.
    #[serde(default)]
    pub wait: Wait,
    /// Waits also behind what this session itself holds, as another task of its program does. Without `wait`, and by
    /// default, that is refused at once as `contended`, since a program that waits for itself waits for ever.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behind_own: bool,
    /// Refused as `forbidden` where the store is this host's alone, so that other hosts may hold it, too. Default: as
    /// the agent's setting `require` says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fleet: bool,
    /// How long to wait at most, ms; only with `wait` `block` or `queue`. Default: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The client's id for this request: the same id again returns the same hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// How long the hold outlives its last beat, ms. Default by kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long the hold may last in all, ms. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_hold_ms: Option<u64>,
    /// How long after its grant the hold is kept from others at least, ms, whatever becomes of the program, its
    /// session and the agent; 24 h at most. Default: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_at_least_ms: Option<u64>,
    /// Semaphore only: permits in all, from now on and for everybody. Default: the limit in force; 1 if
    /// nobody holds or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Master only: preempts a lower one. Default 0; 100 for surface `claude_desktop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Lease only: how long after expiry only the former holder may have it, ms. Default 60 000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Lease only: what the routing table says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Attributes>,
}

/// The state of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum HoldState {
    /// Asked for, not granted yet.
    Waiting,
    /// Granted, and renewed in time.
    Held,
    /// Granted, but the last renewal is unknown; still valid until its valid-until.
    Jeopardy,
    /// Given back.
    Released,
    /// Gone; the holder must have stopped.
    Lost,
}

/// A request changed the limit of a semaphore for everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LimitChanged {
    /// The limit before.
    pub from: u32,
    /// The limit from then on.
    pub to: u32,
}

/// A grant: the answer to [`Acquire`] with status 200.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Acquired {
    /// The hold.
    pub hold: Uuid,
    /// Its kind.
    pub kind: Kind,
    /// Its name; for a master the project.
    pub name: String,
    /// `held`, or `jeopardy` when a repeated request finds it so.
    pub state: HoldState,
    /// The fencing token of the grant.
    pub token: u64,
    /// How long the hold outlives its last beat, ms.
    pub ttl_ms: u64,
    /// How long it is valid from now on unless renewed, ms.
    pub valid_ms: u64,
    /// The same as an instant of CLOCK_BOOTTIME, ns. A client whose clock is another one, because it is
    /// in another time namespace, must notice that by the two and must not act by it, nor by the page.
    pub valid_until_boottime_ns: u64,
    /// The hold's slot on the session's page.
    pub slot: u32,
    /// Semaphore only: the limit in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Semaphore only: the request changed the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_changed: Option<LimitChanged>,
}

/// A place in the queue: the answer to [`Acquire`] with status 202.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiting {
    /// The hold to be.
    pub hold: Uuid,
    /// Its kind.
    pub kind: Kind,
    /// Its name; for a master the project.
    pub name: String,
    /// `waiting`.
    pub state: HoldState,
    /// 1 is next. Over all hosts of the store; absent until known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Semaphore only: the request changed the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_changed: Option<LimitChanged>,
}

/// Why a guarded command was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// Its hold was not renewed, and would soon have ended.
    NotRenewed,
    /// It had held for as long as it was to.
    MaxHold,
}

/// Gives back a hold, or ends a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The session.
    pub session: Uuid,
    /// The hold; without one the session ends, with all its holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Uuid>,
    /// The exit status of the command that was guarded, for the history; 128 + the signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Why whoever guarded that command stopped it, for the history; nothing if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

/// The answer to [`Release`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Released {
    /// True if there was something to give back.
    pub released: bool,
    /// How much longer the hold is kept from others, ms, because it was asked for with `hold_at_least_ms`. It is
    /// nobody's until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_ms: Option<u64>,
}
