//! The gateway's session plane.

use super::call::{Call, Sent, Server};
use super::json::{Carrier, Object, Query};
use super::request::{Field, Operation, Request};
use super::value::Value;
use super::{Face, Own};

/// The request, as a program of the session plane asks.
pub(super) fn call(request: &Request, own: &Own) -> Option<Call> {
    let mut carrier = Carrier::of(request);
    let carried = &mut carrier;
    let (method, path, body) = match request.operation {
        Operation::Register => {
            let body = Object::default()
                .field(carried, "tenant_id", Field::Tenant)
                .field(carried, "project_id", Field::Project)
                .field(carried, "agent_identity", Field::Holder)
                .field(carried, "agent_surface", Field::Surface)
                .field(carried, "machine_id", Field::Host)
                .field(carried, "colour", Field::Unknown);
            ("POST", "register".to_owned(), body.end())
        }
        Operation::Beat => {
            let body = Object::default().field(carried, "colour", Field::Unknown);
            ("POST", "heartbeat".to_owned(), body.end())
        }
        // Its body is nothing that this face reads.
        Operation::Release => ("POST", "release".to_owned(), b"{}".to_vec()),
        Operation::Members => {
            let query = Query::default().text(carried, "project_id", Field::Project);
            let query = query.text(carried, "tenant_id", Field::Tenant);
            ("GET", format!("status{}", query.end()), Vec::new())
        }
        _ => return None,
    };
    let headers = match request.operation {
        Operation::Members => String::new(),
        Operation::Register => session(carried, None)?,
        _ => session(carried, Some(own.id(request)))?,
    };
    let target = format!("/api/v1/controller/{path}");
    let sent = Sent::Http { to: Server::Gateway, method, target, headers, body };
    Some(Call::new(Face::Sessions, carrier, sent))
}

/// The header with the session; none if it is left out. Not what no header can have.
fn session(carrier: &mut Carrier<'_>, own: Option<String>) -> Option<String> {
    let line = |id: &str| format!("X-Prism-Session-Id: {id}\r\n");
    match carrier.request.get(Field::Id) {
        None => Some(own.as_deref().map(line).unwrap_or_default()),
        Some(Value::Missing) => {
            carrier.take(Field::Id);
            Some(String::new())
        }
        Some(Value::Text(text)) if is_header(text) => {
            carrier.take(Field::Id);
            Some(line(text))
        }
        Some(_) => None,
    }
}

/// True if a header can have this value: letters of ASCII, and no more than fit.
pub(super) fn is_header(text: &str) -> bool {
    let is_seen = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    is_seen && text.len() <= 4096 && text.trim() == text
}
