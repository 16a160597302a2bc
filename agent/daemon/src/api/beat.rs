//! `POST /v1/beat`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tenure_wire::Beat;

use super::context::Context;
use super::parse::{Ask, Parsed};
use super::respond::Refused;
use super::server::Connected;

impl Ask for Beat {
    const EXAMPLE: &'static str = r#"{"session":"…"}"#;
}

/// Say that the program lives and gets on. Local only.
#[utoipa::path(post, path = "/v1/beat", tag = "session", request_body = Beat,
    responses(
        (status = 204, description = "Noted"),
        (status = 404, response = super::answers::SessionUnknown),
        (status = 410, response = super::answers::SessionLost),
        super::answers::Common, super::answers::BadBody,
    ))]
pub(super) async fn beat(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Parsed(ask): Parsed<Beat>,
) -> Result<Response, Refused> {
    context.heart.beat(connection.caller(), ask.session).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
