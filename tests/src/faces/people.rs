//! The gateway's face for people.

use super::Face;
use super::call::{Call, Sent, Server};
use super::json::{Carrier, Query};
use super::request::{Field, Operation, Request};
use super::value::Value;

/// The request, as the status page asks.
pub(super) fn call(request: &Request) -> Option<Call> {
    let mut carrier = Carrier::of(request);
    let carried = &mut carrier;
    let query = Query::default();
    let query = match request.operation {
        Operation::Listing => query.number(carried, "limit", Field::PageLimit),
        Operation::Inspect => {
            // Without tenant and name it is asked for all of a kind.
            let is_missing = |field| request.get(field) == Some(&Value::Missing);
            if is_missing(Field::Tenant) || is_missing(Field::Name) {
                return None;
            }
            query
                .raw("kind", request.kind.as_str().as_bytes())
                .text(carried, "name", Field::Name)
                .text(carried, "tenant", Field::Tenant)
        }
        _ => return None,
    };
    let target = format!("/v1/resources{}", query.unknown(carried).end());
    Some(Call::new(Face::People, carrier, Sent::get(Server::Gateway, target)))
}
