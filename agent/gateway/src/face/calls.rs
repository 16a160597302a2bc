//! The calls of agents: each is one request to the store.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde::Serialize;
use tenure_core::model;
use tenure_host::clock;
use tenure_stores::gateway::wire::{
    AGENT, Hello, Operation, PROTOCOL, REQUEST_BYTES_MAX, StoreInfo, Welcome, answer_body,
};
use tenure_wire::{Code, rules};

use super::Face;
use super::budget::{self, NotRead};
use super::people::Sender;
use super::presence;
use super::refused::Refused;
use crate::access::{Caller, is_large};
use crate::store::Seen;
use crate::trail::By;

/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Lets an agent in, and tells it by what its ids end.
pub(super) async fn hello(
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Response, Refused> {
    // At any pace: it asks nothing of the store, and programs that call too often keep no agent from connecting.
    let caller = face.let_in(&request)?;
    let sender = Sender::of(&caller, request.headers().get(AGENT));
    let hello: Hello =
        serde_json::from_slice(&body(request).await?).map_err(|error| invalid(&error))?;
    if hello.protocol == 0 {
        return Err(Refused::new(Code::Invalid, "protocol: must be 1 at least"));
    }
    rules::visible("version", &hello.version)?;
    rules::optional("host", hello.host.as_deref(), rules::visible)?;
    if !hello.only_looks {
        face.people.agents.hello(sender, hello);
    }
    let Seen { id, state } = face.store.seen().await;
    json(&Welcome {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: StoreInfo { id, ..face.info.clone() },
        state,
        mark: caller.principal.mark,
    })
}

/// Carries out one operation.
pub(super) async fn call(
    operation: Operation,
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Response, Refused> {
    let caller = face.admit(&request, operation == Operation::Renew)?;
    let answer = carry_out(operation, &face, &caller, request).await;
    answer.inspect_err(|refused| face.note_refusal(By::from(&caller), refused))
}

async fn carry_out(
    operation: Operation,
    face: &Face,
    caller: &Caller,
    request: Request,
) -> Result<Response, Refused> {
    let agent = request.headers().get(AGENT).cloned();
    let sender = || Sender::of(caller, agent.as_ref());
    let request = operation.read_request(&body(request).await?).map_err(|error| invalid(&error))?;
    request.check()?;
    let beats = match &request {
        model::Request::Renew(beats) => Some((clock::now(), beats.clone())),
        _ => None,
    };
    if let model::Request::Announce(record) = &request
        && record.is_agent()
        && !face.people.agents.shows(&sender(), record.owner.session)
    {
        return Err(presence::too_many());
    }
    let is_large = is_large(&request);
    let answer = face.carry_out_for_agent(caller, request).await;
    if let Some((came, beats)) = beats {
        face.people.agents.beats(&sender(), came, beats, answer.as_ref().ok());
    }
    let answer = answer?;
    // Writing a large answer takes milliseconds, and would stop the other calls of this thread.
    let body = match is_large {
        true => tokio::task::spawn_blocking(move || answer_body(answer)).await,
        false => Ok(answer_body(answer)),
    };
    let body = body.map_err(|_| Refused::new(Code::UpstreamUnavailable, "the gateway ends"))?;
    Ok(json_bytes(body.map_err(|error| invalid(&error))?.into()))
}

/// The whole body of a request.
pub(super) async fn body(request: Request) -> Result<Bytes, Refused> {
    budget::read(request, REQUEST_BYTES_MAX, BODY_WITHIN).await.map_err(|error| match error {
        NotRead::Over(over) => over.into(),
        NotRead::TooLong | NotRead::Broken => {
            let detail = format!("the body must be whole, and {REQUEST_BYTES_MAX} bytes at most");
            Refused::new(Code::TooLarge, detail)
        }
        NotRead::Late => {
            let detail = format!("the body must be there within {} s", BODY_WITHIN.as_secs());
            Refused::new(Code::TooLarge, detail)
        }
    })
}

fn invalid(error: &serde_json::Error) -> Refused {
    Refused::new(Code::Invalid, error.to_string())
}

pub(super) fn json(value: &impl Serialize) -> Result<Response, Refused> {
    serde_json::to_vec(value).map(|body| json_bytes(body.into())).map_err(|error| invalid(&error))
}

fn json_bytes(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let media_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}
