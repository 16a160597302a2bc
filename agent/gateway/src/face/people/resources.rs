//! Who holds and waits for what: a page of all, in order.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request as Call, State};
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tenure_core::model::{
    self, Answer, Failure, HistoryEntry, Page, Request, Resource, SessionId, StandingEntry,
    UpstreamStanding,
};
use tenure_wire::{Kind, Route};

use super::listing::Wanted;
use super::overview;
use super::past::millis;
use super::query::Pairs;
use crate::access::{Caller, Right};
use crate::face::refused::Refused;
use crate::face::{Face, owners};

/// Rows of a page, unless its reader says otherwise, and at most.
pub(super) const ROWS: usize = 50;
pub(super) const ROWS_MAX: usize = 100;
/// Longest part of a name that is searched for, bytes; names are no longer.
pub(super) const TEXT_MAX: usize = 512;
/// Questions for rows that the store has at a time: beats go between them.
pub(super) const ASKED_AT_ONCE: usize = 8;
/// A holder that was renewed within this time has not ended.
const JUST_RENEWED: Duration = Duration::from_millis(500);

#[derive(Debug, Serialize)]
pub(super) struct Rows {
    /// How many there are.
    total: usize,
    offset: usize,
    rows: Vec<Row>,
}

/// A resource, as the store has it now.
#[derive(Debug, Serialize)]
struct Row {
    tenant: Arc<str>,
    kind: Kind,
    name: Arc<str>,
    /// Semaphore only.
    limit: Option<u32>,
    #[serde(flatten)]
    counts: Counts,
    /// Master only: the names of the project's first sessions.
    sessions: Vec<Arc<str>>,
    holders: Vec<Holder>,
    waiters: Vec<Owner>,
    #[serde(flatten)]
    term: Term,
    /// Lease only: its line of the routing table.
    route: Option<Route>,
    /// Why the store did not tell of this one.
    error: Option<String>,
}

/// The numbers of holders, waiters and announced sessions, listed or not.
#[derive(Debug, Serialize)]
struct Counts {
    holding: u64,
    waiting: u64,
    members: u64,
}

#[derive(Debug, Serialize)]
struct Term {
    /// Lease only, while it is held: its ttl, and its grace after that, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_ms: Option<u64>,
    /// Time until an exclusive holder expires unless it is renewed, ms; where the store tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs_out_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Holder {
    #[serde(flatten)]
    owner: Owner,
    token: u64,
    /// Time since the end of a kept hold, and time for which the hold is still kept from others, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_ms: Option<u64>,
    /// How long ago it was renewed last, ms; where the store tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_beat_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Owner {
    name: Arc<str>,
    host: Arc<str>,
    session: SessionId,
    /// How long it has held it or waited, ms.
    since_ms: u64,
}

/// Tells of a page of resources, sorted by tenant, kind and name; or of one, whether it is listed or not.
pub(super) async fn resources(
    State(face): State<Arc<Face>>,
    request: Call,
) -> Result<Json<Rows>, Refused> {
    let caller = face.admit_person(&request)?;
    let keys = ["kind", "search", "offset", "limit", "tenant", "name"];
    let mut pairs = Pairs::of(request.uri(), &keys)?;
    let kind = pairs.read("kind", "one of master, leader, lease, semaphore", |_| true)?;
    let is_short = |text: &String| text.len() <= TEXT_MAX;
    let search = pairs.read("search", &format!("{TEXT_MAX} bytes at most"), is_short)?;
    let offset = pairs.read("offset", "a number from 0 on", |_| true)?;
    let is_page = |limit: &usize| (1..=ROWS_MAX).contains(limit);
    let limit = pairs.read("limit", &format!("a number from 1 to {ROWS_MAX}"), is_page)?;
    let [tenant, name] = ["tenant", "name"].map(|key| pairs.take(key));
    let is_of_page = search.is_some() || offset.is_some() || limit.is_some();
    let offset = offset.unwrap_or(0);

    let (total, page) = match (tenant, kind, name) {
        (None, kind, None) => {
            let wanted = Wanted { kind, search: search.unwrap_or_default().to_lowercase() };
            let listing = face.people.catalogue.look(&face).await;
            let limit = limit.unwrap_or(ROWS);
            let (total, page) = listing.page(&caller.bounds, &wanted, offset, limit).await;
            if let Some(cause) = listing.failure.as_ref().filter(|_| page.is_empty()) {
                return Err(Failure::Unavailable(cause.clone()).into());
            }
            (total, page)
        }
        (Some(tenant), Some(kind), Some(name)) if !is_of_page => {
            let one = Resource { tenant: tenant.into(), kind, name: name.into() };
            Request::Inspect(one.clone()).check()?;
            let page = Vec::from_iter(Some(one).filter(|it| caller.bounds.shows(it)));
            (page.len(), page)
        }
        _ => {
            let rule = "asks for one resource, which has a tenant, a kind and a name: give all three, and no \
                search, offset or limit";
            return Err(Refused::field("name", rule));
        }
    };
    let asked = stream::iter(page).map(|name| row(&face, &caller, name)).buffered(ASKED_AT_ONCE);
    let (rows, failures): (Vec<Row>, Vec<Option<Failure>>) = asked.unzip().await;
    let failure = failures.into_iter().collect::<Option<Vec<_>>>().and_then(|mut all| all.pop());
    // What another program put in the place of one is told in its row.
    let is_away = match &failure {
        None | Some(Failure::Denied(_)) => false,
        Some(Failure::Unavailable(_)) => true,
        Some(Failure::Unknown(_)) => !overview::health(&face).await.is_up,
    };
    match failure.filter(|_| is_away) {
        Some(failure) => Err(failure.into()),
        None => Ok(Json(Rows { total, offset, rows })),
    }
}

