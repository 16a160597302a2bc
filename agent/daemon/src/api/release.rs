//! `POST /v1/release`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_wire::{Problem, Release, Released};

use super::context::Context;
use super::parse::{Ask, Parsed};
use super::respond::{Refused, json};
use super::server::Connected;

impl Ask for Release {
    const EXAMPLE: &'static str = r#"{"session":"…","hold":"…"}"#;
}

/// Give back a hold or cancel a wait; without a hold, end the session.
#[utoipa::path(post, path = "/v1/release", tag = "hold", request_body = Release,
    responses(
        (status = 200, description = "Given back; `released` is false if it was not there", body = Released),
        (status = 404, response = super::answers::SessionUnknown),
        (status = 410, description = "`session_lost` or `hold_lost`", body = Problem, content_type = "application/problem+json"),
        super::answers::Common, super::answers::BadBody,
    ))]
pub(super) async fn release(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Parsed(ask): Parsed<Release>,
) -> Result<Response, Refused> {
    let released = context.heart.release(connection.caller(), ask).await?;
    Ok(json(StatusCode::OK, &released))
}
