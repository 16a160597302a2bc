//! `POST /v1/beat`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tenure_wire::{Beat, Beaten, Problem};

use super::context::Context;
use super::parse::{Ask, Parsed};
use super::respond::{Refused, json};
use super::server::Connected;

impl Ask for Beat {
    const EXAMPLE: &'static str = r#"{"session":"…"}"#;
}

/// Say that the program lives and gets on, and ask how long a hold is valid and what was lost meanwhile. Local only.
#[utoipa::path(post, path = "/v1/beat", tag = "session", request_body = Beat,
    responses(
        (status = 200, description = "Noted, with a hold or something lost", body = Beaten),
        (status = 204, description = "Noted, without a hold, and nothing was lost"),
        (status = 404, response = super::answers::SessionUnknown),
        (status = 410, description = "`session_lost`, or `hold_lost` for the hold that was named", body = Problem, content_type = "application/problem+json"),
        super::answers::Common, super::answers::BadBody,
    ))]
pub(super) async fn beat(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Parsed(ask): Parsed<Beat>,
) -> Result<Response, Refused> {
    let Beat { session, hold } = ask;
    let beaten = match hold {
        Some(hold) => Some(context.heart.beat_hold(connection.caller(), session, hold).await?),
        None => context.heart.beat(connection.caller(), session).await?,
    };
    Ok(match beaten {
        Some(beaten) => json(StatusCode::OK, &beaten),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}
