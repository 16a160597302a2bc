//! One connection: TLS if that is spoken, HTTP/1.1 or HTTP/2 as its first bytes say, and an end where its peer does nothing, or too much.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Version, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use tenure_host::clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::activity::{Activity, Noted, Verdict};
use super::budget::{Budgets, Seat, Visit};
use super::frames::Framed;
use super::line::{Line, LineEnd};
use super::refused::Refused;
use crate::access::{Certified, Peer};
use crate::tls::{H2, Names, Tls};

/// How long a head may take to arrive, the first one counted from the connection's beginning, others from the
/// answer before; agreeing on TLS, too.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Bytes of a connection that are read ahead or wait to be written, at most; so a head has no more.
const BUFFERED_MAX: usize = 64 << 10;
/// Between two looks at what happens on a connection.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// HTTP/2: requests of a connection at a time.
const STREAMS_MAX: u32 = 64;
/// HTTP/2: bytes of all headers of a request.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// HTTP/2: bytes of a body that are read ahead, and of all bodies of a connection.
const STREAM_AHEAD_MAX: u32 = 64 << 10;
const CONNECTION_AHEAD_MAX: u32 = 256 << 10;
/// HTTP/2: bytes of an answer that wait to be written.
const STREAM_BUFFERED_MAX: usize = 16 << 10;
/// HTTP/2: requests that their peer reset before they were looked at; one more ends the connection. A program may give up
/// all that it has under way at once.
const RESET_EARLY_MAX: usize = STREAMS_MAX as usize;
/// HTTP/2: requests that were reset because their peer broke a rule; one more ends the connection.
const RESET_FOR_ERRORS_MAX: usize = 64;
/// HTTP/2: how often a silent peer is asked whether it is there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(20);
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// The parts that all connections share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) service: TowerToHyperService<Router>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) drain: CancellationToken,
    pub(super) budgets: Arc<Budgets>,
}

impl Shared {
    /// Serves one connection. Ends when its peer hangs up, breaks a rule or does nothing, or when it is idle and
    /// the gateway is to end. A peer that hung up or spoke no HTTP is nothing to tell of.
    pub(super) async fn serve(self, stream: TcpStream, peer: Peer, seat: Arc<Seat>) {
        // Small answers wait for nothing. Where it cannot be set they take longer, no more.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            // gRPC without TLS begins with the preface of HTTP/2.
            return self.http(stream, peer, seat, Protocol::AsItBegins).await;
        };
        let agreeing = async { TlsAcceptor::from(tls.config().await).accept(stream).await };
        let agreed = self.drain.run_until_cancelled(timeout(HEAD_WITHIN, agreeing)).await;
        let stream = match agreed {
            Some(Ok(Ok(stream))) => stream,
            Some(Ok(Err(error))) => return tell(&error, &peer),
            Some(Err(_)) | None => return,
        };
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let certified = certificate.and_then(Names::of).and_then(Certified::new);
        if let Some(certified) = &certified {
            seat.prove(certified.mark());
        }
        let peer = Peer { certified, ..peer };
        let protocol = match session.alpn_protocol() {
            Some(H2) => Protocol::Http2,
            _ => Protocol::Http1,
        };
        // Boxed, so that connections without TLS need no room for it.
        Box::pin(self.http(stream, peer, seat, protocol)).await;
    }

    async fn http<S>(self, stream: S, peer: Peer, seat: Arc<Seat>, protocol: Protocol)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (served, activity, _end) = self.service(peer, Arc::clone(&seat));
        let builder = match protocol {
            Protocol::Http1 => builder().http1_only(),
            Protocol::Http2 => builder().http2_only(),
            Protocol::AsItBegins => builder(),
        };
        let stream = TokioIo::new(Framed::new(stream, Arc::clone(&activity)));
        let connection = builder.serve_connection(stream, served);
        attend(connection, &activity, &seat, &self.drain).await;
    }

    fn service(&self, peer: Peer, seat: Arc<Seat>) -> (Served, Arc<Activity>, LineEnd) {
        let activity = Activity::new();
        let service = self.service.clone();
        let (line, end) = Line::begin(Arc::clone(&activity));
        let (of_served, budgets) = (Arc::clone(&activity), Arc::clone(&self.budgets));
        let served = Served { service, peer, line, activity: of_served, seat, budgets };
        (served, activity, end)
    }
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy)]
enum Protocol {
    Http1,
    Http2,
    /// As its first bytes say.
    AsItBegins,
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    http1.max_headers(HEADERS_MAX).max_buf_size(BUFFERED_MAX);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new());
    http2.max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEADERS_BYTES_MAX);
    http2.initial_stream_window_size(STREAM_AHEAD_MAX);
    http2.initial_connection_window_size(CONNECTION_AHEAD_MAX);
    http2.max_send_buf_size(STREAM_BUFFERED_MAX);
    http2.max_pending_accept_reset_streams(RESET_EARLY_MAX);
    http2.max_local_error_reset_streams(RESET_FOR_ERRORS_MAX);
    http2.keep_alive_interval(PING_EVERY).keep_alive_timeout(PONG_WITHIN);
    builder
}

