//! `GET /v1/status`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use tenure_core::keeper::{StatusCursor, StatusPage};
use tenure_host::clock;
use tenure_wire::{AgentStatus, Outage, Problem, Status, UpstreamStatus};

use super::context::Context;
use super::query::{Paged, Pairs, Queried, Query};
use super::respond::{Refused, long_json};
use super::server::Connected;

/// `[?limit=…][&cursor=…]`.
pub(super) struct StatusQuery(StatusPage);

impl Query for StatusQuery {
    const KEYS: &'static [&'static str] = &["limit", "cursor"];

    fn from_pairs(mut pairs: Pairs) -> Result<StatusQuery, Box<Problem>> {
        let Paged { limit, cursor } = Paged::from_pairs(&mut pairs)?;
        let after = cursor.map(|text| read_cursor(&text).ok_or_else(|| Paged::bad_cursor(&text)));
        Ok(StatusQuery(StatusPage { after: after.transpose()?, limit }))
    }
}

fn write_cursor(cursor: &StatusCursor) -> String {
    let StatusCursor { uid, session, hold } = cursor;
    format!("{uid:08x}.{}.{}", session.simple(), hold.simple())
}

fn read_cursor(text: &str) -> Option<StatusCursor> {
    let mut parts = text.split('.');
    let cursor = StatusCursor {
        uid: u32::from_str_radix(parts.next()?, 16).ok()?,
        session: parts.next()?.parse().ok()?,
        hold: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(cursor)
}

/// The agent, its upstream, and the caller's sessions and holds, page by page.
#[utoipa::path(get, path = "/v1/status", tag = "agent",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "How many sessions and holds together; default 100"),
        ("cursor" = Option<String>, Query, description = "The `cursor` of the page before"),
    ),
    responses(
        (status = 200, description = "What there is to know", body = Status),
        super::answers::Common,
    ))]
pub(super) async fn status(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(StatusQuery(page)): Queried<StatusQuery>,
) -> Result<Response, Refused> {
    let _turn = context.long.turn(connection.peer().uid).await;
    let view = context.heart.status(connection.caller(), page).await?;
    let probe = context.heart.probe().await?;
    let about = &context.about;
    let (now, reach) = (clock::now(), probe.health.reach);
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let status = Status {
        agent: AgentStatus {
            version: about.agent.version.clone(),
            pid: std::process::id(),
            host_id: about.agent.host_id.clone(),
            host: about.host.clone(),
            boot_id: about.boot_id,
            uptime_ms: ms(now.since(context.started)),
            boottime_ns: Some(now.as_nanos()),
            sessions: view.sessions,
            holds: view.holds.iter().map(|[held, jeopardy, _]| held + jeopardy).sum(),
            waiters: view.holds.iter().map(|[_, _, waiting]| waiting).sum(),
        },
        upstream: UpstreamStatus {
            kind: about.agent.upstream.clone(),
            state: probe.health.state,
            behind: probe.health.behind,
            address: about.address.clone(),
            gateways: probe.health.gateways,
            guarantee: match probe.health.guarantee {
                Some(found) => found.to_owned(),
                None => about.agent.guarantee.clone(),
            },
            since_ms: reach.map(|reach| ms(now.since(reach.since))),
            outage: reach.and_then(|reach| reach.outage).map(|outage| Outage {
                lasted_ms: ms(outage.ended.since(outage.began)),
                ended_ms: ms(now.since(outage.ended)),
            }),
            last_error: probe.health.last_error,
            last_error_ms: probe.health.last_error_at.map(|at| ms(now.since(at))),
            beat_lateness: probe.lateness,
            latency: probe.latency,
        },
        sessions: view.visible,
        total: view.total,
        cursor: view.next.as_ref().map(write_cursor),
    };
    long_json(context.heart.budget(), connection.peer().uid, &status)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn every_users_cursor_has_the_form_that_the_document_says() {
        for uid in [0, 1000, u32::MAX] {
            let cursor =
                StatusCursor { uid, session: Uuid::from_u128(1), hold: Uuid::from_u128(u128::MAX) };
            let text = write_cursor(&cursor);
            let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
            let parts: Vec<_> = text.split('.').collect();
            assert!(parts.iter().all(|part| part.chars().all(is_hex)), "{text}");
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 32, 32]);
            assert_eq!(read_cursor(&text), Some(cursor));
        }
    }
}
