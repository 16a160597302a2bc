//! HTTP: what agents, programs and people see of a gateway.

mod activity;
mod browsers;
mod budget;
mod calls;
mod carry;
mod changes;
mod connection;
mod counted;
mod cursor;
mod ends;
mod examine;
mod frames;
mod grpc;
mod health;
mod join;
mod limit;
mod line;
mod looks;
mod metrics;
mod owners;
mod page;
mod people;
mod places;
mod presence;
mod record;
mod refused;
mod revocation;
mod routing;
mod serve;
mod sessions;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use tenure_stores::gateway::wire::{CHANGES, EXAMINE, HELLO, JOIN, Operation, StoreInfo};
use tenure_wire::Code;
use tokio_util::sync::CancellationToken;

pub use self::browsers::Hosts;
pub use self::budget::{Budgets, Connections, Limits, Shares};
pub use self::carry::observe;
pub use self::grpc::ControlPlane;
pub use self::people::People;
use self::refused::Refused;
pub use self::serve::serve;
pub use self::sessions::Plane;
use crate::access::{Access, StoreKeys};
use crate::delivery::{Delivery, Registration};
use crate::metrics::Metrics;
use crate::store::Store;
use crate::trail::Trail;

/// What every endpoint needs.
#[derive(Debug)]
pub struct Face {
    pub store: Store,
    pub access: Access,
    /// The keys in the store, if they are there.
    pub keys: Option<StoreKeys>,
    /// The kind and the guarantee of the store.
    pub info: StoreInfo,
    pub metrics: Arc<Metrics>,
    pub trail: Trail,
    /// Cancelled when the gateway is to end: streams do, then.
    pub drain: CancellationToken,
    pub budgets: Arc<Budgets>,
    pub people: People,
    /// The session plane.
    pub plane: Plane,
    /// The routes of mailboxes.
    pub delivery: Delivery,
    /// The control plane.
    pub control: ControlPlane,
}

/// Tells proxies of routes, until the gateway is to end.
pub async fn tell_proxies(face: Arc<Face>, configured: Vec<Registration>) {
    let telling = face.delivery.run(&face.access, &configured);
    let _ = face.drain.run_until_cancelled(telling).await;
}

/// The endpoints.
pub fn router(face: Arc<Face>, hosts: Arc<Hosts>) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route(HELLO, post(calls::hello))
        .route(JOIN, post(join::join))
        .route(EXAMINE, post(examine::examine))
        .route(CHANGES, get(changes::changes))
        .merge(people::routes())
        .merge(page::routes());
    for operation in Operation::ALL {
        let call = move |state, request| calls::call(operation, state, request);
        router = router.route(operation.path(), post(call));
    }
    router
        .merge(sessions::router())
        .merge(grpc::router(&face))
        .fallback(grpc::not_found)
        .method_not_allowed_fallback(async || {
            Refused::new(Code::MethodNotAllowed, "this endpoint does not take this method")
        })
        .layer(middleware::from_fn_with_state((Arc::clone(&face), hosts), around))
        .with_state(face)
}

/// Refuses requests of other origins' web pages before any key is looked at, and counts every answer. Both are one layer of axum,
/// since a layer copies the service and allocates several times for every request.
async fn around(
    State((face, hosts)): State<(Arc<Face>, Arc<Hosts>)>,
    request: Request,
    next: Next,
) -> Response {
    let timer = metrics::RequestTimer::start(&request);
    let response = browsers::keep_out(&face, &hosts, request, next).await;
    timer.finish(&face, response.status());
    response
}
