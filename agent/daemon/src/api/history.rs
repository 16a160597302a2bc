//! `GET /v1/history`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use tenure_core::model;
use tenure_wire::{Happened, History, HistoryEntry, Kind, ProgramView};

use super::context::Context;
use super::query::{Queried, ResourceQuery};
use super::respond::{Refused, long_json};
use super::server::Connected;

/// The last changes of who holds a resource, from every host, newest first.
#[utoipa::path(get, path = "/v1/history", tag = "fleet",
    params(
        ("kind" = Kind, Query, description = "The kind"),
        ("name" = String, Query, description = "The name; for a master the project"),
        ("tenant" = Option<String>, Query, description = "The tenant; default `default`"),
    ),
    responses(
        (status = 200, description = "At most 50 changes of the last 7 days", body = History),
        (status = 403, response = super::answers::Forbidden),
        super::answers::Common,
    ))]
pub(super) async fn history(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(ResourceQuery(resource)): Queried<ResourceQuery>,
) -> Result<Response, Refused> {
    context.check_reading(&connection.peer(), &resource)?;
    let _turn = context.long.turn(connection.peer().uid).await;
    let changes = context.heart.history(connection.caller(), resource.clone()).await?;
    let history = History {
        tenant: resource.tenant.to_string(),
        kind: resource.kind,
        name: resource.name.to_string(),
        changes: changes.iter().map(view).collect(),
    };
    long_json(context.heart.budget(), connection.peer().uid, &history)
}

fn view(entry: &model::HistoryEntry) -> HistoryEntry {
    let model::HistoryEntry { owner, token, what, holder, end, held, ago, .. } = entry;
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    HistoryEntry {
        ago_ms: millis(*ago),
        what: *what,
        token: *token,
        host: owner.host.to_string(),
        name: owner.name.to_string(),
        program: program(holder),
        // A gateway does not say for how long.
        held_ms: (*what != Happened::Granted && !held.is_zero()).then(|| millis(*held)),
        reason: text(&end.reason),
        detail: text(&end.detail),
        exit_status: end.exit_status,
        by: text(&end.by),
    }
}

/// A holder's process as its own agent knew it.
pub(super) fn program(holder: &model::Holder) -> ProgramView {
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    ProgramView {
        pid: holder.pid,
        uid: holder.uid,
        user: text(&holder.program.user),
        command: text(&holder.program.command),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
