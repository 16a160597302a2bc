//! Health, for operators.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tenure_stores::Nodes;
use tenure_wire::{Code, UpstreamState};
use tokio::time::timeout;

use super::Face;
use super::refused::Refused;

/// How long the store's thread may take to say how it does.
const WITHIN: Duration = Duration::from_secs(2);

/// The health of a gateway.
#[derive(Debug, Serialize)]
pub(super) struct Healthz {
    version: &'static str,
    store: StoreHealth,
}

#[derive(Debug, Serialize)]
struct StoreHealth {
    kind: String,
    guarantee: String,
    state: UpstreamState,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grants_nothing: Option<String>,
    /// Where this gateway is a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Nodes>,
}

/// Tells whether requests may be sent here. A store that does not answer does not make a gateway unready: balancers
/// would hide the refusals that name the cause. A node that has not joined its cluster, or not caught up, is unready:
/// a rolling update must not go on to the next node before.
pub(super) async fn readyz(State(face): State<Arc<Face>>) -> Result<&'static str, Refused> {
    if face.drain.is_cancelled() {
        return Err(Refused::new(Code::Stopping, "the gateway is stopping"));
    }
    match timeout(WITHIN, face.store.health()).await {
        Ok(Ok(health)) => match health.unready {
            None => Ok("ready\n"),
            Some(cause) => Err(Refused::new(Code::UpstreamUnavailable, cause)),
        },
        Ok(Err(gone)) => Err(Refused::new(Code::Stopping, gone.to_string())),
        Err(_) => {
            Err(Refused::new(Code::UpstreamUnavailable, "the store's thread does not answer"))
        }
    }
}

/// Tells how the gateway does. A store that does not answer makes it no less alive.
pub(super) async fn healthz(State(face): State<Arc<Face>>) -> Result<Json<Healthz>, Refused> {
    let health = timeout(WITHIN, face.store.health()).await.map_err(|_| {
        Refused::new(Code::UpstreamUnavailable, "the store's thread does not answer")
    })?;
    let health = health.map_err(|gone| Refused::new(Code::Stopping, gone.to_string()))?;
    let tenure_stores::Health { state, last_error, guarantee, grants_nothing, nodes, .. } = health;
    let kind = face.info.kind.clone();
    let guarantee = guarantee.map_or_else(|| face.info.guarantee.clone(), str::to_owned);
    let store = StoreHealth { kind, guarantee, state, last_error, grants_nothing, nodes };
    Ok(Json(Healthz { version: env!("CARGO_PKG_VERSION"), store }))
}
