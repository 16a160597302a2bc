//! The past on the status page: of one resource from the store's history, of the fleet as far as this gateway knows it.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request as Call, State};
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tenure_core::model::{Answer, HistoryEntry, Request, Resource};
use tenure_wire::{Happened, Kind};
use uuid::Uuid;

use super::changes::PastChange;
use super::listing::Wanted;
use super::now_ms;
use super::query::Pairs;
use super::resources::ASKED_AT_ONCE;
use crate::access::{Caller, Right};
use crate::face::refused::Refused;
use crate::face::{Face, owners};

/// Most resources whose histories make up the history of the fleet: each is a call to the store.
const READ_MAX: usize = 100;
/// Most changes in an answer.
const SHOWN_MAX: usize = 300;

#[derive(Debug, Serialize)]
pub(super) struct Past {
    /// Newest first.
    changes: Vec<Change>,
}

/// A change, with the field names of events, and with more from the history.
#[derive(Debug, Serialize)]
struct Change {
    /// ms since 1970.
    at: u64,
    tenant: Arc<str>,
    kind: Kind,
    name: Arc<str>,
    change: Arc<str>,
    reason: Option<Arc<str>>,
    holder: Option<Arc<str>>,
    token: Option<u64>,
    #[serde(flatten)]
    details: Option<HistoryDetails>,
}

/// More about a change, from the history in the store.
#[derive(Debug, Serialize)]
struct HistoryDetails {
    host: Arc<str>,
    /// How long the hold had lasted at its end, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u64>,
    /// The administrator who revoked the hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_status: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Arc<str>>,
}

/// Answers with the past of one resource, which takes the right `history`, or of the fleet: the changes that this
/// gateway saw since its start, and with that right the histories of the first resources of the listing.
pub(super) async fn history(
    State(face): State<Arc<Face>>,
    request: Call,
) -> Result<Json<Past>, Refused> {
    let caller = face.admit_person(&request)?;
    let mut pairs = Pairs::of(request.uri(), &["tenant", "kind", "name"])?;
    let kind = pairs.read("kind", "one of master, leader, lease, semaphore", |_| true)?;
    let [tenant, name] = ["tenant", "name"].map(|key| pairs.take(key));
    let changes = match (tenant, kind, name) {
        (None, None, None) => of_fleet(&face, &caller).await?,
        (Some(tenant), Some(kind), Some(name)) => {
            let one = Resource { tenant: tenant.into(), kind, name: name.into() };
            of_resource(&face, &caller, one).await?
        }
        _ => {
            let rule = "is of one resource, which has a tenant, a kind and a name: give all three, or none of them";
            return Err(Refused::field("name", rule));
        }
    };
    Ok(Json(Past { changes }))
}

async fn of_resource(
    face: &Face,
    caller: &Caller,
    resource: Resource,
) -> Result<Vec<Change>, Refused> {
    let request = Request::History(resource);
    request.check()?;
    let entries = entries_of(face.carry_out(caller, request).await?);
    Ok(entries.into_iter().map(recorded).collect())
}

fn entries_of(answer: Answer) -> Vec<HistoryEntry> {
    match answer {
        Answer::History(entries) => entries,
        _ => Vec::new(),
    }
}

async fn of_fleet(face: &Arc<Face>, caller: &Caller) -> Result<Vec<Change>, Refused> {
    let mark = caller.principal.mark;
    let mut entries = Vec::new();
    if caller.has(Right::History) {
        let listing = face.people.catalogue.look(face).await;
        let (_, names) = listing.page(&caller.bounds, &Wanted::default(), 0, READ_MAX).await;
        let read = |resource| face.ask_counted(caller, Request::History(resource), None);
        let read = stream::iter(names).map(read).buffer_unordered(ASKED_AT_ONCE);
        // A history that cannot be read now is left out: no decision goes by it.
        let answers: Vec<_> = read.collect().await;
        entries = answers.into_iter().filter_map(Result::ok).flat_map(entries_of).collect();
    }
    // The store's history has more details of the same change.
    let known: HashSet<_> = entries.iter().map(|it| (it.claim.0, it.what)).collect();
    let is_new =
        |told: &PastChange| told.recorded().is_none_or(|recorded| !known.contains(&recorded));
    let told = face.people.changes.past(caller).into_iter().filter(is_new);
    let mut changes: Vec<_> = told.map(Change::from).collect();
    let mut answer = Answer::History(entries);
    if !caller.has(Right::Owners) {
        owners::hide(mark, &mut answer);
    }
    changes.extend(entries_of(answer).into_iter().map(recorded));
    changes.sort_by_key(|change| Reverse(change.at));
    changes.truncate(SHOWN_MAX);
    Ok(changes)
}

impl From<PastChange> for Change {
    fn from(told: PastChange) -> Change {
        let Resource { tenant, kind, name } = told.resource;
        Change {
            at: told.at,
            tenant,
            kind,
            name,
            change: told.change,
            reason: told.reason.map(Arc::from),
            holder: told.holder,
            token: told.token,
            details: None,
        }
    }
}

impl PastChange {
    /// Claim and change by which the history of the resource has the same.
    fn recorded(&self) -> Option<(Uuid, Happened)> {
        let what = match &*self.change {
            "granted" => Happened::Granted,
            "released" => Happened::Released,
            "waiting" | "announced" | "changed" => return None,
            _ => Happened::Lost,
        };
        Some((self.about?, what))
    }
}

/// A change of the history. Its word is the reason of a loss, as that of an event is.
fn recorded(entry: HistoryEntry) -> Change {
    let HistoryEntry { resource, owner, token, what, holder, end, held, ago, .. } = entry;
    let change = match what {
        Happened::Lost => end.reason.unwrap_or_else(|| what.as_str().into()),
        Happened::Granted | Happened::Released => what.as_str().into(),
    };
    let Resource { tenant, kind, name } = resource;
    Change {
        at: now_ms().saturating_sub(millis(ago)),
        tenant,
        kind,
        name,
        change,
        reason: end.detail,
        holder: Some(owner.name),
        token: Some(token),
        details: Some(HistoryDetails {
            host: owner.host,
            held_ms: (what != Happened::Granted && !held.is_zero()).then(|| millis(held)),
            by: end.by,
            exit_status: end.exit_status,
            pid: holder.pid,
            uid: holder.uid,
            user: holder.program.user,
            command: holder.program.command,
        }),
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
