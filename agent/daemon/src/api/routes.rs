//! `GET /v1/routes`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tenure_core::model::{Page, Resource};
use tenure_wire::rules::visible;
use tenure_wire::{Kind, Problem, Routes};

use super::context::Context;
use super::query::{PAGE_MAX, Paged, Pairs, Queried, Query};
use super::respond::{Refused, long_json};
use super::server::Connected;

/// `[?name=…][&tenant=…]`.
pub(super) struct RoutesQuery {
    tenant: String,
    name: Option<String>,
    page: Page,
}

impl Query for RoutesQuery {
    const KEYS: &'static [&'static str] = &["name", "tenant", "limit", "cursor"];

    fn from_pairs(mut pairs: Pairs) -> Result<RoutesQuery, Box<Problem>> {
        let name = pairs.take("name");
        name.as_deref().map_or(Ok(()), |name| visible("name", name))?;
        let Paged { limit, cursor } = Paged::from_pairs(&mut pairs)?;
        let page = Page { after: cursor.map(Into::into), limit };
        Ok(RoutesQuery { tenant: pairs.tenant()?, name, page })
    }
}

/// The routing table: who holds which lease, and where to reach it.
#[utoipa::path(get, path = "/v1/routes", tag = "fleet",
    params(
        ("name" = Option<String>, Query, description = "Only this lease"),
        ("tenant" = Option<String>, Query, description = "The tenant; default `default`"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "How many lines; default 100"),
        ("cursor" = Option<String>, Query, description = "The `cursor` of the page before"),
    ),
    responses(
        (status = 200, description = "The table", body = Routes),
        (status = 403, response = super::answers::Forbidden),
        super::answers::Common,
    ))]
pub(super) async fn routes(
    State(context): State<Arc<Context>>,
    Connected(connection): Connected,
    Queried(RoutesQuery { tenant, name, page }): Queried<RoutesQuery>,
) -> Result<Response, Refused> {
    let peer = connection.peer();
    context.check_reading_any(&peer, &tenant, Kind::Lease)?;
    let tenant: Arc<str> = tenant.into();
    let name: Option<Arc<str>> = name.map(Into::into);
    let may_read = |name: &str| {
        let resource = Resource { tenant: tenant.clone(), kind: Kind::Lease, name: name.into() };
        context.check_reading(&peer, &resource).is_ok()
    };
    let reads_all = context.reads_all(&peer);
    let limit = page.limit;
    let mut shown = Vec::new();
    let mut page = page;
    let _turn = context.long.turn(peer.uid).await;
    loop {
        let (tenant, name) = (tenant.clone(), name.clone());
        let mut routes = context.heart.routes(connection.caller(), tenant, name, page).await?;
        let last = routes.routes.last().map(|route| route.name.as_str());
        // Where a cursor is a name, it is told only to those who may read of it.
        let is_hidden = routes.cursor.is_some()
            && last == routes.cursor.as_deref()
            && !last.is_none_or(may_read);
        shown.extend(routes.routes.into_iter().filter(|route| may_read(&route.name)));
        if is_hidden && shown.len() < limit {
            page = Page { after: routes.cursor.map(Into::into), limit: PAGE_MAX };
            continue;
        }
        if is_hidden {
            shown.truncate(limit);
            routes.cursor = shown.last().map(|route| route.name.clone());
        }
        let total = routes.total.filter(|_| reads_all);
        let routes = Routes { routes: shown, total, ..routes };
        return long_json(context.heart.budget(), peer.uid, &routes);
    }
}
