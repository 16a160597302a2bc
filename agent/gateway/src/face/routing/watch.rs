//! Routes and their changes, as a stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tenure_core::model::Resource;
use tenure_proto::tenure::v1::routes_server::Routes;
use tenure_proto::tenure::v1::{Route as RouteMessage, RouteChange, WatchRequest};
use tenure_stores::gateway::scope::Mark;
use tenure_wire::{Kind, Route};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use crate::access::{Caller, Lapse, Right};
use crate::delivery::Followed;
use crate::face::Face;
use crate::face::budget::{Charge, Visit};
use crate::face::places::PlaceOf;
use crate::face::refused::Refused;
use crate::routes::{Change, Lack, Place, State};
use crate::trail::By;

/// Routes in a message, some 100 kB.
const PER_MESSAGE: usize = 512;
/// Bytes of a change that waits for its reader.
const CHANGE_BYTES: usize = 128;
/// How often a silent stream looks whether its caller's key is still good, and as it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a stream waits for the store to tell of routes.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// The service `tenure.v1.Routes`.
pub(super) struct Watch(pub(super) Arc<Face>);

type Changes = Pin<Box<dyn Stream<Item = Result<RouteChange, Status>> + Send>>;

#[tonic::async_trait]
impl Routes for Watch {
    type WatchStream = Changes;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Changes>, Status> {
        let face = Arc::clone(&self.0);
        let caller = super::caller(&request)?;
        let visit = request.extensions().get().cloned();
        let WatchRequest { from_version, tenant } = request.into_inner();
        let may_watch =
            caller.needs(Right::Proxy, || "following the routes of a tenant".to_owned());
        let tenant =
            may_watch.map_err(Refused::from).and_then(|()| face.tenant_of_routes(&caller, &tenant));
        let taken = tenant.and_then(|it| Ok((it, face.budgets.stream(&caller)?)));
        let (tenant, place) = taken.map_err(|refused| face.refuse(By::from(&caller), &refused))?;
        let followed = face.delivery.follow(&tenant);
        let followed = followed.ok_or_else(|| {
            Status::resource_exhausted("the routes of too many tenants are watched")
        })?;
        if !followed.is_read(READ_WITHIN).await {
            return Err(Status::unavailable("the store does not answer; try again"));
        }
        if followed.table().stamp() < from_version {
            // Another gateway was faster.
            followed.read_again(READ_WITHIN).await;
        }
        let watching = Watching::new(face, caller, (place, visit), followed, from_version);
        let changes = stream::unfold(watching, async |mut watching| {
            let change = watching.next().await?;
            Some((change, watching))
        });
        Ok(Response::new(Box::pin(changes)))
    }
}

/// A stream. It keeps what its reader has not taken of one set of changes; the next set is made when that has left, so
/// that a slow reader is told the latest.
struct Watching {
    face: Arc<Face>,
    caller: Caller,
    followed: Arc<Followed>,
    news: watch::Receiver<u64>,
    /// `None` until it was told something.
    place: Option<Place>,
    from: u64,
    told: Told,
    is_over: bool,
    /// Counts the bytes that wait for the reader.
    visit: Option<Arc<Visit>>,
    waiting: Option<Charge>,
    _place: PlaceOf<Mark>,
}

/// A set of changes, and how much of it is to be told.
#[derive(Default)]
struct Told {
    stamp: u64,
    stamp_of_part: u64,
    is_snapshot: bool,
    rest: VecDeque<Change>,
    is_begun: bool,
}

impl Watching {
    fn new(
        face: Arc<Face>,
        caller: Caller,
        (place, visit): (PlaceOf<Mark>, Option<Arc<Visit>>),
        followed: Arc<Followed>,
        from: u64,
    ) -> Watching {
        let news = followed.news();
        let told = Told { is_begun: true, ..Told::default() };
        face.delivery.numbers.watchers.inc();
        Watching {
            face,
            caller,
            followed,
            news,
            place: None,
            from,
            told,
            is_over: false,
            visit,
            waiting: None,
            _place: place,
        }
    }

