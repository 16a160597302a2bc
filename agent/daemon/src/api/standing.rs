//! `GET /v1/standing`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tenure_wire::{Kind, Problem, Standing};

use super::context::Context;
use super::query::{Queried, ResourceQuery};
use super::respond::{Refused, long_json};
use super::server::Connected;

/// Holders and waiters of a resource, across the fleet.
#[utoipa::path(get, path = "/v1/standing", tag = "fleet",
    params(
        ("kind" = Kind, Query, description = "The kind"),
        ("name" = String, Query, description = "The name; for a master the project"),
        ("tenant" = Option<String>, Query, description = "The tenant; default `default`"),
    ),
    responses(
        (status = 200, description = "Holders and queue", body = Standing),
        (status = 403, description = "`forbidden`", body = Problem, content_type = "application/problem+json"),
        super::respond::Common,
    ))]
pub(super) async fn standing(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(ResourceQuery(resource)): Queried<ResourceQuery>,
) -> Result<Response, Refused> {
    context.check_reading(&connection.peer(), &resource)?;
    let _turn = context.long.turn(connection.peer().uid).await;
    let standing = context.heart.standing(connection.caller(), resource).await?;
    long_json(context.heart.budget(), connection.peer().uid, &standing)
}
