//! The context of every endpoint.

use std::path::PathBuf;
use std::sync::Arc;

use tenure_bounds::Ask;
use tenure_core::keeper::Settings;
use tenure_core::model::{Peer, Resource};
use tenure_core::time::Boottime;
use tenure_wire::{AgentInfo, Code, Kind, Problem};
use uuid::Uuid;

use super::limits::Limits;
use super::places::Places;
use super::turns::Turns;
use crate::heart::{Caller, Handle};
use crate::policy::SharedPolicy;
use crate::telemetry::Metrics;
use crate::telemetry::log::Filter;

/// Facts about the agent that clients are told.
#[derive(Debug, Clone)]
pub struct About {
    /// Version, host id, upstream and its guarantee.
    pub agent: AgentInfo,
    /// That guarantee depends on what was found at the upstream.
    pub finds_guarantee: bool,
    /// The host's name.
    pub host: String,
    /// The address of the upstream, without any secret; `None` when it is in the agent itself.
    pub address: Option<String>,
    pub boot_id: Uuid,
    /// The directory of session pages.
    pub pages: PathBuf,
    /// True if holds have to be those of the whole fleet.
    pub requires_fleet: bool,
}

/// The context of every endpoint; one for all connections.
pub struct Context {
    /// The way to the keeper.
    pub heart: Handle,
    /// Bounds of what clients may ask for.
    pub settings: Arc<Settings>,
    /// Bounds of connections and bodies.
    pub limits: Limits,
    /// Long answers under way.
    pub long: Turns,
    pub places: Arc<Places>,
    pub about: About,
    /// The `[[allow]]` rules.
    pub policy: SharedPolicy,
    pub metrics: Arc<Metrics>,
    pub log: Filter,
    /// Permits for histories: refusals ask the store for a few at once, to learn whether the holder has ended.
    pub pasts: tokio::sync::Semaphore,
    /// Held while the upstream is examined.
    pub examining: tokio::sync::Mutex<()>,
    pub started: Boottime,
}

impl Context {
    /// Refuses with `forbidden` what no rule allows.
    pub(super) fn check(&self, peer: &Peer, ask: &Ask<'_>) -> Result<(), Box<Problem>> {
        let allowed = self.policy.current().allows(peer.uid, peer.gid, ask);
        allowed.map_err(|denied| Box::new(Problem::new(Code::Forbidden, denied.to_string())))
    }

    /// The caller with what the rules let its user have.
    pub(super) fn with_quota(&self, mut caller: Caller) -> Caller {
        caller.peer.quota = self.policy.current().quota(caller.peer.uid, caller.peer.gid);
        caller
    }

    /// Refuses to tell of a resource to a user who may not have it.
    pub(super) fn check_reading(
        &self,
        peer: &Peer,
        resource: &Resource,
    ) -> Result<(), Box<Problem>> {
        if self.is_administrator(peer.uid) {
            return Ok(());
        }
        let Resource { tenant, kind, name } = resource;
        self.check(peer, &Ask::resource(tenant, *kind, name))
    }

    /// Refuses to tell of any resource of a kind to a user who may have none of it.
    pub(super) fn check_reading_any(
        &self,
        peer: &Peer,
        tenant: &str,
        kind: Kind,
    ) -> Result<(), Box<Problem>> {
        if self.is_administrator(peer.uid) {
            return Ok(());
        }
        self.check(peer, &Ask { tenant, kind: Some(kind), ..Ask::default() })
    }

    /// True if no rule keeps anything from a user who reads.
    pub(super) fn reads_all(&self, peer: &Peer) -> bool {
        self.is_administrator(peer.uid) || self.policy.current().is_open()
    }

    /// True for a user who sees everything: root and the agent's own.
    pub(super) fn is_administrator(&self, uid: u32) -> bool {
        uid == 0 || uid == self.settings.agent_uid
    }

    /// Refuses everybody else `deed`, as in "may not revoke".
    pub(super) fn check_administrator(&self, uid: u32, deed: &str) -> Result<(), Box<Problem>> {
        if self.is_administrator(uid) {
            return Ok(());
        }
        let agent = self.settings.agent_uid;
        let detail =
            format!("uid {uid} may not {deed}; ask root or the agent's user (uid {agent})");
        Err(Box::new(Problem::new(Code::Forbidden, detail)))
    }
}
