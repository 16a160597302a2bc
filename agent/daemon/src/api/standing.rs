//! `GET /v1/standing`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tenure_core::model::{HistoryEntry, Resource};
use tenure_wire::{Happened, Holder, Kind, Standing};

use super::context::Context;
use super::history::{millis, program};
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

/// Adds to a standing, from the store's history, the processes of holders on other hosts and the ends of kept holds.
pub(super) async fn standing_of(
    context: &Context,
    connection: &Connection,
    resource: Resource,
) -> Result<Standing, Refused> {
    let caller = connection.caller();
    let mut standing = context.heart.standing(caller, resource.clone()).await?;
    if !standing.holders.iter().any(lacks_its_past) {
        return Ok(standing);
    }
    // Nobody is kept from the standing by what only goes with it.
    let Ok(changes) = context.heart.history(connection.caller(), resource).await else {
        return Ok(standing);
    };
    for holder in standing.holders.iter_mut().filter(|holder| lacks_its_past(holder)) {
        complete(holder, &changes);
    }
    Ok(standing)
}

/// True if the history may have the holder's process or end.
fn lacks_its_past(holder: &Holder) -> bool {
    holder.is_of_tenure() && (holder.pid.is_none() || holder.kept_ms.is_some())
}

/// Adds to a holder its process and its end, from the history of its resource.
pub(super) fn complete(holder: &mut Holder, changes: &[HistoryEntry]) {
    let token = holder.token;
    let any = changes.iter().find(|change| change.token == token);
    let is_end = |change: &&HistoryEntry| change.token == token && change.what != Happened::Granted;
    let end = changes.iter().find(is_end);
    let (ended, kept) = (end.map(|end| end.ago), end.and_then(HistoryEntry::kept_for));
    if let Some(program) = any.map(|change| program(&change.holder))
        && holder.pid.is_none()
    {
        holder.pid = program.pid;
        holder.uid = program.uid;
        holder.user = program.user;
        holder.command = program.command;
    }
    holder.ended_ms = ended.map(millis);
    holder.kept_ms = holder.kept_ms.or(kept.map(millis));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::model::{ClaimId, Ending, Owner, SessionId};
    use uuid::Uuid;

    use super::*;

    fn change(token: u64, what: Happened, ago: u64, kept: u64) -> HistoryEntry {
        let owner = Owner { session: SessionId(Uuid::nil()), host: "a".into(), name: "x".into() };
        HistoryEntry {
            resource: Resource { tenant: "t".into(), kind: Kind::Leader, name: "x".into() },
            claim: ClaimId(Uuid::from_u128(token.into())),
            owner,
            token,
            what,
            holder: tenure_core::model::Holder { pid: Some(12), ..Default::default() },
            end: Ending { kept: Duration::from_secs(kept), ..Ending::default() },
            held: Duration::ZERO,
            ago: Duration::from_secs(ago),
        }
    }

    #[test]
    fn a_holder_of_another_host_has_its_process_and_its_end_from_its_history() {
        let holder = || Holder { token: 7, ..Holder::default() };
        let past = |changes: &[HistoryEntry]| {
            let mut holder = holder();
            complete(&mut holder, changes);
            (holder.pid, holder.ended_ms, holder.kept_ms)
        };
        let granted = change(7, Happened::Granted, 5, 0);
        assert_eq!(past(&[change(6, Happened::Released, 5, 60)]), (None, None, None));
        assert_eq!(past(std::slice::from_ref(&granted)), (Some(12), None, None));
        let ended = |kept| [change(7, Happened::Released, 2, kept), granted.clone()];
        assert_eq!(past(&ended(60)), (Some(12), Some(2000), Some(58_000)));
        assert_eq!(past(&ended(1)), (Some(12), Some(2000), None), "that is over");
        let mut known = Holder { pid: Some(3), kept_ms: Some(57_990), ..holder() };
        complete(&mut known, &ended(60));
        let told = (known.pid, known.ended_ms, known.kept_ms);
        assert_eq!(told, (Some(3), Some(2000), Some(57_990)), "its own host knows better");
    }
}
