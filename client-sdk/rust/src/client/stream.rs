//! An open event stream on a connection of its own.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{Connection, handshake};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::call::{not_a_problem, unreachable};
use super::patience::Patience;
use super::sse::Parser;
use super::{CallError, STREAM_OPEN_DEADLINE};
use crate::wire::{Event, Problem};

/// The longest body of a refusal, bytes.
const REFUSAL_SIZE_MAX: usize = 64 << 10;

/// An event with its number on the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// The number, for [`Client::events`](super::Client::events) after a reconnect.
    pub id: Option<u64>,
    /// The event.
    pub event: Event,
}

/// Events of a session, or of a resource, as they happen.
///
/// The stream has a connection of its own, whose descriptor [`AsFd`] shows: a session with a
/// `connection` tether lives while that connection is open in any process. Dropping the stream
/// closes this process's end at once, without a task or a runtime.
///
/// It ends (`None`) when the agent closes it, and after an error.
pub struct EventStream {
    path: PathBuf,
    connection: Option<Connection<TokioIo<UnixStream>, Empty<Bytes>>>,
    body: Incoming,
    parser: Parser,
    ready: VecDeque<Received>,
    /// A second descriptor of the connection, since hyper owns the first one.
    descriptor: OwnedFd,
    ended: bool,
}

impl EventStream {
    pub(super) async fn open(
        path: &Path,
        target: PathAndQuery,
        last_event_id: Option<u64>,
        patience: Duration,
    ) -> Result<EventStream, CallError> {
        let connected = async {
            let patience = Patience::of(patience);
            loop {
                match connect(path, target.clone(), last_event_id).await {
                    Err(error) if patience.again_after(&error).await => {}
                    result => return result,
                }
            }
        };
        match tokio::time::timeout(STREAM_OPEN_DEADLINE, connected).await {
            Ok(result) => result,
            Err(_) => {
                Err(CallError::TimedOut { path: path.to_owned(), after: STREAM_OPEN_DEADLINE })
            }
        }
    }

    /// The next event; `None` when the agent has closed the stream.
    ///
    /// Events of a kind that this version does not know are skipped. Dropping the future loses
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`CallError::Unreachable`] when the connection breaks, [`CallError::Protocol`] when what
    /// comes is no event stream. Both end the stream.
    pub async fn next(&mut self) -> Option<Result<Received, CallError>> {
        std::future::poll_fn(|context| self.poll_received(context)).await
    }

    fn poll_received(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Received, CallError>>> {
        loop {
            if let Some(received) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(received)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            // The connection's own future moves bytes into the body; its end shows there too.
            if let Some(connection) = &mut self.connection
                && let Poll::Ready(_ended) = Pin::new(connection).poll(context)
            {
                self.connection = None;
            }
            let taken = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    self.ended = true;
                    continue;
                }
                Poll::Ready(Some(Err(error))) => Err(unreachable(&self.path, error.into())),
                Poll::Ready(Some(Ok(frame))) => match frame.data_ref() {
                    Some(chunk) => self.take(chunk),
                    None => Ok(()),
                },
            };
            if let Err(error) = taken {
                self.ended = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), CallError> {
        const UNREADABLE: &str = "its events cannot be read";
        self.parser.feed(chunk);
        loop {
            let frame = self.parser.next_frame();
            let Some(frame) = frame.map_err(|e| CallError::garbled(&self.path, UNREADABLE, e))?
            else {
                return Ok(());
            };
            let event = Event::parse(&frame.event, &frame.data)
                .map_err(|error| CallError::garbled(&self.path, UNREADABLE, error))?;
            self.ready.extend(event.map(|event| Received { id: frame.id, event }));
        }
    }
}

impl futures_core::Stream for EventStream {
    type Item = Result<Received, CallError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_received(context)
    }
}

impl AsFd for EventStream {
    /// The connection's descriptor. Closed on exec unless the caller changes that for a child.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("path", &self.path).finish_non_exhaustive()
    }
}

async fn connect(
    path: &Path,
    target: PathAndQuery,
    last_event_id: Option<u64>,
) -> Result<EventStream, CallError> {
    let io = |source| CallError::Unreachable { path: path.to_owned(), source };
    let broken = |error: hyper::Error| unreachable(path, error.into());
    let socket = UnixStream::connect(path).await.map_err(io)?;
    let descriptor = socket.as_fd().try_clone_to_owned().map_err(io)?;
    let (mut sender, mut connection) = handshake(TokioIo::new(socket)).await.map_err(broken)?;
    let mut request =
        Request::get(target.as_str()).header(HOST, "localhost").header(ACCEPT, "text/event-stream");
    if let Some(id) = last_event_id {
        request = request.header("Last-Event-ID", id);
    }
    let request = request
        .body(Empty::new())
        .map_err(|error| CallError::garbled(path, "the request has no HTTP form", error))?;
    let response =
        alongside(&mut connection, sender.send_request(request)).await.map_err(broken)?;
    if !response.status().is_success() {
        return Err(alongside(&mut connection, refusal(path, response)).await);
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        return Err(CallError::protocol(path, format!("its event stream is a {kind:?}")));
    }
    Ok(EventStream {
        path: path.to_owned(),
        connection: Some(connection),
        body: response.into_body(),
        parser: Parser::default(),
        ready: VecDeque::new(),
        descriptor,
        ended: false,
    })
}

/// Runs `work` while moving the connection's bytes.
async fn alongside<T>(
    connection: &mut Connection<TokioIo<UnixStream>, Empty<Bytes>>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    let mut open = true;
    std::future::poll_fn(|context| {
        if open && Pin::new(&mut *connection).poll(context).is_ready() {
            open = false;
        }
        work.as_mut().poll(context)
    })
    .await
}

async fn refusal(path: &Path, response: Response<Incoming>) -> CallError {
    let status = response.status();
    let body = match Limited::new(response.into_body(), REFUSAL_SIZE_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return unreachable(path, error),
    };
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => CallError::Refused(Box::new(problem)),
        Err(error) => CallError::garbled(path, not_a_problem(status, &body), error),
    }
}
