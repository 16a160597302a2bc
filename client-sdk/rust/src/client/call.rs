//! One request, one reply, over pooled connections.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyperlocal::UnixConnector;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CallError;
use super::patience::Patience;
use crate::process::Process;
use crate::wire::Problem;

/// Shorter than the 60 s after which the agent closes an idle connection unless it is configured
/// otherwise, so that a call seldom meets a closed one.
const IDLE: Duration = Duration::from_secs(4);
/// Idle connections kept; more are closed as soon as their call is done.
const IDLE_CONNECTIONS_MAX: usize = 32;
/// Replies larger than this are refused as not an agent's, bytes.
const REPLY_SIZE_MAX: usize = 16 << 20;

/// Decides whether a call whose fate is unknown may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Twice does the same as once.
    Harmless,
    Never,
}

pub(super) struct Transport {
    pub(super) path: PathBuf,
    pub(super) patience: Duration,
    authority: Authority,
    process: Process,
    pool: Pool<UnixConnector, Full<Bytes>>,
}

impl Transport {
    pub(super) fn new(path: PathBuf, patience: Duration) -> Result<Transport, CallError> {
        // The connector reads the path back from the host part, hex digits.
        let authority = Uri::from(hyperlocal::Uri::new(&path, "/")).into_parts().authority;
        let authority = authority
            .ok_or_else(|| CallError::protocol(&path, "its path does not fit into a URI"))?;
        Ok(Transport { path, patience, authority, process: Process::current(), pool: new_pool() })
    }

    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        target: PathAndQuery,
        deadline: Duration,
    ) -> Result<T, CallError> {
        let reply = self.call(Method::GET, target, Bytes::new(), Repeat::Harmless, deadline);
        self.parse(&reply.await?.1)
    }

    /// Twice the same does the same as once.
    pub(super) async fn put<T: DeserializeOwned>(
        &self,
        target: &'static str,
        body: &impl Serialize,
        deadline: Duration,
    ) -> Result<T, CallError> {
        let (target, body) = (PathAndQuery::from_static(target), self.body(body)?);
        let reply = self.call(Method::PUT, target, body, Repeat::Harmless, deadline);
        self.parse(&reply.await?.1)
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        target: &'static str,
        body: &impl Serialize,
        repeat: Repeat,
        deadline: Option<Duration>,
    ) -> Result<T, CallError> {
        let (_, reply) = self.post_raw(target, body, repeat, deadline).await?;
        self.parse(&reply)
    }

    /// The status and body of a reply that is no refusal.
    pub(super) async fn post_raw(
        &self,
        target: &'static str,
        body: &impl Serialize,
        repeat: Repeat,
        deadline: Option<Duration>,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let (target, body) = (PathAndQuery::from_static(target), self.body(body)?);
        match deadline {
            Some(deadline) => self.call(Method::POST, target, body, repeat, deadline).await,
            None => self.exchange(Method::POST, target, body, repeat).await,
        }
    }

    fn body(&self, body: &impl Serialize) -> Result<Bytes, CallError> {
        let body = serde_json::to_vec(body)
            .map_err(|error| CallError::garbled(&self.path, "the request has no JSON", error))?;
        Ok(body.into())
    }

    pub(super) fn parse<T: DeserializeOwned>(&self, reply: &[u8]) -> Result<T, CallError> {
        serde_json::from_slice(reply)
            .map_err(|error| CallError::garbled(&self.path, "its reply has another shape", error))
    }

    pub(super) async fn call(
        &self,
        method: Method,
        target: PathAndQuery,
        body: Bytes,
        repeat: Repeat,
        deadline: Duration,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let exchange = self.exchange(method, target, body, repeat);
        match tokio::time::timeout(deadline, exchange).await {
            Ok(result) => result,
            Err(_) => Err(CallError::TimedOut { path: self.path.clone(), after: deadline }),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        target: PathAndQuery,
        body: Bytes,
        repeat: Repeat,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let mut repeats_left = usize::from(repeat == Repeat::Harmless);
        let patience = Patience::of(self.patience);
        // A child of the process has copies of its connections: what it wrote there would be in the middle of a call.
        let pool = if self.process.is_current() { self.pool.clone() } else { new_pool() };
        loop {
            let request = self.request(method.clone(), target.clone(), body.clone())?;
            let failure = match pool.request(request).await {
                Ok(response) => match read(response).await {
                    Ok((status, reply)) if status.is_success() => return Ok((status, reply)),
                    Ok((status, reply)) => {
                        let refusal = self.refusal(status, &reply);
                        if patience.again_after(&refusal).await {
                            continue;
                        }
                        return Err(refusal);
                    }
                    Err(failure) => failure,
                },
                Err(failure) if failure.is_connect() => {
                    let failure = self.failed(failure.into());
                    if patience.again_after(&failure).await {
                        continue;
                    }
                    return Err(failure);
                }
                Err(failure) => failure.into(),
            };
            // The agent closed a connection that it found idle while this call was on its way.
            if repeats_left == 0 {
                return Err(self.failed(failure));
            }
            repeats_left -= 1;
        }
    }

    fn request(
        &self,
        method: Method,
        target: PathAndQuery,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        let uri = Uri::builder()
            .scheme(unix())
            .authority(self.authority.clone())
            .path_and_query(target)
            .build();
        uri.and_then(|uri| {
            Request::builder()
                .method(method)
                .uri(uri)
                .header(HOST, HeaderValue::from_static("localhost"))
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(Full::new(body))
        })
        .map_err(|error| CallError::garbled(&self.path, "the request has no HTTP form", error))
    }

    fn refusal(&self, status: StatusCode, reply: &[u8]) -> CallError {
        match serde_json::from_slice::<Problem>(reply) {
            Ok(problem) => CallError::Refused(Box::new(problem)),
            Err(error) => CallError::garbled(&self.path, not_a_problem(status, reply), error),
        }
    }

    fn failed(&self, failure: Box<dyn StdError + Send + Sync>) -> CallError {
        unreachable(&self.path, failure)
    }
}

