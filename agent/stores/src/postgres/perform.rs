//! Requests become statements, and their rows answers.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, ClaimAnswer, Failure, GoneReason, HistoryEntry, Page,
    RESOURCES_LISTED_MAX, Request, Resource, STANDING_LISTED_MAX, SessionRecord, Subject, Terms,
    Within, defaults,
};
use tenure_wire::{Attributes, Kind, Route, Routes};
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Line, json, read, rows, value};
use super::statements::Operation;

/// Longest duration in a statement: 30 years.
const SPAN_MAX: Duration = Duration::from_secs(946_080_000);
/// Most beats in one statement.
const BEATS_MAX: usize = 512;
/// Time that the first beat of a call that is asked about alone waits for each lock, ms. A lock that it does not get
/// halves it for the next, so that all together wait for less than the shortest deadline of a call.
const LOCK_WAIT_MS: i32 = 25;
/// Beats of a call that find a lock. What is left then waits for the next call.
const LOCKED_MAX: u32 = 32;
/// Most lines of a routing table in one answer.
const LINES_MAX: usize = 1024;
/// The status of a lease in its grace.
const EXPIRING: &str = "expiring";

/// A token as the store has it.
pub(super) fn token(token: u64) -> i64 {
    i64::try_from(token).unwrap_or(i64::MAX)
}

/// Whole µs, never less than asked for.
fn us(span: Duration) -> i64 {
    let us = span.min(SPAN_MAX).as_nanos().div_ceil(1000);
    i64::try_from(us).unwrap_or(i64::MAX)
}

fn listed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) async fn perform(
    line: &mut Line,
    request: &Request,
    floor: i64,
) -> Result<Answer, Failure> {
    match request {
        Request::Claim(it) => claim(line, it, floor).await.map(Answer::Claim),
        Request::Renew(beats) => renew(line, beats, floor).await.map(Answer::Renew),
        Request::Release { claim, resource: Resource { tenant, kind, name } } => {
            let parameters = (&claim.0, &**tenant, kind.as_str(), &**name);
            let (claim, tenant, kind, name) = parameters;
            let operation = Operation::Release;
            value(line, operation, &[claim, &tenant, &kind, &name, &floor])
                .await
                .map(Answer::Released)
        }
        Request::Announce(record) => announce(line, record).await,
        Request::EndSession { session, tenant, project } => {
            let parameters: super::connection::Parameters<'_> =
                &[&session.0, &&**tenant, &&**project];
            value(line, Operation::EndSession, parameters).await.map(Answer::Ended)
        }
        Request::Inspect(resource) => {
            inspect(line, resource, listed(STANDING_LISTED_MAX), floor).await
        }
        Request::Holders(resource) => inspect(line, resource, i64::MAX, floor).await,
        // It tells of all at once: they are rows of one table.
        Request::Members { within, listed, .. } => members(line, within, *listed).await,
        Request::Routes { tenant, name, page } => {
            routes(line, tenant, name.as_deref(), page, floor).await.map(Answer::Routes)
        }
        Request::Resources { page } => resources(line, page).await,
        Request::Revoke { resource, token: of, revocation } => {
            let words = revocation.as_deref().and_then(|it| serde_json::to_string(it).ok());
            revoke(line, resource, of.map(token), words, floor).await
        }
        Request::Record(entries) => record(line, entries).await,
        Request::History(Resource { tenant, kind, name }) => {
            let of: super::connection::Parameters<'_> = &[&&**tenant, &kind.as_str(), &&**name];
            let rows = rows(line, Operation::History, of).await?;
            rows.iter().map(change).collect::<Result<_, _>>().map(Answer::History)
        }
    }
}

