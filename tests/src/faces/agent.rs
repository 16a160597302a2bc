//! The agent's API.

use tenure::wire::Kind;
use uuid::Uuid;

use super::call::{Call, Sent, Server};
use super::json::{Carrier, Object, Query};
use super::request::{Field, Operation, Request};
use super::{Face, Own};

/// The request, as a program asks its agent.
pub(super) fn call(request: &Request, own: &Own) -> Option<Call> {
    let mut carrier = Carrier::of(request);
    let sent = sent(&mut carrier, own)?;
    Some(Call::new(Face::Agent, carrier, sent))
}

fn sent(carrier: &mut Carrier<'_>, own: &Own) -> Option<Sent> {
    let request = carrier.request;
    let post = |path, body: Object| Some(Sent::post(Server::Agent, path, body.end()));
    let get =
        |path: &str, query: Query| Some(Sent::get(Server::Agent, format!("{path}{}", query.end())));
    match request.operation {
        Operation::Register => post("/v1/register", register(carrier)),
        Operation::Take => post("/v1/acquire", take(carrier, own)),
        Operation::Beat => {
            let body = Object::default().id(carrier, "session", &own.agent_session);
            post("/v1/beat", body.field(carrier, "colour", Field::Unknown))
        }
        Operation::Release => {
            let hold = Uuid::from_u128(request.id).to_string();
            let body = Object::default().id(carrier, "session", &own.agent_session);
            let body = body.raw("hold", format!("{hold:?}"));
            post("/v1/release", body.field(carrier, "colour", Field::Unknown))
        }
        Operation::Inspect => get("/v1/standing", resource(carrier)),
        Operation::History => get("/v1/history", resource(carrier)),
        Operation::Routes => {
            let query = Query::default().text(carrier, "name", Field::Name);
            let query = query.text(carrier, "tenant", Field::Tenant);
            get("/v1/routes", page(query, carrier))
        }
        Operation::Listing => get("/v1/list", page(Query::default(), carrier)),
        Operation::Revoke => {
            let body = Object::default()
                .raw("kind", format!("{:?}", request.kind.as_str()))
                .field(carrier, "tenant", Field::Tenant)
                .field(carrier, "name", Field::Name)
                .field(carrier, "token", Field::Token)
                .field(carrier, "reason", Field::Reason)
                .field(carrier, "for_ms", Field::ForMs)
                .field(carrier, "colour", Field::Unknown);
            post("/v1/revoke", body)
        }
        _ => None,
    }
}

fn register(carrier: &mut Carrier<'_>) -> Object {
    Object::default()
        .field(carrier, "tenant", Field::Tenant)
        .field(carrier, "project", Field::Project)
        .field(carrier, "name", Field::Holder)
        .field(carrier, "surface", Field::Surface)
        .field(carrier, "ttl_ms", Field::Ttl)
        .field(carrier, "keepalive_ms", Field::Keepalive)
        .field(carrier, "linger_ms", Field::Linger)
        .field(carrier, "progress_ms", Field::Progress)
        .field(carrier, "holds", Field::Holds)
        .field(carrier, "colour", Field::Unknown)
}

/// Its tenant is the session's.
fn take(carrier: &mut Carrier<'_>, own: &Own) -> Object {
    let Request { kind, waits, .. } = *carrier.request;
    let mut body = Object::default()
        .id(carrier, "session", &own.agent_session)
        .raw("kind", format!("{:?}", kind.as_str()));
    // A master's is its session's project.
    if kind != Kind::Master {
        body = body.field(carrier, "name", Field::Name);
    }
    if waits {
        body = body.raw("wait", "\"queue\"").field(carrier, "timeout_ms", Field::Timeout);
    }
    body = body
        .field(carrier, "request", Field::RequestId)
        .field(carrier, "ttl_ms", Field::Ttl)
        .field(carrier, "max_hold_ms", Field::MaxHold)
        .field(carrier, "hold_at_least_ms", Field::AtLeast)
        .field(carrier, "limit", Field::Limit)
        .field(carrier, "priority", Field::Priority)
        .field(carrier, "grace_ms", Field::Grace)
        .field(carrier, "colour", Field::Unknown);
    match kind {
        Kind::Lease => {
            let attributes = attributes(carrier);
            body.raw("attributes", attributes)
        }
        _ => body,
    }
}

/// A lease's entry in the routing table; the same for an agent and for a gateway.
pub(super) fn attributes(carrier: &mut Carrier<'_>) -> Vec<u8> {
    let attributes = Object::default()
        .field(carrier, "address", Field::Address)
        .field(carrier, "proxy_id", Field::ProxyId)
        .field(carrier, "partition", Field::Partition)
        .field(carrier, "status", Field::Status);
    attributes.end()
}

fn resource(carrier: &mut Carrier<'_>) -> Query {
    Query::default()
        .raw("kind", carrier.request.kind.as_str().as_bytes())
        .text(carrier, "name", Field::Name)
        .text(carrier, "tenant", Field::Tenant)
        .unknown(carrier)
}

fn page(query: Query, carrier: &mut Carrier<'_>) -> Query {
    let query = query.number(carrier, "limit", Field::PageLimit);
    query.text(carrier, "cursor", Field::Cursor).unknown(carrier)
}
