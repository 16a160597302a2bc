//! `POST /v1/leftovers`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tenure_wire::Leftovers;

use super::context::Context;
use super::parse::{Ask, Parsed};
use super::respond::Refused;
use super::server::Connected;
use super::validate;

impl Ask for Leftovers {
    const EXAMPLE: &'static str = r#"{"session":"…","exit_status":0,"processes":{"4711":"sleep"}}"#;
}

/// Say that the command that was guarded has ended, and that processes which it started keep the session: `status`, `why`
/// and the history name them. Ends nothing.
#[utoipa::path(post, path = "/v1/leftovers", tag = "session", request_body = Leftovers,
    responses(
        (status = 204, description = "Noted"),
        (status = 404, response = super::answers::SessionUnknown),
        (status = 410, response = super::answers::SessionLost),
        super::answers::Common, super::answers::BadBody,
    ))]
pub(super) async fn leftovers(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Parsed(ask): Parsed<Leftovers>,
) -> Result<Response, Refused> {
    validate::leftovers(&ask)?;
    context.heart.leftovers(connection.caller(), ask).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
