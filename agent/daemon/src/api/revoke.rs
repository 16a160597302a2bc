//! `POST /v1/revoke`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_core::model::Resource;
use tenure_wire::{DEFAULT_TENANT, Problem, Revoke, Revoked};

use super::context::Context;
use super::parse::{Ask, Parsed};
use super::respond::{Refused, json};
use super::server::Connected;
use super::validate::{resource_name, scope};

impl Ask for Revoke {
    const EXAMPLE: &'static str = r#"{"kind":"leader","name":"cleanup"}"#;
}

/// Take a resource away from its holder.
#[utoipa::path(post, path = "/v1/revoke", tag = "fleet", request_body = Revoke,
    responses(
        (status = 200, description = "How many grants were taken away", body = Revoked),
        (status = 403, description = "`forbidden`: only root and the agent's own user may", body = Problem, content_type = "application/problem+json"),
        super::respond::Common, super::respond::BadBody,
    ))]
pub(super) async fn revoke(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Parsed(ask): Parsed<Revoke>,
) -> Result<Response, Refused> {
    context.check_administrator(connection.peer().uid, "revoke")?;
    let tenant = ask.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
    scope("tenant", tenant)?;
    resource_name(ask.kind, &ask.name)?;
    let resource =
        Resource { tenant: tenant.into(), kind: ask.kind, name: ask.name.as_str().into() };
    let revoked = context.heart.revoke(connection.caller(), resource, ask.token).await?;
    Ok(json(StatusCode::OK, &revoked))
}
