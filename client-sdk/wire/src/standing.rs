//! `GET /v1/standing`, `GET /v1/list`, `GET /v1/routes` and `POST /v1/revoke`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Kind, brief};

/// The name of a holder, waiter or member of another principal, where a gateway tells no more: the agent's key does not
/// have the right `owners`.
pub const ANOTHER_PRINCIPAL: &str = "another principal";

/// A holder of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holder {
    /// The host's name.
    pub host: String,
    /// The session's name.
    pub name: String,
    /// How long it has been held, ms.
    pub since_ms: u64,
    /// How long ago it was renewed last, ms, as its store knows; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_beat_ms: Option<u64>,
    /// The fencing token of the grant.
    pub token: u64,
    /// The process, on its host; also of another host, where its history tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its user, on its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The name of its user, on its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its command line, cut to 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The hold itself, when it is the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Uuid>,
    /// Its holder has let go, and it is kept from others for so much longer, ms, as was asked for with
    /// `hold_at_least_ms`; on other hosts known from its history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_ms: Option<u64>,
    /// How long ago its holder let go or lost it, ms, where its history tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

impl Holder {
    /// False for a program that holds it by other means: such as a lock of its own in the same store.
    pub fn is_of_tenure(&self) -> bool {
        self.token != 0
    }

    /// That it has ended and is kept from others, such as `ended 2.0s ago, kept until 13:04:48 (--at-least 10m)`; `None`
    /// of one that is held. `until` is the time of day of its end, where a reader has one; `option` what asked for it.
    pub fn kept_in_words(&self, until: Option<&str>, option: &str) -> Option<String> {
        let kept = Duration::from_millis(self.kept_ms?);
        let ended =
            self.ended_ms.map(|ms| format!("ended {} ago", brief(Duration::from_millis(ms))));
        let ended = ended.unwrap_or_else(|| "its holder has let go".to_owned());
        let until = until.map(|at| format!("until {at}"));
        let until = until.unwrap_or_else(|| format!("for another {}", brief(kept)));
        // Both times are rounded down to a ms, and are of different clocks.
        let all = Duration::from_millis(self.since_ms) + kept + Duration::from_millis(500);
        let all = brief(Duration::from_secs(all.as_secs()));
        Some(format!("{ended}, kept {until} ({option} {all})"))
    }
}

/// A waiter for a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiter {
    /// The host's name.
    pub host: String,
    /// The session's name.
    pub name: String,
    /// 1 is next.
    pub position: u64,
    /// The process, when it is on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How long it has waited, ms.
    #[serde(default)]
    pub since_ms: u64,
}

/// A page of what is held or waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct List {
    /// Those with holders or waiters.
    pub resources: Vec<Standing>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The holders and waiters of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Standing {
    /// The tenant.
    pub tenant: String,
    /// The kind.
    pub kind: Kind,
    /// The name; for a master the project.
    pub name: String,
    /// Semaphore only: the limit in force; absent when nobody ever named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Holders, oldest grant first; the first 100.
    pub holders: Vec<Holder>,
    /// How many have it, listed or not.
    #[serde(default)]
    pub holding: u64,
    /// Waiters, next first; the first 100.
    pub waiters: Vec<Waiter>,
    /// How many wait, listed or not.
    #[serde(default)]
    pub waiting: u64,
    /// Master only: the names of the project's sessions; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// Master only: how many sessions the project has, listed or not.
    #[serde(default)]
    pub members: u64,
}

/// One line of the routing table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Route {
    /// The lease's name.
    pub name: String,
    /// The host that holds it.
    pub host: String,
    /// The session's name.
    pub holder: String,
    /// The holder's address.
    pub address: String,
    /// The proxy in front of it.
    pub proxy_id: String,
    /// 0–255.
    pub partition: u16,
    /// A word of the holder's own, or `expiring` during grace.
    pub status: String,
    /// The fencing token of the grant.
    pub token: u64,
    /// The table's version when this line changed last.
    pub version: u64,
}

/// The routing table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Routes {
    /// Grows with every change.
    pub version: u64,
    /// Its lines, by name; a page of them.
    pub routes: Vec<Route>,
    /// How many lines the table has; absent where the upstream does not count them, and for a reader who may
    /// not read all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Takes a resource away from its holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The kind.
    pub kind: Kind,
    /// The name; for a master the project.
    pub name: String,
    /// The tenant. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only the grant with this token; without one all grants of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Why, for those who lose it and for the logs of both hosts; 1–200 bytes of visible UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long the sessions that lose it may not have it again, ms. Default: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

/// The answer to [`Revoke`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revoked {
    /// Number of grants taken away.
    pub revoked: u64,
    /// Some of them guard work that may go on: how much longer, at most, those are kept from others, ms.
    /// Each is free earlier if the agent sees the end of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_ms: Option<u64>,
    /// Those from whom it was taken; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Holder>,
}
