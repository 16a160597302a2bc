//! The endpoints of the status page: holders and waiters, their past, and the state of the gateway; revocations too.
//! JSON, within the bounds of the caller's key.

mod agents;
mod catalogue;
mod changes;
mod control_plane;
mod listing;
mod overview;
mod past;
mod query;
mod resources;
mod revoking;
mod seen;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use self::agents::Agents;
pub(super) use self::agents::Sender;
use self::catalogue::Catalogue;
use self::changes::Changes;
use self::seen::Seen;
use super::Face;

/// What a gateway knows for people.
#[derive(Debug)]
pub struct People {
    /// The mode that the gateway is in.
    mode: String,
    /// ms since 1970.
    started_at: u64,
    catalogue: Arc<Catalogue>,
    pub(super) agents: Agents,
    pub(super) changes: Arc<Changes>,
    pub(super) seen: Seen,
}

impl People {
    /// Nobody has looked yet.
    pub fn new(mode: String) -> People {
        People {
            mode,
            started_at: now_ms(),
            catalogue: Arc::default(),
            agents: Agents::default(),
            changes: Arc::default(),
            seen: Seen::default(),
        }
    }
}

/// The endpoints.
pub(super) fn routes() -> Router<Arc<Face>> {
    Router::new()
        .route("/v1/agents", get(agents::agents))
        .route("/v1/changes", get(changes::changes))
        .route("/v1/history", get(past::history))
        .route("/v1/mailboxes", get(control_plane::mailboxes))
        .route("/v1/overview", get(overview::overview))
        .route("/v1/proxies", get(control_plane::proxies))
        .route("/v1/resources", get(resources::resources))
        .route("/v1/revoke", post(revoking::revoke))
        .route("/v1/runners", get(control_plane::runners))
}

/// ms since 1970, as people's browsers count.
fn now_ms() -> u64 {
    tenure_host::clock::wall_us() / 1000
}
