//! `GET /v1/doctor`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_stores::EXAMINATION_MAX;
use tenure_wire::{Code, Diagnosis, Problem};
use tokio::time::timeout;

use super::context::Context;
use super::query::{NoQuery, Queried};
use super::respond::{Refused, json};
use super::server::Connected;
use crate::heart::HeartGone;

/// When somebody who came during another examination should ask again.
const RETRY_AFTER_MS: u64 = 1000;

/// Examine the upstream: reachability, settings, rights, clocks.
///
/// Only for root and the agent's own user: what is found names the server, its version and sizes, the
/// rights that are missing there, and resources of every tenant. One examination at a time, because
/// each costs a shared server some work.
#[utoipa::path(get, path = "/v1/doctor", tag = "agent",
    responses(
        (status = 200, description = "What was found", body = Diagnosis),
        (status = 403, response = super::answers::AdministratorsOnly),
        super::answers::Common,
        (status = 429, description = "`quota_exceeded`: another examination is under way, or a limit is reached", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn doctor(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(NoQuery): Queried<NoQuery>,
) -> Result<Response, Refused> {
    let deed = "examine the upstream, since that tells of every tenant";
    context.check_administrator(connection.peer().uid, deed)?;
    let Ok(_alone) = context.examining.try_lock() else {
        let detail = "another examination of the upstream is under way; ask again in a moment";
        return Err(Problem::new(Code::QuotaExceeded, detail)
            .retry_after_ms(RETRY_AFTER_MS)
            .into());
    };
    let examined = timeout(EXAMINATION_MAX, async {
        let examination = context.heart.examine().await?;
        Ok::<_, HeartGone>(examination.await)
    });
    let Ok(checks) = examined.await else {
        let detail = format!(
            "the examination of the upstream did not end within {} ms; see last_error in \
             /v1/status, and ask again",
            EXAMINATION_MAX.as_millis()
        );
        return Err(Problem::new(Code::UpstreamUnavailable, detail)
            .retry_after_ms(RETRY_AFTER_MS)
            .into());
    };
    Ok(json(StatusCode::OK, &Diagnosis { checks: checks? }))
}
