//! `GET /metrics`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::context::Context;
use super::query::{NoQuery, Queried};
use super::respond::text;

/// Metrics for whoever scrapes them.
#[utoipa::path(get, path = "/metrics", tag = "agent",
    responses(
        (status = 200, description = "OpenMetrics 1.0", body = String, content_type = "application/openmetrics-text"),
        super::answers::NoInput,
    ))]
pub(super) async fn metrics(
    State(context): State<Arc<Context>>,
    Queried(NoQuery): Queried<NoQuery>,
) -> Response {
    // The heart counts what is there; without one the numbers are those of its last word.
    let _ = context.heart.probe().await;
    text("application/openmetrics-text; version=1.0.0; charset=utf-8", context.metrics.encode())
}