async fn claim(line: &mut Line, claim: &Claim, floor: i64) -> Result<ClaimAnswer, Failure> {
    let (mut priority, mut permits, mut keeps_limit) = (0, None, Some(false));
    let (mut grace_us, mut attributes_text) = (0, None);
    let (mut from, mut unbeaten_us) = (None, 0);
    let kind = match &claim.terms {
        Terms::Leader => Kind::Leader,
        Terms::Master { priority: of_session } => {
            priority = *of_session;
            Kind::Master
        }
        Terms::Semaphore { limit, keeps, only_own } => {
            permits = Some(i64::from(*limit));
            // Null keeps that of others.
            keeps_limit = Some(*keeps).filter(|keeps| *keeps || !*only_own);
            Kind::Semaphore
        }
        Terms::Lease { grace, attributes, take_over } => {
            grace_us = us(*grace);
            attributes_text = serde_json::to_string(attributes).ok();
            from = take_over.as_ref().map(|it| it.from.0);
            unbeaten_us = take_over.as_ref().map_or(0, |it| us(it.unbeaten));
            Kind::Lease
        }
    };
    let Claim { id, resource, owner, ttl, enqueue, .. } = claim;
    if kind != resource.kind {
        return Ok(ClaimAnswer::Gone(GoneReason::Conflict));
    }
    json(
        line,
        Operation::Claim,
        &[
            &id.0,
            &&*resource.tenant,
            &kind.as_str(),
            &&*resource.name,
            &owner.session.0,
            &&*owner.host,
            &&*owner.name,
            &us(*ttl),
            enqueue,
            &priority,
            &permits,
            &keeps_limit,
            &grace_us,
            &attributes_text,
            &from,
            &unbeaten_us,
            &floor,
        ],
    )
    .await
}

/// The beats of one statement, in columns, and where their answers belong.
#[derive(Default)]
struct Columns<'a> {
    at: Vec<usize>,
    ids: Vec<Uuid>,
    tenants: Vec<&'a str>,
    kinds: Vec<&'a str>,
    names: Vec<&'a str>,
    ttls: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, at: usize, id: Uuid, resource: &'a Resource, ttl: Duration) {
        self.at.push(at);
        self.ids.push(id);
        self.tenants.push(&resource.tenant);
        self.kinds.push(resource.kind.as_str());
        self.names.push(&resource.name);
        self.ttls.push(us(ttl));
    }
}

/// Takes grants away, a part in each call.
async fn revoke(
    line: &mut Line,
    Resource { tenant, kind, name }: &Resource,
    of: Option<i64>,
    words: Option<String>,
    floor: i64,
) -> Result<Answer, Failure> {
    let (mut revoked, mut newest) = (0, None::<i64>);
    loop {
        let parameters: super::connection::Parameters<'_> =
            &[&&**tenant, &kind.as_str(), &&**name, &of, &words, &floor, &newest];
        let part = rows(line, Operation::Revoke, parameters).await.map_err(|failure| {
            // An earlier part took effect.
            if revoked > 0 { Failure::Unknown(failure.cause().to_owned()) } else { failure }
        })?;
        let part = part.first().map(|row| (row.get::<_, i64>(0), row.get(1)));
        let (count, next) = part.unwrap_or_default();
        revoked += count.unsigned_abs();
        newest = next;
        if newest.is_none() {
            return Ok(Answer::Revoked(revoked));
        }
    }
}

/// Beats in batches, and then one by one those that the store did not take together. What keeps it from one of these
/// costs no other its answer.
async fn renew(line: &mut Line, beats: &[Beat], floor: i64) -> Result<Vec<BeatAnswer>, Failure> {
    let _place = line.place().await;
    let mut answers = vec![None; beats.len()];
    for (first, some) in beats.chunks(BEATS_MAX).enumerate() {
        let (mut claims, mut sessions) = (Columns::default(), Columns::default());
        for (at, beat) in some.iter().enumerate() {
            let at = first * BEATS_MAX + at;
            match &beat.subject {
                Subject::Claim { claim, resource } => claims.push(at, claim.0, resource, beat.ttl),
                Subject::Session { session, master } => {
                    sessions.push(at, session.0, master, beat.ttl);
                }
            }
        }
        if !claims.at.is_empty() {
            let Columns { at, ids, tenants, kinds, names, ttls } = &claims;
            let rows = rows(line, Operation::Renew, &[ids, tenants, kinds, names, ttls]).await?;
            put(&mut answers, at, &rows)?;
        }
        if !sessions.at.is_empty() {
            let Columns { at, ids, ttls, .. } = &sessions;
            let rows = rows(line, Operation::RenewSessions, &[ids, ttls]).await?;
            put(&mut answers, at, &rows)?;
        }
    }
    let mut whole = Vec::with_capacity(beats.len());
    let mut locked = 0;
    for (beat, answer) in beats.iter().zip(answers) {
        whole.push(match (answer, &beat.subject) {
            (Some(answer), _) => answer,
            (None, Subject::Claim { claim, resource }) if locked < LOCKED_MAX => {
                let (Resource { tenant, kind, name }, ttl) = (resource, us(beat.ttl));
                let wait = (LOCK_WAIT_MS >> locked).max(1);
                let parameters: super::connection::Parameters<'_> =
                    &[&claim.0, &&**tenant, &kind.as_str(), &&**name, &ttl, &floor, &wait];
                let answer = json(line, Operation::Beat, parameters).await;
                let answer = answer.unwrap_or_else(|it| BeatAnswer::Failed(it.cause().to_owned()));
                locked += u32::from(matches!(answer, BeatAnswer::Failed(_)));
                answer
            }
            (None, Subject::Claim { .. }) => {
                BeatAnswer::Failed("too many rows in Postgres are locked".to_owned())
            }
            (None, Subject::Session { .. }) => BeatAnswer::Gone(GoneReason::Unknown),
        });
    }
    Ok(whole)
}

