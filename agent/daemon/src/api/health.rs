//! `GET /healthz` and `GET /readyz`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tenure_wire::{Code, Problem, UpstreamState};
use utoipa::ToSchema;

use super::context::Context;
use super::query::{NoQuery, Queried};
use super::respond::{Refused, json};

/// A turn of the heart's loop takes less than a millisecond; one that takes this long is stuck.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// When somebody who found the agent not ready should ask again.
const RETRY_AFTER_MS: u64 = 1000;

/// The answer to `GET /healthz`.
#[derive(Serialize, ToSchema)]
pub(super) struct Healthy {
    /// True.
    ok: bool,
}

/// The answer to `GET /readyz`.
#[derive(Serialize, ToSchema)]
pub(super) struct Ready {
    /// True: requests are answered, whatever the upstream does, and can be granted if it does.
    ready: bool,
    upstream: UpstreamState,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// Liveness of the process.
#[utoipa::path(get, path = "/healthz", tag = "agent",
    responses(
        (status = 200, description = "It does", body = Healthy),
        super::answers::NoInput,
    ))]
pub(super) async fn healthz(Queried(NoQuery): Queried<NoQuery>) -> Response {
    json(StatusCode::OK, &Healthy { ok: true })
}

/// Liveness of the heart, and readiness to grant: false while something of this host keeps it from
/// granting, which is a quarantine, a journal that cannot be written, or a lack of fencing tokens.
/// The upstream's state is in the body.
#[utoipa::path(get, path = "/readyz", tag = "agent",
    responses(
        (status = 200, description = "It does", body = Ready),
        super::answers::Common,
    ))]
pub(super) async fn readyz(
    State(context): State<Arc<Context>>,
    Queried(NoQuery): Queried<NoQuery>,
) -> Result<Response, Refused> {
    let detail = match tokio::time::timeout(PROBE_TIMEOUT, context.heart.probe()).await {
        Ok(Ok(probe)) => {
            if let Some(cause) = probe.health.grants_nothing {
                let detail = format!("nothing can be granted: {cause}");
                let problem = Problem::new(Code::UpstreamUnavailable, detail);
                return Err(problem.retry_after_ms(RETRY_AFTER_MS).into());
            }
            let ready = Ready {
                ready: true,
                upstream: probe.health.state,
                last_error: probe.health.last_error,
            };
            return Ok(json(StatusCode::OK, &ready));
        }
        Ok(Err(gone)) => gone.to_string(),
        Err(_) => format!("the heart did not answer within {} s", PROBE_TIMEOUT.as_secs()),
    };
    Err(Problem::new(Code::Stopping, detail).retry_after_ms(RETRY_AFTER_MS).into())
}
