//! Two hosts on one Redis: two agents that know nothing of each other.

use serde_json::json;
use uuid::Uuid;

use super::shared_redis::SharedRedis;
use crate::harness::{Agent, Client, Http};

/// Every kind.
pub(super) const KINDS: [&str; 4] = ["leader", "semaphore", "lease", "master"];

/// A keepalive longer than any run, ms.
pub(super) const KEEPALIVE_MS: u64 = 86_400_000;

/// Two agents and their Redis.
pub(super) struct TwoAgents {
    pub(super) agents: [Agent; 2],
    pub(super) redis: SharedRedis,
}

impl TwoAgents {
    /// Starts all three.
    pub(super) fn start() -> TwoAgents {
        let redis = SharedRedis::start();
        let agents = [(); 2].map(|()| Agent::setup().upstream(&redis.url()).start());
        TwoAgents { agents, redis }
    }
}

/// A session that lives as long as the run, and a connection to call for it.
pub(super) fn client(agent: &Agent) -> (Http, Uuid) {
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": KEEPALIVE_MS})).session;
    (http, session)
}