fn put(answers: &mut [Option<BeatAnswer>], at: &[usize], rows: &[Row]) -> Result<(), Failure> {
    for (at, row) in at.iter().zip(rows) {
        let answer: Option<&str> = row.get(0);
        if let (Some(slot), Some(answer)) = (answers.get_mut(*at), answer) {
            *slot = Some(read(answer)?);
        }
    }
    Ok(())
}

async fn announce(line: &mut Line, record: &SessionRecord) -> Result<Answer, Failure> {
    let SessionRecord { owner, tenant, project, surface, ttl, .. } = record;
    let parameters: super::connection::Parameters<'_> = &[
        &owner.session.0,
        &&**tenant,
        &&**project,
        &&*owner.name,
        &&*owner.host,
        &&**surface,
        &us(*ttl),
    ];
    rows(line, Operation::Announce, parameters).await.map(|_| Answer::Announced)
}

async fn inspect(
    line: &mut Line,
    Resource { tenant, kind, name }: &Resource,
    listed: i64,
    floor: i64,
) -> Result<Answer, Failure> {
    let (tenant, kind, name) = (&**tenant, kind.as_str(), &**name);
    rows(line, Operation::EndOverdue, &[&tenant, &kind, &name, &floor]).await?;
    json(line, Operation::Inspect, &[&tenant, &kind, &name, &listed]).await.map(Answer::Standing)
}

async fn members(line: &mut Line, within: &Within, listed: bool) -> Result<Answer, Failure> {
    let (session, project) = match within {
        Within::Session(session) => (Some(session.0), None),
        Within::Project { tenant, project } => (None, Some((&**tenant, &**project))),
    };
    let (tenant, project) = project.unzip();
    let found: Option<String> =
        value(line, Operation::Members, &[&session, &tenant, &project, &listed]).await?;
    found.map(|text| read(&text)).transpose().map(Answer::Members)
}

/// A part of a routing table as the store tells it.
#[derive(Deserialize)]
struct Table {
    version: u64,
    total: u64,
    lines: Vec<TableLine>,
}

#[derive(Deserialize)]
struct TableLine {
    name: String,
    host: String,
    holder: String,
    token: u64,
    version: u64,
    in_grace: bool,
    attributes: Option<String>,
}

async fn routes(
    line: &mut Line,
    tenant: &str,
    name: Option<&str>,
    page: &Page,
    floor: i64,
) -> Result<Routes, Failure> {
    // A lease that has come into its grace has another line.
    let most = listed(LINES_MAX);
    rows(line, Operation::Tend, &[&tenant, &Kind::Lease.as_str(), &most, &floor]).await?;
    let limit = page.limit.clamp(1, LINES_MAX);
    // One more tells whether there is another page.
    let asked = listed(limit + 1);
    let after = page.after.as_deref();
    let mut table: Table = json(line, Operation::Routes, &[&tenant, &name, &after, &asked]).await?;
    let has_more = table.lines.len() > limit;
    table.lines.truncate(limit);
    let cursor = table.lines.last().filter(|_| has_more).map(|last| last.name.clone());
    let routes = table.lines.into_iter().map(route).collect::<Result<_, _>>()?;
    Ok(Routes { version: table.version, routes, total: Some(table.total), cursor })
}

