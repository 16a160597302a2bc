//! An HTTP/1.1 connection to a gateway, on which calls take turns.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderName, HeaderValue, InvalidHeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tenure_core::model::{Denial, DenialRule};
use tenure_host::marks::{Stage, mark};
use tenure_wire::Problem;
use tokio::sync::{Mutex, MutexGuard};

use super::wire::{AGENT, ANSWER_BYTES_MAX};
use crate::remote::Pump;
use crate::remote::stream::Stream;
use crate::remote::{ConnectError, Endpoint, Peer, TlsFault};
use crate::settings::secret::Secret;

/// Headers of an answer, at most.
const HEADERS_MAX: usize = 64;
/// When to ask again whoever refuses for want of room and does not say when.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest time that is waited on such a word.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Longest answer that is quoted, where it is no problem document.
const QUOTED_MAX: usize = 200;

/// A connection. A call that is dropped before its answer is whole ends it.
#[derive(Debug, Clone)]
pub(super) struct Http {
    sender: Arc<Mutex<SendRequest<Full<Bytes>>>>,
    host: HeaderValue,
    agent: HeaderValue,
    authorization: Option<HeaderValue>,
}

/// A connection whose turn it is.
pub(super) struct Turn<'a> {
    sender: MutexGuard<'a, SendRequest<Full<Bytes>>>,
    http: &'a Http,
}

/// An answer that is whole.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: StatusCode,
    /// How long to wait, by its header.
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Bytes,
}

/// The only field that every refusal has.
#[derive(Deserialize)]
struct Detail {
    detail: String,
}

/// Why there is no whole answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// Nothing of the call has left.
    #[error("the connection to the gateway was lost before this was sent: {0}")]
    NotSent(hyper::Error),
    #[error("the connection to the gateway was lost: {0}")]
    Lost(hyper::Error),
    #[error("the gateway's answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    #[error("the gateway's answer broke off: {0}")]
    BrokeOff(Box<dyn std::error::Error + Send + Sync>),
}

impl CallError {
    /// A fault of TLS that the gateway tells of after it agreed on TLS, such as a certificate that it wants.
    pub(super) fn tls_fault(&self) -> Option<TlsFault> {
        let (CallError::NotSent(error) | CallError::Lost(error)) = self else { return None };
        TlsFault::of(std::error::Error::source(error)?.downcast_ref()?)
    }
}

impl Http {
    /// Speaks HTTP over a stream.
    pub(super) async fn over(
        stream: Box<dyn Stream>,
        endpoint: &Endpoint,
        key: Option<&Secret>,
        peer: &Peer,
        agent: &str,
    ) -> Result<(Http, Pump), ConnectError> {
        let lost = |error: hyper::Error| ConnectError::lost(peer, &error.to_string());
        let unfit = |error| Http::unfit(error, peer);
        let mut builder = http1::Builder::new();
        builder.max_headers(HEADERS_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(lost)?;
        let authorization = key.map(|key| Http::authorization(key, peer));
        let http = Http {
            sender: Arc::new(Mutex::new(sender)),
            host: HeaderValue::try_from(endpoint.to_string()).map_err(unfit)?,
            agent: HeaderValue::try_from(agent).map_err(unfit)?,
            authorization: authorization.transpose()?,
        };
        let peer = peer.clone();
        let pump = Box::pin(async move {
            match connection.await {
                Ok(()) => ConnectError::lost(&peer, "it hung up"),
                Err(error) => ConnectError::lost(&peer, &error.to_string()),
            }
        });
        Ok((http, pump))
    }

    /// The header that shows a key.
    pub(super) fn authorization(key: &Secret, peer: &Peer) -> Result<HeaderValue, ConnectError> {
        let value = HeaderValue::try_from(format!("Bearer {}", key.expose()));
        let mut value = value.map_err(|error| Http::unfit(error, peer))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn unfit(_: InvalidHeaderValue, peer: &Peer) -> ConnectError {
        ConnectError::Unfit {
            peer: peer.clone(),
            what: "cannot be asked with this key: it has characters that no key has".to_owned(),
        }
    }

    /// Waits for its turn.
    ///
    /// # Errors
    ///
    /// When the connection has ended.
    pub(super) async fn turn(&self) -> Result<Turn<'_>, CallError> {
        let mut sender = self.sender.lock().await;
        sender.ready().await.map_err(CallError::NotSent)?;
        Ok(Turn { sender, http: self })
    }

    /// The connection, if no call is on its way.
    pub(super) fn idle(&self) -> Option<Turn<'_>> {
        let sender = self.sender.try_lock().ok()?;
        Some(Turn { sender, http: self })
    }
}