async fn row(face: &Face, caller: &Caller, resource: Resource) -> (Row, Option<Failure>) {
    let Resource { tenant, kind, name } = resource.clone();
    let (mut standing, mut route, mut failure) = (UpstreamStanding::default(), None, None);
    match look(face, Request::Inspect(resource.clone())).await {
        Ok(Answer::Standing(found)) => {
            face.people.seen.note(&resource, &found);
            standing = found;
            if !caller.has(Right::Owners) {
                owners::hide_standing(caller.principal.mark, &mut standing);
            }
        }
        Ok(_) => {}
        Err(cause) => failure = Some(cause),
    }
    if kind == Kind::Lease && failure.is_none() {
        let (tenant, name, page) = (Arc::clone(&tenant), Some(Arc::clone(&name)), Page::whole());
        match look(face, Request::Routes { tenant, name, page }).await {
            Ok(Answer::Routes(mut found)) => route = found.routes.pop(),
            Ok(_) => {}
            Err(cause) => failure = Some(cause),
        }
    }
    let past = past(face, &resource, &standing).await;
    let row = Row {
        tenant,
        kind,
        name,
        limit: standing.limit,
        counts: Counts {
            holding: standing.holding,
            waiting: standing.waiting,
            members: standing.members,
        },
        sessions: standing.sessions,
        holders: standing.holders.into_iter().map(|it| holder(it, &past)).collect(),
        waiters: standing.waiters.into_iter().map(owner).collect(),
        term: Term {
            ttl_ms: standing.lease.map(|lease| millis(lease.ttl)),
            grace_ms: standing.lease.map(|lease| millis(lease.grace)),
            runs_out_ms: standing.runs_out.map(millis),
        },
        route,
        error: failure.as_ref().map(|failure| failure.cause().to_owned()),
    };
    (row, failure)
}

/// Asks once more if the answer was lost: a store that has just gone away is known to be away then, and the row stays what it was.
async fn look(face: &Face, request: Request) -> Result<Answer, Failure> {
    match face.store.look(request.clone()).await {
        Err(Failure::Unknown(_)) => face.store.look(request).await,
        answer => answer,
    }
}

/// The changes of a resource, unless all of its holders were renewed just now, and none has ended.
async fn past(face: &Face, resource: &Resource, standing: &UpstreamStanding) -> Vec<HistoryEntry> {
    let is_renewed = |it: &StandingEntry| it.unbeaten.is_some_and(|it| it < JUST_RENEWED);
    if standing.holders.iter().all(is_renewed) {
        return Vec::new();
    }
    match look(face, Request::History(resource.clone())).await {
        Ok(Answer::History(changes)) => changes,
        // The row is shown without its history.
        Ok(_) | Err(_) => Vec::new(),
    }
}

fn holder(entry: StandingEntry, past: &[HistoryEntry]) -> Holder {
    let end = past.iter().find(|it| it.token == entry.token && it.kept_for().is_some());
    Holder {
        token: entry.token,
        last_beat_ms: entry.unbeaten.map(millis),
        owner: owner(entry),
        ended_ms: end.map(|end| millis(end.ago)),
        kept_ms: end.and_then(HistoryEntry::kept_for).map(millis),
    }
}

fn owner(entry: StandingEntry) -> Owner {
    let model::Owner { session, host, name } = entry.owner;
    Owner { name, host, session, since_ms: millis(entry.since) }
}
