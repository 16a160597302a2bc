//! The sessions of a project, as its session plane lists them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_wire::Kind;

use super::{ClaimId, Resource, SessionId};

/// The project that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Within {
    Project {
        tenant: Arc<str>,
        project: Arc<str>,
    },
    /// That of this session.
    Session(SessionId),
}

/// A project's master and its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub tenant: Arc<str>,
    pub project: Arc<str>,
    /// The session that is master. Programs without Tenure may have other ids than uuids.
    pub master: Option<Arc<str>>,
    /// The claim that the master holds it with; `None` if it has none.
    pub master_claim: Option<ClaimId>,
    /// Oldest first; nobody if they were not asked for.
    pub sessions: Vec<Member>,
    /// The cursor of the next page; `None` after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Arc<str>>,
}

/// A session of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub session: Arc<str>,
    pub name: Arc<str>,
    pub surface: Arc<str>,
    pub host: Arc<str>,
    /// When it was announced first, in ISO 8601; `None` where no gateway or store has noted it.
    pub registered_at: Option<Arc<str>>,
    /// When it ends unless it is renewed; `None` from a gateway that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_out: Option<Duration>,
}

impl Members {
    /// The project's master as what is held.
    pub fn resource(&self) -> Resource {
        let (tenant, name) = (Arc::clone(&self.tenant), Arc::clone(&self.project));
        Resource { tenant, kind: Kind::Master, name }
    }

    /// True if that session is the master.
    pub fn is_master(&self, session: &str) -> bool {
        self.master.as_deref() == Some(session)
    }
}
