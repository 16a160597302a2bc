//! The local API: HTTP/1.1 and JSON on a Unix socket. One file per resource, each parse → check →
//! action → response.
//!
//! Invariant: nothing here decides who holds what, and nothing here waits for a slow client while
//! another one could be served.

#![expect(
    clippy::disallowed_methods,
    reason = "no deadline here decides a hold: one that stands still while the machine sleeps does no harm"
)]

mod acquire;
mod answered;
mod beat;
mod bounds;
mod checkpoint;
mod context;
mod doctor;
mod events;
mod frames;
mod health;
mod limits;
mod log;
mod metrics;
mod metrics_listener;
mod openapi;
mod parse;
mod places;
mod probe;
mod quarantine;
mod query;
mod register;
mod release;
mod respond;
mod revoke;
mod routes;
mod server;
mod standing;
mod status;
#[cfg(test)]
mod tests;
mod turns;
mod validate;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
pub use context::{About, Context};
pub use limits::{BODY_MAX, HEAD_MAX, Limits};
pub use metrics_listener::{MetricsListener, MetricsListenerError, bind_metrics};
pub use places::Places;
pub use probe::{Door, SelfProbe, Unanswered, parse_answer, self_probe};
use respond::Refusal;
pub use server::{Drained, Identity, Listening, serve};
use tenure_wire::{Code, Problem};
pub use turns::Turns;

/// All endpoints, as errors and tests name them.
const ENDPOINTS: [(&str, &str); 19] = [
    ("POST", "/v1/register"),
    ("POST", "/v1/acquire"),
    ("POST", "/v1/release"),
    ("POST", "/v1/checkpoint"),
    ("POST", "/v1/beat"),
    ("POST", "/v1/revoke"),
    ("POST", "/v1/quarantine/end"),
    ("GET", "/v1/events"),
    ("GET", "/v1/observe"),
    ("GET", "/v1/standing"),
    ("GET", "/v1/routes"),
    ("GET", "/v1/status"),
    ("GET", "/v1/doctor"),
    ("GET", "/v1/log"),
    ("PUT", "/v1/log"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
];

/// All endpoints.
///
/// No middleware: the peer comes with each request as an extension that [`serve`] adds; without it
/// whatever needs to know the caller is refused as `unauthorized`.
pub fn router(context: Arc<Context>) -> Router {
    Router::new()
        .route("/v1/register", post(register::register))
        .route("/v1/acquire", post(acquire::acquire))
        .route("/v1/release", post(release::release))
        .route("/v1/checkpoint", post(checkpoint::checkpoint))
        .route("/v1/beat", post(beat::beat))
        .route("/v1/revoke", post(revoke::revoke))
        .route("/v1/quarantine/end", post(quarantine::end))
        // A HEAD would open a stream, and close it with what it tethers.
        .route("/v1/events", get(events::events).head(wrong_method))
        .route("/v1/observe", get(events::observe).head(wrong_method))
        .route("/v1/standing", get(standing::standing))
        .route("/v1/routes", get(routes::routes))
        .route("/v1/status", get(status::status))
        .route("/v1/doctor", get(doctor::doctor))
        .route("/v1/log", get(log::read_log).put(log::set_log))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::openapi))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(context)
}

async fn not_found(uri: Uri) -> Refusal {
    let path = validate::quote(uri.path());
    let endpoints = ENDPOINTS.map(|(method, path)| format!("{method} {path}")).join(", ");
    Problem::new(Code::NotFound, format!("there is no {path}; there are: {endpoints}")).into()
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let wanted = ENDPOINTS.iter().find(|(_, path)| *path == uri.path());
    let wanted = match wanted {
        Some(("GET", "/v1/events" | "/v1/observe")) | None => "GET",
        Some((_, "/v1/log")) => "GET, HEAD, PUT",
        Some(("GET", _)) => "GET, HEAD",
        Some((method, _)) => method,
    };
    let method = validate::quote(method.as_str());
    let detail = format!("{} does not take {method}; use {wanted}", uri.path());
    let mut response = Refusal::from(Problem::new(Code::MethodNotAllowed, detail)).into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(wanted));
    response
}
