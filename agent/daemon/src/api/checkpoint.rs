//! `POST /v1/checkpoint`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_wire::{Checkpoint, Checkpointed};

use super::context::Context;
use super::parse::{Ask, Parsed};
use super::respond::{Refused, json};
use super::server::Connected;

impl Ask for Checkpoint {
    const EXAMPLE: &'static str = r#"{"session":"…"}"#;
}

/// Renew everything of the session upstream now.
#[utoipa::path(post, path = "/v1/checkpoint", tag = "session", request_body = Checkpoint,
    responses(
        (status = 200, description = "Renewed", body = Checkpointed),
        (status = 404, response = super::answers::SessionUnknown),
        (status = 410, response = super::answers::SessionLost),
        super::answers::Common, super::answers::BadBody,
    ))]
pub(super) async fn checkpoint(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Parsed(ask): Parsed<Checkpoint>,
) -> Result<Response, Refused> {
    let checkpointed = context.heart.checkpoint(connection.caller(), ask.session).await?;
    Ok(json(StatusCode::OK, &checkpointed))
}
