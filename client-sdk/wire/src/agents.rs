//! The agents of a store.

use serde::{Deserialize, Serialize};

/// A page of the agents of this agent's store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Agents {
    /// In no order, but the agent that answers is the first one of the first page.
    pub agents: Vec<AgentView>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// An agent, as it made itself known last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentView {
    /// Its id: the same until it is stopped.
    pub agent: String,
    /// The name of its host.
    pub host: String,
    /// Its version.
    pub version: String,
    /// True of the agent that answers.
    #[serde(default)]
    pub this: bool,
    /// False if it has not been seen for so long that it is down, stopped, or cut off from the store.
    pub seen: bool,
    /// How long ago it was seen, by the store's clock.
    pub last_seen_ms: u64,
    /// How long it has been up, or had been when it was seen last.
    pub up_ms: u64,
    /// Its sessions then.
    pub sessions: u64,
    /// What these held.
    pub held: u64,
    /// What these waited for.
    pub waiting: u64,
    /// The principal of its key; absent if it uses no gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}
