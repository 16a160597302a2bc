//! The fake agent's socket.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure::wire::{self, AgentInfo, HoldState, Problem, Registered};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Shared;
use super::state::{State, acquired, waiting};

type Reply = Response<Either<Full<Bytes>, Events>>;

pub(super) async fn serve(listener: UnixListener, shared: Arc<Shared>, running: CancellationToken) {
    let accept = async {
        loop {
            let (socket, _) = listener.accept().await.expect("a connection");
            let shared = Arc::clone(&shared);
            let running = running.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(|request| answer(&shared, request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service);
                running.run_until_cancelled(connection).await
            });
        }
    };
    running.run_until_cancelled(accept).await;
}

#[derive(Debug, thiserror::Error)]
#[error("the reply is lost")]
struct ReplyLost;

async fn answer(shared: &Shared, request: Request<Incoming>) -> Result<Reply, ReplyLost> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let last_event_id = request.headers().get("last-event-id");
    let last_event_id =
        last_event_id.map(|id| id.to_str().expect("ASCII").parse().expect("a number"));
    let body = request.into_body().collect().await.map_err(|_| ReplyLost)?.to_bytes();
    let reply = {
        let mut state = shared.state();
        state.requests.push(path.clone());
        let reply = act(&mut state, &path, &query, last_event_id, &body);
        if state.replies_to_lose > 0 {
            state.replies_to_lose -= 1;
            return Err(ReplyLost);
        }
        reply
    };
    let mut replies = shared.replies.subscribe();
    replies.wait_for(|open| *open).await.map_err(|_| ReplyLost)?;
    Ok(reply.unwrap_or_else(|problem| json(problem.status, &problem)))
}

fn act(
    state: &mut State,
    path: &str,
    query: &str,
    last_event_id: Option<u64>,
    body: &[u8],
) -> Result<Reply, Box<Problem>> {
    Ok(match path {
        "/healthz" => json(200, &"ok"),
        "/v1/register" => {
            let register: wire::Register = parse(body);
            let resumed = register.resume.map(|resume| resume.session);
            state.register(resumed)?;
            json(201, &registered(state, resumed.is_some()))
        }
        "/v1/acquire" => {
            let hold = state.acquire(&parse(body))?;
            match hold.state {
                HoldState::Waiting => json(202, &waiting(&hold)),
                _ => json(200, &acquired(&hold)),
            }
        }
        "/v1/release" => {
            let release: wire::Release = parse(body);
            state.check(Some(release.session))?;
            json(200, &wire::Released { released: state.release(release.hold) })
        }
        "/v1/beat" => {
            state.check(Some(parse::<wire::Beat>(body).session))?;
            json(204, &())
        }
        "/v1/events" => {
            let session = query.strip_prefix("session=").and_then(|id| Uuid::parse_str(id).ok());
            state.check(session)?;
            events(state, last_event_id)
        }
        _ => return Err(Box::new(Problem::new(wire::Code::NotFound, path))),
    })
}

fn registered(state: &State, resumed: bool) -> Registered {
    Registered {
        session: state.session.expect("a session"),
        secret: "5ec7e7".into(),
        ttl_ms: 90_000,
        beat_ms: 30_000,
        page: state.page.as_ref().expect("a page").path.display().to_string(),
        boot_id: state.boot_id,
        resumed,
        agent: AgentInfo {
            version: "0".into(),
            host_id: "0".into(),
            upstream: "fake".into(),
            guarantee: "none".into(),
        },
    }
}

fn events(state: &mut State, last_event_id: Option<u64>) -> Reply {
    #[expect(clippy::disallowed_methods, reason = "bounded by what one test makes happen")]
    let (sender, events) = mpsc::unbounded_channel();
    match last_event_id.filter(|last| state.ring.iter().any(|(id, _)| id == last)) {
        Some(last) => {
            for (_, frame) in state.ring.iter().filter(|(id, _)| *id > last) {
                sender.send(frame.clone()).expect("open");
            }
        }
        None => {
            let snapshot = state.snapshot();
            sender.send(state.frame(&snapshot)).expect("open");
        }
    }
    state.streams.push(sender);
    let body = Events { events };
    let response = Response::builder().header("content-type", "text/event-stream");
    response.body(Either::Right(body)).expect("a response")
}

fn json(status: u16, body: &impl Serialize) -> Reply {
    let body = if status == 204 { Vec::new() } else { serde_json::to_vec(body).expect("JSON") };
    Response::builder().status(status).body(Either::Left(body.into())).expect("a response")
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> T {
    serde_json::from_slice(body).expect("the client sends what the agent takes")
}

struct Events {
    events: mpsc::UnboundedReceiver<Bytes>,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.events.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
