//! `GET /v1/list`.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use tenure_bounds::Globs;
use tenure_core::model::{Page, Resource};
use tenure_wire::rules::{quote, scope, visible};
use tenure_wire::{DEFAULT_TENANT, Kind, List, Problem};

use super::context::Context;
use super::query::{Paged, Pairs, Queried, Query};
use super::respond::{Refused, long_json};
use super::server::Connected;
use super::standing::standing_of;

/// Names that are asked for at once.
const NAMES_MAX: usize = 100;
/// Pages of names that are asked for at most: a store with much else in it has few names in each.
const NAME_PAGES_MAX: usize = 64;
/// Standings that are asked for at once: one is answered while the next are on their way.
const ASKED_MAX: usize = 64;
/// A page has no more once it has so many holders and waiters.
const ENTRIES_MAX: usize = 4096;

/// `[?kind=…][&glob=…][&tenant=…][&limit=…][&cursor=…]`.
pub(super) struct ListQuery {
    kind: Option<Kind>,
    glob: Option<Globs>,
    tenant: Option<String>,
    page: Page,
}

impl Query for ListQuery {
    const KEYS: &'static [&'static str] = &["kind", "glob", "tenant", "limit", "cursor"];

    fn from_pairs(mut pairs: Pairs) -> Result<ListQuery, Box<Problem>> {
        let kind = match pairs.take("kind") {
            None => None,
            Some(kind) => Some(kind.parse().map_err(|_| {
                let value = quote(&kind);
                let detail = format!(
                    "kind is {value}, but must be master, leader, lease or semaphore; correct or remove it"
                );
                Problem::invalid("kind", detail)
            })?),
        };
        let glob = pairs.take("glob");
        glob.as_deref().map_or(Ok(()), |glob| visible("glob", glob))?;
        let glob = glob.map(|glob| Globs::new([glob])).transpose().map_err(|bad| {
            Problem::invalid("glob", format!("glob is {bad}; correct or remove it"))
        })?;
        let tenant = pairs.take("tenant");
        tenant.as_deref().map_or(Ok(()), |tenant| scope("tenant", tenant))?;
        let Paged { limit, cursor } = Paged::from_pairs(&mut pairs)?;
        let page = Page { after: cursor.map(Into::into), limit };
        Ok(ListQuery { kind, glob, tenant, page })
    }
}

/// All that is held or waited for, across the fleet, page by page and in no order. A page may be empty and have
/// one after it, a resource may come again, and what comes or goes meanwhile be missed. What the store cannot tell of is left out.
#[utoipa::path(get, path = "/v1/list", tag = "fleet",
    params(
        ("kind" = Option<Kind>, Query, description = "Only this kind"),
        ("glob" = Option<String>, Query, description = "Only names that it matches; `*` also covers slashes"),
        ("tenant" = Option<String>, Query, description = "The tenant; default for root and the agent's own user all of them, for others `default`"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "How many resources, about; fewer where many hold or wait"),
        ("cursor" = Option<String>, Query, description = "The `cursor` of the page before"),
    ),
    responses(
        (status = 200, description = "A page of what the caller may read of", body = List),
        super::answers::Common,
    ))]
pub(super) async fn list(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(ListQuery { kind, glob, tenant, page }): Queried<ListQuery>,
) -> Result<Response, Refused> {
    let peer = connection.peer();
    let tenant = match tenant {
        None if context.is_administrator(peer.uid) => None,
        tenant => Some(tenant.unwrap_or_else(|| DEFAULT_TENANT.to_owned())),
    };
    let is_wanted = |resource: &Resource| {
        tenant.as_deref().is_none_or(|tenant| tenant == &*resource.tenant)
            && kind.is_none_or(|kind| kind == resource.kind)
            && glob.as_ref().is_none_or(|glob| glob.is_match(&resource.name))
            && context.check_reading(&peer, resource).is_ok()
    };
    let _turn = context.long.turn(peer.uid).await;
    let Page { mut after, limit } = page;
    let mut met: HashSet<Resource> = HashSet::new();
    let mut resources = Vec::new();
    let (mut entries, mut unread) = (0, None);
    for _ in 0..NAME_PAGES_MAX {
        let page = Page { after, limit: NAMES_MAX.min(limit) };
        let (names, next) = context.heart.resources(connection.caller(), page).await?;
        let names = names.into_iter().filter(&is_wanted).filter(|name| met.insert(name.clone()));
        let standings = names.map(|name| standing_of(&context, &connection, name));
        let mut standings = stream::iter(standings.collect::<Vec<_>>()).buffer_unordered(ASKED_MAX);
        while let Some(standing) = standings.next().await {
            match standing {
                Ok(standing) if standing.holding + standing.waiting > 0 => {
                    entries += standing.holders.len() + standing.waiters.len();
                    resources.push(standing);
                }
                Ok(_) => {}
                // Somebody may have put something else in its key: that hides nothing else.
                Err(refused) => unread = unread.or(Some(refused)),
            }
        }
        after = next;
        if after.is_none() || resources.len() >= limit || entries >= ENTRIES_MAX {
            break;
        }
    }
    if let Some(refused) = unread.filter(|_| resources.is_empty()) {
        return Err(refused);
    }
    let list = List { resources, cursor: after.as_deref().map(str::to_owned) };
    long_json(context.heart.budget(), peer.uid, &list)
}
