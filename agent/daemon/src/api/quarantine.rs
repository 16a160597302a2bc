//! `POST /v1/quarantine/end`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_wire::QuarantineEnded;

use super::context::Context;
use super::query::{NoQuery, Queried};
use super::respond::{Refused, json};
use super::server::Connected;

/// End a quarantine before its time: of an agent that lost its journal, or of a Redis or a Postgres that lost data, for
/// all its agents. Earlier grants may still be valid. Takes no body.
#[utoipa::path(post, path = "/v1/quarantine/end", tag = "agent",
    responses(
        (status = 200, description = "There is none any more", body = QuarantineEnded),
        (status = 403, response = super::answers::AdministratorsOnly),
        super::answers::Common,
    ))]
pub(super) async fn end(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(NoQuery): Queried<NoQuery>,
) -> Result<Response, Refused> {
    let uid = connection.peer().uid;
    context.check_administrator(uid, "end a quarantine")?;
    let left = context.heart.end_quarantine().await?;
    if let Some(left) = left {
        tracing::warn!(
            uid,
            left_s = left.as_secs(),
            "the quarantine was ended by hand; holds of before it may be granted again"
        );
    }
    let left_ms = left.map_or(0, |left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    Ok(json(StatusCode::OK, &QuarantineEnded { ended: left.is_some(), left_ms }))
}
