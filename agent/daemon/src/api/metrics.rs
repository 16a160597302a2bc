//! `GET /metrics`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use super::context::Context;
use super::query::{NoQuery, Queried};
use super::respond::text;
use crate::telemetry::Exposition;

/// Metrics for whoever scrapes them: OpenMetrics for those that accept it, else the text format of
/// Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "agent",
    params(("Accept" = Option<String>, Header,
        description = "`application/openmetrics-text` for OpenMetrics 1.0")),
    responses(
        (status = 200, description = "Metrics", content(
            (String = "text/plain"), (String = "application/openmetrics-text"))),
        super::openapi::NoInput,
    ))]
pub(super) async fn metrics(
    State(context): State<Arc<Context>>,
    Queried(NoQuery): Queried<NoQuery>,
    headers: HeaderMap,
) -> Response {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = accept.collect::<Vec<_>>().join(",");
    let format = Exposition::wanted_by(Some(&accept));
    // The heart counts what is there; without one the numbers are those of its last word.
    let _ = context.heart.probe().await;
    // Encoding these metrics never fails.
    let mut response =
        text(format.media_type(), context.metrics.encode(format).unwrap_or_default());
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}
