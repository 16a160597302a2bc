//! `GET /v1/standing`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tenure_core::model::Resource;
use tenure_wire::{Holder, Kind, Standing};

use super::context::Context;
use super::history::program;
use super::query::{Queried, ResourceQuery};
use super::respond::{Refused, long_json};
use super::server::{Connected, Connection};

/// Holders and waiters of a resource, across the fleet.
#[utoipa::path(get, path = "/v1/standing", tag = "fleet",
    params(
        ("kind" = Kind, Query, description = "The kind"),
        ("name" = String, Query, description = "The name; for a master the project"),
        ("tenant" = Option<String>, Query, description = "The tenant; default `default`"),
    ),
    responses(
        (status = 200, description = "Holders and queue", body = Standing),
        (status = 403, response = super::answers::Forbidden),
        super::answers::Common,
    ))]
pub(super) async fn standing(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(ResourceQuery(resource)): Queried<ResourceQuery>,
) -> Result<Response, Refused> {
    context.check_reading(&connection.peer(), &resource)?;
    let _turn = context.long.turn(connection.peer().uid).await;
    let standing = standing_of(&context, &connection, resource).await?;
    long_json(context.heart.budget(), connection.peer().uid, &standing)
}

/// A standing with the processes of holders on other hosts, as their agents told of them when they were granted it.
pub(super) async fn standing_of(
    context: &Context,
    connection: &Connection,
    resource: Resource,
) -> Result<Standing, Refused> {
    let caller = connection.caller();
    let mut standing = context.heart.standing(caller, resource.clone()).await?;
    let is_unknown = |holder: &&mut Holder| holder.pid.is_none() && holder.is_of_tenure();
    if !standing.holders.iter_mut().any(|holder| is_unknown(&holder)) {
        return Ok(standing);
    }
    // Nobody is kept from the standing by what only goes with it.
    let Ok(changes) = context.heart.history(connection.caller(), resource).await else {
        return Ok(standing);
    };
    for holder in standing.holders.iter_mut().filter(is_unknown) {
        let grant = changes.iter().find(|change| change.token == holder.token);
        let Some(program) = grant.map(|change| program(&change.holder)) else { continue };
        holder.pid = program.pid;
        holder.uid = program.uid;
        holder.user = program.user;
        holder.command = program.command;
    }
    Ok(standing)
}