fn route(line: TableLine) -> Result<Route, Failure> {
    let TableLine { name, host, holder, token, version, in_grace, attributes } = line;
    let attributes: Attributes =
        attributes.map(|text| read(&text)).transpose()?.unwrap_or_default();
    let status = if in_grace { EXPIRING } else { defaults::status(&attributes) }.to_owned();
    let partition = defaults::partition(&attributes, &name);
    Ok(Route {
        name,
        host,
        holder,
        address: attributes.address.unwrap_or_default(),
        proxy_id: attributes.proxy_id.unwrap_or_default(),
        partition,
        status,
        token,
        version,
    })
}

/// The cursor of a walk: the row of a resource, or a project after which to go on; `None` for one of another store.
fn cursor(after: &str) -> Option<Result<i64, (String, String)>> {
    match after.split_at_checked(1)? {
        ("r", row) => row.parse().ok().map(Ok),
        ("p", project) => serde_json::from_str(project).ok().map(Err),
        _ => None,
    }
}

async fn resources(line: &mut Line, page: &Page) -> Result<Answer, Failure> {
    let limit = listed(page.limit.clamp(1, RESOURCES_LISTED_MAX));
    let from = page.after.as_deref().and_then(cursor).unwrap_or(Ok(0));
    let (resources, next): (Vec<Resource>, Option<Arc<str>>) = match from {
        Ok(row) => {
            let rows = rows(line, Operation::Resources, &[&row, &limit]).await?;
            let next = match rows.last() {
                Some(last) if listed(rows.len()) == limit => format!("r{}", last.get::<_, i64>(0)),
                _ => r#"p["",""]"#.to_owned(),
            };
            let resource = |row: &Row| {
                let kind = read(&format!("\"{}\"", row.get::<_, &str>(2)))?;
                let (tenant, name): (&str, &str) = (row.get(1), row.get(3));
                Ok(Resource { tenant: tenant.into(), kind, name: name.into() })
            };
            (rows.iter().map(resource).collect::<Result<_, Failure>>()?, Some(next.into()))
        }
        Err((tenant, project)) => {
            let rows = rows(line, Operation::Projects, &[&tenant, &project, &limit]).await?;
            let projects: Vec<(&str, &str)> =
                rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            let last = projects.last().filter(|_| listed(projects.len()) == limit);
            let next = last.and_then(|last| serde_json::to_string(last).ok());
            let master = |(tenant, name): (&str, &str)| Resource {
                tenant: tenant.into(),
                kind: Kind::Master,
                name: name.into(),
            };
            (projects.into_iter().map(master).collect(), next.map(|it| format!("p{it}").into()))
        }
    };
    Ok(Answer::Resources { resources, next })
}

async fn record(line: &mut Line, entries: &[HistoryEntry]) -> Result<Answer, Failure> {
    let texts = entries.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
    let texts = texts.map_err(|error| Failure::Unavailable(error.to_string()))?;
    let of = |part: fn(&HistoryEntry) -> &str| entries.iter().map(part).collect::<Vec<_>>();
    let claims: Vec<Uuid> = entries.iter().map(|entry| entry.claim.0).collect();
    let agos: Vec<i64> = entries.iter().map(|entry| us(entry.ago)).collect();
    let parameters: super::connection::Parameters<'_> = &[
        &of(|entry| &entry.resource.tenant),
        &of(|entry| entry.resource.kind.as_str()),
        &of(|entry| &entry.resource.name),
        &claims,
        &of(|entry| entry.what.as_str()),
        &agos,
        &texts,
    ];
    rows(line, Operation::Record, parameters).await.map(|_| Answer::Recorded)
}

fn change(row: &Row) -> Result<HistoryEntry, Failure> {
    let entry: HistoryEntry = read(row.get(0))?;
    let ago = Duration::from_micros(row.get::<_, i64>(1).unsigned_abs());
    Ok(HistoryEntry { ago, ..entry })
}
