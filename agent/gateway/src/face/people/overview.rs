//! How the gateway and its store do, and how much there is.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request as Call, State};
use serde::Serialize;
use tenure_stores::Nodes;
use tenure_wire::{Kind, UpstreamState};
use tokio::time::timeout;

use super::control_plane::{self, Proxy};
use crate::access::{Caller, Right};
use crate::face::Face;
use crate::face::refused::Refused;

/// How long the store's thread may take to say how it does.
const HEALTH_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
pub(super) struct Overview {
    gateway: Gateway,
    caller: Asker,
    counts: Counts,
    control_plane: ControlPlane,
    /// All were counted, and the latest reading did not fail.
    complete: bool,
    /// When they were counted, ms since 1970; 0 if they were not.
    read_at: u64,
    /// How long that took, ms.
    scanned_ms: u64,
}

#[derive(Debug, Serialize)]
struct Gateway {
    version: &'static str,
    mode: String,
    /// ms since 1970.
    started_at: u64,
    store: Store,
}

/// The caller, and the rights of its key.
#[derive(Debug, Serialize)]
struct Asker {
    principal: Arc<str>,
    rights: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Store {
    kind: String,
    guarantee: String,
    /// `up` or `down`.
    state: &'static str,
    error: Option<String>,
    /// Where this gateway is a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Nodes>,
}

/// How many resources of each kind the caller may see.
#[derive(Debug, Default, Serialize)]
struct Counts {
    master: u64,
    leader: u64,
    lease: u64,
    semaphore: u64,
}

/// The mailboxes of the tenants that are followed or whose runners came here, and the proxies that this gateway tells of them.
#[derive(Debug, Serialize)]
struct ControlPlane {
    mailboxes: usize,
    runners: usize,
    proxies: Vec<Proxy>,
}

async fn control_plane(face: &Face, caller: &Caller) -> ControlPlane {
    control_plane::follow_runners(face).await;
    let (mailboxes, runners) = face.delivery.tally(|mailbox| caller.bounds.shows(mailbox));
    ControlPlane { mailboxes, runners, proxies: control_plane::visible(face, caller) }
}

/// Tells how the gateway does, and how much there is.
pub(super) async fn overview(
    State(face): State<Arc<Face>>,
    request: Call,
) -> Result<Json<Overview>, Refused> {
    let caller = face.admit_person(&request)?;
    let listing = face.people.catalogue.look(&face).await;
    let mut counts = Counts::default();
    let mut count = |kind| match kind {
        Kind::Master => counts.master += 1,
        Kind::Leader => counts.leader += 1,
        Kind::Lease => counts.lease += 1,
        Kind::Semaphore => counts.semaphore += 1,
    };
    listing.each(&caller.bounds, |name| count(name.kind)).await;
    let StoreHealth { is_up, guarantee, error, nodes } = health(&face).await;
    let store = Store {
        kind: face.info.kind.clone(),
        guarantee: guarantee.unwrap_or(&face.info.guarantee).to_owned(),
        state: if is_up { "up" } else { "down" },
        error: error.or_else(|| listing.failure.clone()),
        nodes,
    };
    Ok(Json(Overview {
        gateway: Gateway {
            version: env!("CARGO_PKG_VERSION"),
            mode: face.people.mode.clone(),
            started_at: face.people.started_at,
            store,
        },
        caller: Asker {
            principal: Arc::clone(&caller.principal.name),
            rights: caller.bounds.rights.iter().map(Right::word).collect(),
        },
        counts,
        control_plane: control_plane(&face, &caller).await,
        complete: listing.is_complete,
        read_at: listing.read_at,
        scanned_ms: listing.took_ms,
    }))
}

/// How the store does.
#[derive(Debug, Default)]
pub(super) struct StoreHealth {
    /// It answers.
    pub(super) is_up: bool,
    /// As it was found, where that depends on its settings.
    guarantee: Option<&'static str>,
    error: Option<String>,
    nodes: Option<Nodes>,
}

pub(super) async fn health(face: &Face) -> StoreHealth {
    let failed = |error| StoreHealth { error: Some(error), ..StoreHealth::default() };
    match timeout(HEALTH_WITHIN, face.store.health()).await {
        Ok(Ok(health)) => {
            let is_up = matches!(health.state, UpstreamState::Up | UpstreamState::Quarantined);
            // An error that is over is no news.
            let error = health.last_error.filter(|_| !is_up);
            let (guarantee, error) = (health.guarantee, error.or(health.grants_nothing));
            StoreHealth { is_up, guarantee, error, nodes: health.nodes }
        }
        Ok(Err(gone)) => failed(gone.to_string()),
        Err(_) => failed("the store's thread does not answer".to_owned()),
    }
}
