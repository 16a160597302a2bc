//! Metrics over TCP, for scrapers that cannot open a Unix socket.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tenure_service::browsers::{Guard, Head, HostList};
use tenure_wire::{Code, Problem, rules};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::endpoints::wrong_method;
use super::limits::HEAD_MAX;
use super::respond::Refused;
use super::{health, metrics};

/// Connections at a time. One more ends the oldest that has not asked for anything, so that those who only
/// connect keep no scraper out; where all have asked, it waits in the kernel.
const CONNECTIONS_MAX: usize = 64;
/// From a connection's start, or the end of its last answer, to the end of the headers.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection lasts at most, so that those who do nothing do not keep others out.
const CONNECTION_MAX: Duration = Duration::from_secs(30);
/// How long nothing is accepted after accepting failed, mostly for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Why metrics are not served.
#[derive(Debug, thiserror::Error)]
#[error(
    "metrics_listen = \"{address}\": cannot listen there; choose another port, or see with `ss -ltnp` who has it"
)]
pub struct MetricsListenerError {
    address: SocketAddr,
    source: io::Error,
}

/// Takes the address. Nobody is answered before [`MetricsListener::serve`].
///
/// # Errors
///
/// When somebody else has it, or the host has no such address.
pub fn bind_metrics(address: SocketAddr) -> Result<std::net::TcpListener, MetricsListenerError> {
    let fail = |source| MetricsListenerError { address, source };
    let listener = std::net::TcpListener::bind(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(listener)
}

/// Serves `GET /metrics` and `GET /healthz` over TCP, and nothing else: who connects is not known
/// there.
pub struct MetricsListener {
    listener: TcpListener,
    router: Router,
}

impl MetricsListener {
    /// Needs a tokio runtime with I/O.
    ///
    /// # Errors
    ///
    /// When the listener cannot be waited for.
    pub fn from_std(
        listener: std::net::TcpListener,
        hosts: HostList,
        context: Arc<Context>,
    ) -> io::Result<MetricsListener> {
        let listened = listener.local_addr()?.ip();
        let guard = Guard { listened, listed: hosts, setting: "metrics_hosts", page: None };
        let router = Router::new()
            .route("/metrics", get(metrics::metrics))
            .route("/healthz", get(health::healthz))
            .fallback(nothing_else)
            .method_not_allowed_fallback(wrong_method)
            .layer(middleware::from_fn_with_state(Arc::new(guard), keep_out))
            .with_state(context);
        Ok(MetricsListener { listener: TcpListener::from_std(listener)?, router })
    }

    /// Takes connections until `shutdown`, which also ends those that are open: a scrape that is cut
    /// is made again.
    pub async fn serve(self, shutdown: CancellationToken) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut open: VecDeque<Weak<Connection>> = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            open.retain(|connection| connection.strong_count() > 0);
            if places.available_permits() == 0 {
                end_oldest_silent(&mut open);
            }
            let place = tokio::select! {
                () = shutdown.cancelled() => return,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let connection =
                Arc::new(Connection { asked: AtomicBool::new(false), end: shutdown.child_token() });
            open.push_back(Arc::downgrade(&connection));
            let router = self.router.clone();
            tokio::spawn(async move {
                let _place = place;
                tokio::select! {
                    () = connection.end.cancelled() => {}
                    // Its time is up, or it is the client's fault.
                    _ = timeout(CONNECTION_MAX, exchange(stream, router, &connection)) => {}
                }
            });
        }
    }
}

struct Connection {
    /// True once it has asked for anything.
    asked: AtomicBool,
    end: CancellationToken,
}

fn end_oldest_silent(open: &mut VecDeque<Weak<Connection>>) {
    let silent = |connection: &Weak<Connection>| {
        connection.upgrade().filter(|connection| !connection.asked.load(Ordering::Relaxed))
    };
    let oldest = open.iter().enumerate().find_map(|(at, one)| silent(one).map(|one| (at, one)));
    if let Some((at, connection)) = oldest {
        open.remove(at);
        connection.end.cancel();
    }
}

/// Refuses what web pages of others have a browser send, and has it keep answers to itself.
async fn keep_out(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = match guard.judge(Head::of(&request), |_| false) {
        Ok(()) => next.run(request).await,
        Err(foreign) => Refused::from(foreign.problem()).into_response(),
    };
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn nothing_else(uri: Uri) -> Refused {
    let path = rules::quote(uri.path());
    let detail = format!(
        "there is no {path} at this address, only /metrics and /healthz; the API is on the Unix socket"
    );
    Problem::new(Code::NotFound, detail).into()
}

async fn exchange(stream: TcpStream, router: Router, connection: &Connection) -> hyper::Result<()> {
    let router = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        connection.asked.store(true, Ordering::Relaxed);
        hyper::service::Service::call(&router, request.map(Body::new))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_MAX);
    http.serve_connection(TokioIo::new(stream), service).await
}
