//! The control plane: mailboxes, their runners, and the proxies that are told of them. A page of each, trouble first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request as Call, State};
use axum::http::Uri;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tenure_core::model::{Answer, Page, Request, Resource};
use tenure_host::clock;
use tenure_wire::{Kind, Route};

use super::query::Pairs;
use super::resources::{ASKED_AT_ONCE, ROWS, ROWS_MAX, TEXT_MAX};
use crate::access::{Caller, KeyBounds, Right};
use crate::delivery::{Listed, Registration};
use crate::face::Face;
use crate::face::refused::Refused;

/// How long a look waits for routes that nobody has looked at before.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// With so many tenants followed looks follow no others, so that proxies find room.
const FOLLOWED_MAX: usize = 128;

#[derive(Debug, Serialize)]
pub(super) struct Rows<R> {
    /// How many there are.
    total: usize,
    offset: usize,
    rows: Vec<R>,
}

/// A lease, as the routing table has it.
#[derive(Debug, Serialize)]
pub(super) struct Mailbox {
    tenant: Arc<str>,
    mailbox_id: String,
    runner_id: String,
    proxy_id: String,
    partition: u16,
    address: String,
    status: String,
    token: u64,
    /// For how long it is valid without a heartbeat, ms; 0 in its grace. `None` if the store does not tell.
    valid_for_ms: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Runner {
    tenant: Arc<str>,
    runner_id: Arc<str>,
    mailboxes: usize,
    /// Those of them that are not active.
    troubled: usize,
    /// How long ago a heartbeat came through this gateway, ms; `None` if they come through another one.
    last_heartbeat_ms: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Proxy {
    tenant: Arc<str>,
    proxy_id: Arc<str>,
    address: Arc<str>,
    /// It speaks HTTP/2, and has taken the last thing that it was told.
    connected: bool,
    /// It lacks something for over a second.
    behind: bool,
    /// How many mailboxes it has not confirmed.
    lacks: usize,
    /// How often this gateway had to connect to it again.
    reconnects: u64,
    /// The first and the last of its partitions.
    partitions: Option<[u8; 2]>,
}

/// A page of those that match.
struct Wanted {
    /// In lower case, empty for all.
    search: String,
    offset: usize,
    limit: usize,
}

impl Wanted {
    fn of(uri: &Uri) -> Result<Wanted, Refused> {
        let mut pairs = Pairs::of(uri, &["search", "offset", "limit"])?;
        let is_short = |text: &String| text.len() <= TEXT_MAX;
        let search = pairs.read("search", &format!("{TEXT_MAX} bytes at most"), is_short)?;
        let offset = pairs.read("offset", "a number from 0 on", |_| true)?;
        let is_page = |limit: &usize| (1..=ROWS_MAX).contains(limit);
        let limit = pairs.read("limit", &format!("a number from 1 to {ROWS_MAX}"), is_page)?;
        let search = search.unwrap_or_default().to_lowercase();
        Ok(Wanted { search, offset: offset.unwrap_or(0), limit: limit.unwrap_or(ROWS) })
    }

    fn matches(&self, texts: &[&str]) -> bool {
        self.search.is_empty() || texts.iter().any(|it| it.to_lowercase().contains(&self.search))
    }

    fn page<R: Clone>(&self, all: &[R]) -> Rows<R> {
        let rows = all.iter().skip(self.offset).take(self.limit).cloned().collect();
        Rows { total: all.len(), offset: self.offset, rows }
    }
}

/// What needs somebody first: in its grace, then whatever is not well.
fn rank(route: &Route) -> u8 {
    match route.status.as_str() {
        "expiring" => 0,
        "active" => 2,
        _ => 1,
    }
}

/// The routes that the owner of a key may see, of the tenants that are followed and those of runners that came here.
async fn routes(face: &Face, bounds: &KeyBounds) -> Vec<(Arc<str>, Arc<Route>)> {
    follow_runners(face).await;
    let mut routes = Vec::new();
    for followed in face.delivery.followed() {
        let tenant = &followed.tenant;
        let all: Vec<Arc<Route>> = followed.table().routes().cloned().collect();
        routes.extend(all.into_iter().filter_map(|route| {
            let name = route.name.as_str().into();
            let resource = Resource { tenant: Arc::clone(tenant), kind: Kind::Lease, name };
            bounds.shows(&resource).then(|| (Arc::clone(tenant), route))
        }));
        tokio::task::yield_now().await;
    }
    routes
}

/// Follows the tenants of the runners that came here, although no proxy does.
pub(super) async fn follow_runners(face: &Face) {
    let heard = face.control.heard(clock::now());
    let tenants: BTreeSet<Arc<str>> = heard.into_iter().map(|(of, _)| of.tenant).collect();
    let room = FOLLOWED_MAX.saturating_sub(face.delivery.followed().len());
    let followed = tenants.iter().take(room).filter_map(|it| face.delivery.follow(it));
    let followed = Vec::from_iter(followed);
    join_all(followed.iter().map(|it| it.is_read(READ_WITHIN))).await;
}

/// Tells of a page of mailboxes.
pub(super) async fn mailboxes(
    State(face): State<Arc<Face>>,
    request: Call,
) -> Result<Json<Rows<Mailbox>>, Refused> {
    let caller = face.admit_person(&request)?;
    let wanted = Wanted::of(request.uri())?;
    let mut routes = routes(&face, &caller.bounds).await;
    routes.retain(|(_, it)| wanted.matches(&[&it.name, &it.holder, &it.proxy_id, &it.address]));
    routes.sort_by(|(tenant, route), (other, another)| {
        (rank(route), tenant, &route.name).cmp(&(rank(another), other, &another.name))
    });
    let Rows { total, offset, rows } = wanted.page(&routes);
    let asked = stream::iter(rows).map(|(tenant, route)| mailbox(&face, tenant, route));
    let rows = asked.buffered(ASKED_AT_ONCE).collect().await;
    Ok(Json(Rows { total, offset, rows }))
}

async fn mailbox(face: &Face, tenant: Arc<str>, route: Arc<Route>) -> Mailbox {
    let name = route.name.as_str().into();
    let resource = Resource { tenant: Arc::clone(&tenant), kind: Kind::Lease, name };
    let times = match face.store.look(Request::Inspect(resource)).await {
        Ok(Answer::Standing(standing)) => standing.lease,
        _ => None,
    };
    let Route { name, holder, address, proxy_id, partition, status, token, .. } =
        Arc::unwrap_or_clone(route);
    Mailbox {
        tenant,
        mailbox_id: name,
        runner_id: holder,
        proxy_id,
        partition,
        address,
        status,
        token,
        valid_for_ms: times.map(|it| millis(it.ttl.saturating_sub(it.unbeaten))),
    }
}

/// Tells of a page of runners.
pub(super) async fn runners(
    State(face): State<Arc<Face>>,
    request: Call,
) -> Result<Json<Rows<Runner>>, Refused> {
    let caller = face.admit_person(&request)?;
    let wanted = Wanted::of(request.uri())?;
    let now = clock::now();
    let heard: HashMap<Resource, _> = face.control.heard(now).into_iter().collect();
    let mut runners = BTreeMap::<(Arc<str>, Arc<str>), Runner>::new();
    for (tenant, route) in routes(&face, &caller.bounds).await {
        if !wanted.matches(&[&route.holder]) {
            continue;
        }
        let name = route.name.as_str().into();
        let lease = Resource { tenant: Arc::clone(&tenant), kind: Kind::Lease, name };
        let ago = heard.get(&lease).map(|at| millis(now.since(*at)));
        let runner_id: Arc<str> = route.holder.as_str().into();
        let key = (Arc::clone(&tenant), Arc::clone(&runner_id));
        let runner = runners.entry(key).or_insert(Runner {
            tenant,
            runner_id,
            mailboxes: 0,
            troubled: 0,
            last_heartbeat_ms: None,
        });
        runner.mailboxes += 1;
        runner.troubled += usize::from(rank(&route) < 2);
        runner.last_heartbeat_ms = runner.last_heartbeat_ms.into_iter().chain(ago).min();
    }
    let mut runners = Vec::from_iter(runners.into_values());
    runners.sort_by_key(|it| Reverse(it.troubled));
    Ok(Json(wanted.page(&runners)))
}

/// The proxies that this gateway tells and the caller's principal registered; with the right `agents` all of the tenants for
/// whose routes it may ask. To others an address and whether it answers would show what the gateway can reach.
pub(super) fn visible(face: &Face, caller: &Caller) -> Vec<Proxy> {
    let mut proxies = face.delivery.proxies();
    let sees_all = caller.has(Right::Agents);
    proxies.retain(|listed| {
        if !sees_all && listed.owner != Some(caller.principal.mark) {
            return false;
        }
        let tenant = Arc::clone(&listed.registration.tenant);
        caller.bounds.judge(&Request::Routes { tenant, name: None, page: Page::whole() }).is_ok()
    });
    proxies.into_iter().map(Proxy::from).collect()
}

/// Tells of a page of proxies.
pub(super) async fn proxies(
    State(face): State<Arc<Face>>,
    request: Call,
) -> Result<Json<Rows<Proxy>>, Refused> {
    let caller = face.admit_person(&request)?;
    let wanted = Wanted::of(request.uri())?;
    let mut proxies = visible(&face, &caller);
    proxies.retain(|it| wanted.matches(&[&it.proxy_id, &it.address]));
    // Without anything to tell it is not connected to.
    proxies.sort_by_key(|it| (it.connected || it.lacks == 0, !it.behind));
    Ok(Json(wanted.page(&proxies)))
}

impl From<Listed> for Proxy {
    fn from(listed: Listed) -> Proxy {
        let Registration { tenant, proxy_id, address } = listed.registration;
        Proxy {
            tenant,
            proxy_id,
            address,
            connected: listed.is_connected,
            behind: listed.is_behind,
            lacks: listed.lacks,
            reconnects: listed.reconnects,
            partitions: listed.partitions.map(|range| [*range.start(), *range.end()]),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
