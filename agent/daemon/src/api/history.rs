//! `GET /v1/history`.

use std::cmp::Reverse;
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
    let mut changes = context.heart.history(connection.caller(), resource.clone()).await?;
    order(resource.kind, &mut changes);
    let history = History {
        tenant: resource.tenant.to_string(),
        kind: resource.kind,
        name: resource.name.to_string(),
        changes: changes.iter().map(view).collect(),
    };
    long_json(context.heart.budget(), connection.peer().uid, &history)
}

/// Puts changes that other hosts told of a little late where they belong: the end of an exclusive hold comes before the
/// next grant, whose token is greater.
fn order(kind: Kind, changes: &mut [model::HistoryEntry]) {
    if kind != Kind::Semaphore {
        changes.sort_by_key(|change| Reverse((change.token, change.what != Happened::Granted)));
    }
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

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tenure_core::model::{ClaimId, Owner, Resource, SessionId};
    use uuid::Uuid;

    use super::*;

    fn change(token: u64, what: Happened, ago: u64) -> model::HistoryEntry {
        let owner =
            Owner { session: SessionId(Uuid::nil()), host: "a".into(), name: "program".into() };
        model::HistoryEntry {
            resource: Resource { tenant: "default".into(), kind: Kind::Lease, name: "x".into() },
            claim: ClaimId(Uuid::from_u128(token.into())),
            owner,
            token,
            what,
            holder: model::Holder::default(),
            end: model::Ending::default(),
            held: Duration::ZERO,
            ago: Duration::from_millis(ago),
        }
    }

    #[test]
    fn the_end_of_a_hold_comes_before_the_next_grant_however_late_it_was_told() {
        use Happened::{Granted, Released};
        let told = [(7, Released, 10), (8, Granted, 12), (7, Granted, 50), (5, Granted, 60)];
        let mut changes = told.map(|(token, what, ago)| change(token, what, ago));
        order(Kind::Semaphore, &mut changes);
        let tokens = |changes: &[model::HistoryEntry]| -> Vec<_> {
            changes.iter().map(|it| (it.token, it.what)).collect()
        };
        assert_eq!(tokens(&changes), [(7, Released), (8, Granted), (7, Granted), (5, Granted)]);
        order(Kind::Lease, &mut changes);
        assert_eq!(tokens(&changes), [(8, Granted), (7, Released), (7, Granted), (5, Granted)]);
    }
}
