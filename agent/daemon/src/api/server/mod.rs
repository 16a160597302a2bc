//! The accept loop: who may connect, how long a connection may take, and how all of it ends.

mod activity;
mod connection;
mod lanes;
mod refuse;
mod socket;
mod table;

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub use connection::Identity;
pub(super) use connection::{Connected, Connection};

use super::context::Context;
use super::endpoints::{Answered, router};
use super::limits::HEAD_MAX;
use super::probe::Door;
use super::query::unauthorized;
use crate::heart::Budget;
use crate::telemetry::{Metrics, Repeats};
use connection::{Order, SEES_HANGUP};
use lanes::{InLane, Lanes};
use refuse::Refuser;
use socket::Socket;
use table::{Seat, Table};

/// How often overdue connections are looked for. They may so last longer by as much.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// So many connections are taken in before those that are open have a turn.
const ACCEPTED_IN_A_ROW: u32 = 8;
/// How long nothing is accepted after accepting failed, mostly for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long after the drain's deadline the cut connections have to leave.
const CUT_TIMEOUT: Duration = Duration::from_millis(500);
/// A failure to accept is logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut at the deadline, with a request or a stream open.
    pub cut: usize,
}

/// The socket that clients connect to.
pub struct Listening {
    /// At present.
    pub now: UnixListener,
    /// New sockets that take its place when its file has vanished.
    pub renewed: mpsc::Receiver<UnixListener>,
}

impl From<UnixListener> for Listening {
    fn from(now: UnixListener) -> Listening {
        let (_, renewed) = mpsc::channel(1);
        Listening { now, renewed }
    }
}

/// Serves the API until `shutdown`, then drains.
///
/// Takes connections from `listener`; `identify` says who is at the other end of one when it is
/// accepted. The agent itself comes in by `door`, whatever the limits. On `shutdown` it stops accepting, closes idle
/// connections, lets requests finish and streams end (the heart ends them), and cuts what is left at the drain deadline
/// of the limits, but for streams that guarded work hangs on: the heart takes their end for the end of that work.
pub async fn serve<I: Identity>(
    listener: impl Into<Listening>,
    identify: impl Fn(&UnixStream) -> io::Result<I>,
    door: Door,
    context: Arc<Context>,
    shutdown: CancellationToken,
) -> Drained {
    let limits = context.limits;
    let metrics = context.metrics.clone();
    let table = Table::new(limits, context.settings.agent_uid, metrics.clone());
    let server = Server {
        table: table.clone(),
        answered: Arc::new(Answered::new(&metrics)),
        metrics,
        refuser: Refuser::new(),
        refused: Mutex::default(),
        lanes: Lanes::default(),
        budget: Arc::clone(context.heart.budget()),
        router: router(context),
        http: http(),
        epoch: Instant::now(),
    };
    server.accept_until(listener.into(), identify, door, &shutdown).await;

    table.order(Order::Drain);
    let drained = sweeping(&table, table.emptied());
    if tokio::time::timeout(limits.drain_timeout, drained).await.is_ok() {
        return Drained { cut: 0 };
    }
    let cut = table.cut();
    // Those that do not leave in time hang in a handler; the process ends without them.
    let _ = tokio::time::timeout(CUT_TIMEOUT, table.emptied()).await;
    Drained { cut }
}

async fn sweeping(table: &Table, until: impl Future<Output = ()>) {
    let mut until = pin!(until);
    loop {
        tokio::select! {
            biased;
            () = &mut until => return,
            () = tokio::time::sleep(SWEEP_EVERY) => table.sweep(),
        }
    }
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    // The deadline of heads is the sweep's: hyper's would close idle connections as early, and
    // cost an allocation per request.
    http.header_read_timeout(None)
        .max_buf_size(HEAD_MAX)
        // A long body is written from where it is; what is small the socket puts together.
        .writev(true)
        .auto_date_header(false)
        // On other systems requests that do not wait are still answered to a client that has closed
        // its writing half.
        .half_close(SEES_HANGUP);
    http
}

struct Server {
    table: Arc<Table>,
    answered: Arc<Answered>,
    metrics: Arc<Metrics>,
    refuser: Refuser,
    /// Bounds the log of refusals.
    refused: Mutex<Repeats>,
    lanes: Lanes,
    budget: Arc<Budget>,
    router: Router,
    http: http1::Builder,
    epoch: Instant,
}

