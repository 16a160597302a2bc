//! The whole fleet, and its past.

use std::collections::BTreeMap;

use super::{CALL_DEADLINE, CallError, Client};
use crate::wire;

/// Agents that are asked for at once.
const AGENTS_LIMIT: &str = "1000";
/// Resources that are asked for at once.
const LIST_LIMIT: &str = "1000";

impl Client {
    /// The last changes of who holds a resource, from every host, newest first.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `invalid`, `upstream_unavailable`.
    pub async fn history(
        &self,
        kind: wire::Kind,
        name: &str,
        tenant: Option<&str>,
    ) -> Result<wire::History, CallError> {
        let query = [("kind", Some(kind.as_str())), ("name", Some(name)), ("tenant", tenant)];
        self.transport.get(self.target("/v1/history", &query)?, CALL_DEADLINE).await
    }

    /// Whether the `[[allow]]` rules of the agent let a user, by uid and gid, hold a resource, at a priority if it is a
    /// master; without a user this one. Of others root and the agent's own user may ask.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `invalid`, `forbidden`.
    pub async fn can(
        &self,
        kind: wire::Kind,
        name: &str,
        tenant: Option<&str>,
        user: Option<(u32, u32)>,
        priority: Option<i32>,
    ) -> Result<wire::Permission, CallError> {
        let (uid, gid) = user.map(|(uid, gid)| (uid.to_string(), gid.to_string())).unzip();
        let priority = priority.map(|priority| priority.to_string());
        let query = [
            ("kind", Some(kind.as_str())),
            ("name", Some(name)),
            ("tenant", tenant),
            ("uid", uid.as_deref()),
            ("gid", gid.as_deref()),
            ("priority", priority.as_deref()),
        ];
        self.transport.get(self.target("/v1/can", &query)?, CALL_DEADLINE).await
    }

    /// The agents of this agent's store, by host and id. Read page by page: one that comes or goes meanwhile may be
    /// missed.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `upstream_unavailable`.
    pub async fn agents(&self) -> Result<wire::Agents, CallError> {
        let mut all = BTreeMap::new();
        let mut cursor: Option<String> = None;
        loop {
            let query = [("limit", Some(AGENTS_LIMIT)), ("cursor", cursor.as_deref())];
            let target = self.target("/v1/agents", &query)?;
            let page: wire::Agents = self.transport.get(target, CALL_DEADLINE).await?;
            for agent in page.agents {
                all.insert((agent.host.clone(), agent.agent.clone()), agent);
            }
            match page.cursor {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => return Ok(wire::Agents { agents: all.into_values().collect(), cursor: None }),
            }
        }
    }

    /// All that is held or waited for, by tenant, kind and name: of a kind, with a name that a glob matches, of a
    /// tenant. Without a tenant root and the agent's own user are told of all, others of `default`. Read page by
    /// page: what comes or goes meanwhile may be missed.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `invalid`, `upstream_unavailable`.
    pub async fn list(
        &self,
        kind: Option<wire::Kind>,
        glob: Option<&str>,
        tenant: Option<&str>,
    ) -> Result<Vec<wire::Standing>, CallError> {
        let mut all = BTreeMap::new();
        let mut cursor: Option<String> = None;
        loop {
            let query = [
                ("kind", kind.map(wire::Kind::as_str)),
                ("glob", glob),
                ("tenant", tenant),
                ("limit", Some(LIST_LIMIT)),
                ("cursor", cursor.as_deref()),
            ];
            let target = self.target("/v1/list", &query)?;
            let page: wire::List = self.transport.get(target, CALL_DEADLINE).await?;
            for standing in page.resources {
                let key = (standing.tenant.clone(), standing.kind.as_str(), standing.name.clone());
                all.insert(key, standing);
            }
            match page.cursor {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => return Ok(all.into_values().collect()),
            }
        }
    }
}