fn new_pool() -> Pool<UnixConnector, Full<Bytes>> {
    Pool::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .build(UnixConnector)
}

/// The error for a refusal without a problem.
pub(super) fn not_a_problem(status: StatusCode, reply: &[u8]) -> String {
    const EXCERPT: usize = 200;
    let excerpt = String::from_utf8_lossy(&reply[..reply.len().min(EXCERPT)]).into_owned();
    format!("status {status} with {excerpt:?}")
}

/// A failed connection as an error that names the system's reason.
pub(super) fn unreachable(
    path: &std::path::Path,
    failure: Box<dyn StdError + Send + Sync>,
) -> CallError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&*failure);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            let source = io.raw_os_error().map_or_else(
                || io::Error::new(io.kind(), io.to_string()),
                io::Error::from_raw_os_error,
            );
            return CallError::Unreachable { path: path.to_owned(), source };
        }
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return CallError::garbled(path, "it does not speak HTTP", failure);
        }
        cause = error.source();
    }
    let source = io::Error::new(io::ErrorKind::UnexpectedEof, failure);
    CallError::Unreachable { path: path.to_owned(), source }
}

async fn read(
    response: Response<hyper::body::Incoming>,
) -> Result<(StatusCode, Bytes), Box<dyn StdError + Send + Sync>> {
    let status = response.status();
    let body = Limited::new(response.into_body(), REPLY_SIZE_MAX).collect().await?;
    Ok((status, body.to_bytes()))
}

fn unix() -> Scheme {
    static UNIX: LazyLock<Scheme> = LazyLock::new(|| {
        #[expect(clippy::expect_used, reason = "four letters are a scheme")]
        "unix".parse().expect("a scheme")
    });
    UNIX.clone()
}