impl Server {
    async fn accept_until<I: Identity>(
        &self,
        mut listening: Listening,
        identify: impl Fn(&UnixStream) -> io::Result<I>,
        mut door: Door,
        shutdown: &CancellationToken,
    ) {
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut logged: Option<Instant> = None;
        let mut in_a_row = 0;
        loop {
            // Without connections there is nothing to sweep, and nothing to wake up for.
            let tick =
                async { if self.table.len() > 0 { sweep.tick().await } else { pending().await } };
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                _ = tick => {
                    self.table.sweep();
                    continue;
                }
                // Before clients, so that none of them can make the agent look dead.
                knock = door.knock() => {
                    if let Some(stream) = knock.stream {
                        let identity = identify(&stream);
                        self.serve_own(stream, identity);
                    }
                    // A probe that has given up wants no answer.
                    let _ = knock.heard.send(());
                    continue;
                }
                accepted = listening.now.accept() => accepted,
                // When nobody waits at the old one, to which nobody can connect any more.
                Some(renewed) = listening.renewed.recv() => {
                    listening.now = renewed;
                    continue;
                }
            };
            match accepted {
                Ok((stream, _)) => {
                    let identity = identify(&stream);
                    in_a_row += 1;
                    if self.admit(stream, identity) || in_a_row == ACCEPTED_IN_A_ROW {
                        in_a_row = 0;
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) => {
                    if logged.is_none_or(|logged| logged.elapsed() > LOG_EVERY) {
                        logged = Some(Instant::now());
                        let open = self.table.len();
                        tracing::warn!(%error, open, "cannot accept; closing the longest idle connection");
                    }
                    self.table.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Starts serving a connection, or refuses it; says whether the others are to have a turn.
    fn admit<I: Identity>(&self, stream: UnixStream, identity: io::Result<I>) -> bool {
        let identity = match identity {
            Ok(identity) => Box::new(identity),
            Err(error) => {
                tracing::debug!(%error, "cannot identify a peer");
                self.refuser.refuse(stream, unauthorized());
                return false;
            }
        };
        let connection = Arc::new(Connection::new(stream, identity, self.epoch));
        let (admitted, is_turn_due) = self.table.admit(&connection);
        match admitted {
            Ok(seat) => self.start(connection, Some(seat)),
            Err(full) => {
                let uid = connection.peer().uid;
                self.metrics.refused(table::limit(full));
                let told = self.refused.lock().unwrap_or_else(PoisonError::into_inner).admit();
                if let Some(withheld) = told {
                    let limit = table::limit(full);
                    tracing::warn!(limit, uid, withheld, "refused: a limit is reached");
                }
                if let Some(connection) = Arc::into_inner(connection) {
                    self.refuser.refuse(connection.stream, refuse::full(full, uid));
                }
            }
        }
        is_turn_due
    }

    /// Serves the agent itself, which needs no place in the table. It leaves when it likes.
    fn serve_own<I: Identity>(&self, stream: UnixStream, identity: io::Result<I>) {
        match identity {
            Ok(identity) => {
                let connection = Connection::new(stream, Box::new(identity), self.epoch);
                self.start(Arc::new(connection), None);
            }
            // The probe finds its connection closed.
            Err(error) => tracing::warn!(%error, "cannot identify the agent itself"),
        }
    }

    fn start(&self, connection: Arc<Connection>, seat: Option<Seat>) {
        let lane = self.lanes.of(connection.peer().uid);
        let service = Service {
            router: self.router.clone(),
            answered: self.answered.clone(),
            budget: self.budget.clone(),
            http: self.http.clone(),
        };
        let closing = connection.clone();
        let work = run(connection, seat, service);
        tokio::spawn(InLane::new(lane, work, move || closing.is_closing()));
    }
}

/// The router of a connection's requests, the counters of its answers, and what else it takes.
struct Service {
    router: Router,
    answered: Arc<Answered>,
    budget: Arc<Budget>,
    http: http1::Builder,
}

/// One connection's task. Ends with the connection, or when it is told to close; dropping hyper's
/// future drops the handler in flight, and with it a wait for a grant.
async fn run(connection: Arc<Connection>, seat: Option<Seat>, service: Service) {
    let _seat = seat;
    // hyper takes a buffer before the first byte is there; a client that says nothing gets none.
    tokio::select! {
        biased;
        () = connection.first_byte() => {}
        _ = connection.ordered() => return,
    }
    boxed(connection.clone(), service).await;
    connection.settle().await;
    connection.tether().await;
}

/// On the heap, as most of a connection's memory is here; and made where a task that is still
/// waiting for its first byte keeps no room for it.
fn boxed(
    connection: Arc<Connection>,
    service: Service,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(exchange(connection, service))
}

async fn exchange(connection: Arc<Connection>, service: Service) {
    let Service { router, answered, budget, http } = service;
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        connection.activity.busy();
        request.extensions_mut().insert(connection.clone());
        let answers = answered.of(request.uri().path());
        let response = router.call(request.map(Body::new));
        let connection = &connection;
        async move {
            let Ok(response) = response.await;
            connection.activity.answered();
            answers.count(response.status().as_u16());
            Ok::<_, Infallible>(response)
        }
    });
    let socket = TokioIo::new(Socket::new(connection.clone(), budget));
    let mut exchange = pin!(http.serve_connection(socket, service));
    loop {
        tokio::select! {
            biased;
            // Errors are the client's: garbage, or gone in the middle of something.
            _ = exchange.as_mut() => return,
            order = connection.ordered() => match order {
                Order::Serve => {}
                Order::Drain => exchange.as_mut().graceful_shutdown(),
                Order::Close => return,
            },
        }
    }
}