/// Has a connection go on until it ends, or has to.
async fn attend(
    connection: impl GracefulConnection,
    activity: &Activity,
    seat: &Seat,
    drain: &CancellationToken,
) {
    let mut connection = pin!(connection);
    let mut looks = interval(LOOK_EVERY);
    let mut is_ending = false;
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = drain.cancelled(), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = looks.tick() => {
                seat.look(clock::now(), activity.quiet_max());
                match activity.verdict(Instant::now()) {
                    Verdict::Busy => {}
                    Verdict::Idle if !is_ending => {
                        is_ending = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    Verdict::Idle | Verdict::Stalled => return,
                }
            }
        }
    }
}

/// A handshake that failed. Whoever can connect can have it fail, so the log has it only if asked for.
fn tell(error: &io::Error, peer: &Peer) {
    debug!(address = %peer.address, %error, "no TLS with a client");
}

/// True of a body whose end a balancer could see elsewhere: other codings than the one are taken by some, and passed
/// over by others.
fn has_odd_framing(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |it: &HeaderValue| it.as_bytes().eq_ignore_ascii_case(b"chunked");
    codings.next().is_some_and(|first| !is_chunked(first) || codings.next().is_some())
}

/// The endpoints, as one connection sees them.
struct Served {
    service: TowerToHyperService<Router>,
    peer: Peer,
    line: Arc<Line>,
    activity: Arc<Activity>,
    seat: Arc<Seat>,
    budgets: Arc<Budgets>,
}

impl Service<Request<Incoming>> for Served {
    type Response = Response<Noted>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Noted>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let under_way = self.activity.begin();
        request.extensions_mut().insert(self.peer.clone());
        if request.version() == Version::HTTP_2 {
            // Only gRPC asks for it.
            request.extensions_mut().insert(Arc::clone(&self.line));
        }
        let visit = Visit::new(Arc::clone(&self.budgets), Arc::clone(&self.seat));
        request.extensions_mut().insert(Arc::clone(&visit));
        if has_odd_framing(request.headers()) {
            let rule = "is something else than \"chunked\", once; send the body chunked, or with its content-length";
            let answer = Refused::field("transfer-encoding", rule).into_response();
            return Box::pin(async {
                Ok(answer.map(|body| Noted::new(body, under_way, (None, visit))))
            });
        }
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer: Response<Body> = answer.await?;
            let (answer, charge) = match visit.answered(&answer) {
                Ok(charge) => (answer, Some(charge)),
                // A short one, which is there already.
                Err(over) => (Refused::from(over).into_response(), None),
            };
            Ok(answer.map(|body| Noted::new(body, under_way, (charge, visit))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_chunked_or_has_a_length() {
        for (codings, is_odd) in [
            (vec![], false),
            (vec!["chunked"], false),
            (vec!["Chunked"], false),
            (vec!["identity, chunked"], true),
            (vec!["identity", "chunked"], true),
            (vec!["chunked", "chunked"], true),
            (vec!["gzip, chunked"], true),
            (vec!["chunked "], true),
            (vec![""], true),
        ] {
            let coded = |it: &&str| (header::TRANSFER_ENCODING, HeaderValue::from_str(it).unwrap());
            let headers = HeaderMap::from_iter(codings.iter().map(coded));
            assert_eq!(has_odd_framing(&headers), is_odd, "{codings:?}");
        }
    }
}