impl Turn<'_> {
    /// Sends a call, and waits for all of its answer.
    pub(super) async fn post(mut self, path: &str, body: Vec<u8>) -> Result<Answered, CallError> {
        let request = self.json(path, body);
        Answered::read(self.send(request).await?).await
    }

    /// The same with one more header.
    pub(super) async fn post_with(
        mut self,
        (name, value): (HeaderName, HeaderValue),
        path: &str,
        body: Vec<u8>,
    ) -> Result<Answered, CallError> {
        let mut request = self.json(path, body);
        request.headers_mut().insert(name, value);
        Answered::read(self.send(request).await?).await
    }

    /// Asks for a stream.
    pub(super) async fn get(mut self, path: &str) -> Result<Response<Incoming>, CallError> {
        let request = self.request(Method::GET, path, Bytes::new());
        self.send(request).await
    }

    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, CallError> {
        mark(Stage::Sent);
        self.sender.try_send_request(request).await.map_err(|mut failed| {
            match failed.take_message() {
                Some(_) => CallError::NotSent(failed.into_error()),
                None => CallError::Lost(failed.into_error()),
            }
        })
    }

    fn json(&self, path: &str, body: Vec<u8>) -> Request<Full<Bytes>> {
        let mut request = self.request(Method::POST, path, Bytes::from(body));
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        request
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // The paths are constants, and queries are encoded.
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.http.host.clone());
        headers.insert(HeaderName::from_static(AGENT), self.http.agent.clone());
        if let Some(authorization) = &self.http.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        request
    }
}

impl Answered {
    pub(super) async fn read(response: Response<Incoming>) -> Result<Answered, CallError> {
        let status = response.status();
        // A date is left to the caller's own patience.
        let seconds = response.headers().get(header::RETRY_AFTER);
        let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = seconds.map(Duration::from_secs);
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => CallError::TooLong,
            false => CallError::BrokeOff(error),
        })?;
        Ok(Answered { status, retry_after, body: body.to_bytes() })
    }

    /// The gateway's refusal, by a rule for this agent; a proxy in front of it may refuse so, too.
    pub(super) fn denial(&self) -> Option<Denial> {
        let rule = match self.status {
            StatusCode::FORBIDDEN => DenialRule::Forbidden,
            StatusCode::UNPROCESSABLE_ENTITY => DenialRule::Invalid,
            StatusCode::TOO_MANY_REQUESTS => {
                let problem = serde_json::from_slice::<Problem>(&self.body).ok();
                let exactly = problem.and_then(|problem| problem.retry_after_ms);
                let after = exactly.map(Duration::from_millis).or(self.retry_after);
                DenialRule::Quota(after.unwrap_or(RETRY_AFTER).min(RETRY_AFTER_MAX))
            }
            _ => return None,
        };
        Some(Denial { rule, detail: self.words() })
    }

    /// The gateway's words, where it refuses.
    pub(super) fn words(&self) -> String {
        if let Ok(problem) = serde_json::from_slice::<Problem>(&self.body) {
            return problem.detail;
        }
        // A backend in Python says no more than this.
        if let Ok(Detail { detail }) = serde_json::from_slice(&self.body) {
            return detail;
        }
        // A proxy in front of it says what it likes.
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.chars().filter(|c| !c.is_control()).take(QUOTED_MAX).collect();
        format!("{}: {text}", self.status)
    }
}
