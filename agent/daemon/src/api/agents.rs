//! `GET /v1/agents`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use tenure_core::model::{AgentSeen, Page, UNSEEN_AFTER};
use tenure_wire::{AgentView, Agents, Problem};

use super::context::Context;
use super::query::{Paged, Pairs, Queried, Query};
use super::respond::{Refused, long_json};
use super::server::Connected;

/// `[?limit=…][&cursor=…]`.
pub(super) struct AgentsQuery(Page);

impl Query for AgentsQuery {
    const KEYS: &'static [&'static str] = &["limit", "cursor"];

    fn from_pairs(mut pairs: Pairs) -> Result<AgentsQuery, Box<Problem>> {
        let Paged { limit, cursor } = Paged::from_pairs(&mut pairs)?;
        Ok(AgentsQuery(Page { after: cursor.map(Into::into), limit }))
    }
}

/// The agents of this agent's store, page by page and in no order, this one first. An agent may come again, and one that
/// comes or goes meanwhile be missed. Behind a gateway they are those of the tenants of this agent's key.
#[utoipa::path(get, path = "/v1/agents", tag = "fleet",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "About how many agents; default 100"),
        ("cursor" = Option<String>, Query, description = "The `cursor` of the page before"),
    ),
    responses(
        (status = 200, description = "A page of agents. A caller whom `[[allow]]` rules bound is told of this one alone", body = Agents),
        super::answers::Common,
    ))]
pub(super) async fn agents(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(AgentsQuery(page)): Queried<AgentsQuery>,
) -> Result<Response, Refused> {
    let peer = connection.peer();
    let _turn = context.long.turn(peer.uid).await;
    let is_first = page.after.is_none();
    let (mut seen, mut next) = context.heart.agents(connection.caller(), page).await?;
    let mut has_own = is_first;
    // Rules bound tenants, and the agents of a store are of all of them.
    if !context.reads_all(&peer) {
        seen.truncate(usize::from(is_first));
        next = None;
    }
    let view = |agent| view(agent, std::mem::take(&mut has_own));
    let agents = Agents {
        agents: seen.into_iter().map(view).collect(),
        cursor: next.as_deref().map(str::to_owned),
    };
    long_json(context.heart.budget(), peer.uid, &agents)
}

fn view(AgentSeen { agent, host, ago, facts }: AgentSeen, this: bool) -> AgentView {
    let seen = ago <= UNSEEN_AFTER;
    AgentView {
        agent: agent.to_string(),
        host: host.to_string(),
        version: facts.version.to_string(),
        this,
        seen,
        last_seen_ms: millis(ago),
        up_ms: facts.up_ms.saturating_add(if seen { millis(ago) } else { 0 }),
        sessions: facts.sessions,
        held: facts.held,
        waiting: facts.waiting,
        principal: facts.principal.as_deref().map(str::to_owned),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