    /// The next message; `None` at the end.
    async fn next(&mut self) -> Option<Result<RouteChange, Status>> {
        if self.is_over {
            return None;
        }
        let outcome = self.wait().await;
        self.is_over = outcome.is_err();
        Some(outcome.map(|()| self.message()))
    }

    /// Waits until there is something to tell.
    async fn wait(&mut self) -> Result<(), Status> {
        loop {
            let lets_in = self.face.access.still_lets_in(&self.caller);
            lets_in.map_err(|lapse| match lapse {
                Lapse::Key(_) => Status::unauthenticated(lapse.to_string()),
                // Its reader comes again.
                Lapse::Bounds => Status::unavailable(lapse.to_string()),
            })?;
            if !self.told.is_begun || !self.told.rest.is_empty() {
                return Ok(());
            }
            if self.place.is_some() {
                let changed = timeout(LOOK_EVERY, self.news.changed());
                match self.face.drain.run_until_cancelled(changed).await {
                    None => return Err(Status::unavailable("the gateway is stopping")),
                    Some(Err(_)) => continue,
                    Some(Ok(_)) => {}
                }
            }
            self.catch_up()?;
        }
    }

    /// Makes the next set of changes; fails when too much waits for readers.
    fn catch_up(&mut self) -> Result<(), Status> {
        self.news.borrow_and_update();
        let is_first = self.place.is_none();
        let table = self.followed.table();
        let lack = match self.place {
            Some(place) => table.after(place),
            None => table.since(self.from),
        };
        self.place = Some(table.place());
        let is_snapshot = matches!(lack, Lack::Snapshot(_));
        let (stamp, stamp_of_part) = (table.stamp(), table.stamp_of_part());
        drop(table);
        let shows = |mailbox: &Arc<str>| {
            let (tenant, name) = (Arc::clone(&self.followed.tenant), Arc::clone(mailbox));
            self.caller.bounds.shows(&Resource { tenant, kind: Kind::Lease, name })
        };
        let mut rest: VecDeque<Change> = match lack {
            Lack::Changes(changes) => changes.into(),
            Lack::Snapshot(routes) => routes.into_iter().map(Change::from).collect(),
        };
        rest.retain(|change| shows(&change.mailbox));
        // A change that only others may see is none.
        let is_begun = !is_first && !is_snapshot && rest.is_empty();
        self.waiting = self.visit.as_ref().map(|visit| visit.waiting());
        if let Some(waiting) = &mut self.waiting {
            waiting.grow(rest.len() * CHANGE_BYTES).map_err(Refused::from)?;
        }
        self.told = Told { stamp, stamp_of_part, is_snapshot, rest, is_begun };
        Ok(())
    }

    fn message(&mut self) -> RouteChange {
        let Told { stamp, stamp_of_part, is_snapshot, rest, is_begun } = &mut self.told;
        let mut message =
            RouteChange { is_snapshot: *is_snapshot && !*is_begun, ..RouteChange::default() };
        for Change { mailbox, state } in rest.drain(..rest.len().min(PER_MESSAGE)) {
            match state {
                State::Routed(route) => message.updated.push(shown(&route)),
                State::Removed(_) => message.removed.push(mailbox.to_string()),
            }
        }
        message.has_more = !rest.is_empty();
        if !message.has_more {
            self.waiting = None;
        }
        message.version = if message.has_more { *stamp_of_part } else { *stamp };
        *is_begun = true;
        message
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.face.delivery.numbers.watchers.dec();
    }
}

fn shown(route: &Route) -> RouteMessage {
    RouteMessage {
        mailbox_id: route.name.clone(),
        proxy_id: route.proxy_id.clone(),
        runner_id: route.holder.clone(),
        address: route.address.clone(),
        partition: i32::from(route.partition),
        status: route.status.clone(),
        fencing_token: route.token,
        version: route.version.saturating_mul(2).saturating_add(1),
    }
}
