//! Metrics on a loopback TCP address, for scrapers that cannot open a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Uri;
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tenure::wire::{Code, Problem};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::limits::HEAD_MAX;
use super::respond::Refusal;
use super::{health, metrics, validate, wrong_method};

/// Connections at a time; those beyond wait in the kernel.
const CONNECTIONS_MAX: usize = 16;
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
        context: Arc<Context>,
    ) -> io::Result<MetricsListener> {
        let router = Router::new()
            .route("/metrics", get(metrics::metrics))
            .route("/healthz", get(health::healthz))
            .fallback(nothing_else)
            .method_not_allowed_fallback(wrong_method)
            .with_state(context);
        Ok(MetricsListener { listener: TcpListener::from_std(listener)?, router })
    }

    /// Takes connections until `shutdown`, which also ends those that are open: a scrape that is cut
    /// is made again.
    pub async fn serve(self, shutdown: CancellationToken) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = async {
                // Fails only when it is closed, which nobody does.
                let place = Arc::clone(&places).acquire_owned().await.ok();
                (place, self.listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                () = shutdown.cancelled() => return,
                accepted = accepted => accepted,
            };
            let Ok((stream, _)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (router, shutdown) = (self.router.clone(), shutdown.clone());
            tokio::spawn(async move {
                let _place = place;
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    // Its time is up, or it is the client's fault.
                    _ = timeout(CONNECTION_MAX, exchange(stream, router)) => {}
                }
            });
        }
    }
}

async fn nothing_else(uri: Uri) -> Refusal {
    let path = validate::quote(uri.path());
    let detail = format!(
        "there is no {path} at this address, only /metrics and /healthz; the API is on the Unix socket"
    );
    Problem::new(Code::NotFound, detail).into()
}

async fn exchange(stream: TcpStream, router: Router) -> hyper::Result<()> {
    let router = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        hyper::service::Service::call(&router, request.map(Body::new))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_MAX);
    http.serve_connection(TokioIo::new(stream), service).await
}
