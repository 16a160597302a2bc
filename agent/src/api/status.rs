//! `GET /v1/status`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure::wire::{AgentStatus, Code, Problem, Status, UpstreamStatus};

use super::context::Context;
use super::query::{NoQuery, Queried};
use super::respond::{Refusal, json, mismatch};
use super::server::Connected;
use crate::host::clock;
use crate::keeper::{Reply, Request};

/// The agent, its upstream, and the caller's sessions and holds.
#[utoipa::path(get, path = "/v1/status", tag = "agent",
    responses(
        (status = 200, description = "What there is to know", body = Status),
        super::openapi::Common,
    ))]
pub(super) async fn status(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(NoQuery): Queried<NoQuery>,
) -> Result<Response, Refusal> {
    let view = match context.heart.call(connection.caller(), Request::Status).await? {
        Reply::Status(view) => view,
        other => return Ok(mismatch("status", &other)),
    };
    let probe = context.heart.probe().await;
    let probe = probe.map_err(|gone| Problem::new(Code::Stopping, gone.to_string()))?;
    let about = &context.about;
    let status = Status {
        agent: AgentStatus {
            version: about.agent.version.clone(),
            pid: std::process::id(),
            host_id: about.agent.host_id.clone(),
            host: about.host.clone(),
            boot_id: about.boot_id,
            uptime_ms: u64::try_from(clock::now().since(context.started).as_millis())
                .unwrap_or(u64::MAX),
            sessions: view.sessions,
            holds: view.holds.iter().map(|[held, jeopardy, _]| held + jeopardy).sum(),
            waiters: view.holds.iter().map(|[_, _, waiting]| waiting).sum(),
        },
        upstream: UpstreamStatus {
            kind: about.agent.upstream.clone(),
            state: probe.health.state,
            address: about.address.clone(),
            guarantee: about.agent.guarantee.clone(),
            last_error: probe.health.last_error,
            beat_lateness: probe.lateness,
        },
        sessions: view.visible,
    };
    Ok(json(StatusCode::OK, &status))
}
