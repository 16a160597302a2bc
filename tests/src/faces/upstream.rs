//! The gateway's face for agents.

use tenure::wire::Kind;
use tenure_stores::gateway::wire::{HELLO, Operation as Of};

use super::agent::attributes;
use super::call::{Call, Sent, Server};
use super::json::{Carrier, Object};
use super::request::{Field, Operation, Request};
use super::{Face, Own};

/// The request, as an agent asks its gateway.
pub(super) fn call(request: &Request, own: &Own) -> Option<Call> {
    let mut carrier = Carrier::of(request);
    let (path, body) = body(&mut carrier, own)?;
    let sent = Sent::post(Server::Gateway, path, body.end());
    Some(Call::new(Face::Upstream, carrier, sent))
}

fn body(carrier: &mut Carrier<'_>, own: &Own) -> Option<(&'static str, Object)> {
    let id = own.id(carrier.request);
    let object = Object::default();
    let (path, object) = match carrier.request.operation {
        Operation::Register => {
            let owner = owner(carrier, &id, true);
            let object = object
                .raw("owner", owner)
                .field(carrier, "tenant", Field::Tenant)
                .field(carrier, "project", Field::Project)
                .field(carrier, "surface", Field::Surface)
                .time(carrier, "ttl", Field::Ttl);
            (Of::Announce.path(), object)
        }
        Operation::Take => (Of::Claim.path(), claim(carrier, &id)),
        Operation::Beat => {
            let subject = Object::default().id(carrier, "claim", &id);
            let subject =
                Object::default().raw("Claim", subject.raw("resource", resource(carrier)).end());
            let beat = Object::default().raw("subject", subject.end());
            let beat = beat.time(carrier, "ttl", Field::Ttl).end();
            (Of::Renew.path(), object.raw("beats", [b"[", &beat[..], b"]"].concat()))
        }
        Operation::Release => {
            let object = object.id(carrier, "claim", &id).raw("resource", resource(carrier));
            (Of::Release.path(), object)
        }
        Operation::Inspect => (Of::Inspect.path(), object.raw("resource", resource(carrier))),
        Operation::History => (Of::History.path(), object.raw("resource", resource(carrier))),
        Operation::Routes => {
            let object = object.field(carrier, "tenant", Field::Tenant);
            let object = object.field(carrier, "name", Field::Name);
            (Of::Routes.path(), object.raw("page", page(carrier)))
        }
        Operation::Listing => (Of::Resources.path(), object.raw("page", page(carrier))),
        Operation::Members => {
            let project = Object::default().field(carrier, "tenant", Field::Tenant);
            let project = project.field(carrier, "project", Field::Project).end();
            let within = Object::default().raw("project", project).end();
            let object = object.raw("within", within).raw("listed", "true");
            (Of::Members.path(), object.raw("page", page(carrier)))
        }
        Operation::Revoke => {
            let revocation = revocation(carrier);
            let object = object.raw("resource", resource(carrier));
            let object = object.field(carrier, "token", Field::Token);
            (Of::Revoke.path(), object.raw("revocation", revocation))
        }
        Operation::Record => {
            let change = change(carrier, &id);
            (Of::Record.path(), object.raw("changes", [b"[", &change[..], b"]"].concat()))
        }
        Operation::Hello => {
            let object = object
                .field(carrier, "protocol", Field::Protocol)
                .field(carrier, "version", Field::Version)
                .field(carrier, "host", Field::Host);
            (HELLO, object)
        }
        Operation::Proxy | Operation::Key => return None,
    };
    Some((path, object.field(carrier, "colour", Field::Unknown)))
}

fn resource(carrier: &mut Carrier<'_>) -> Vec<u8> {
    let kind = carrier.request.kind.as_str();
    Object::default()
        .field(carrier, "tenant", Field::Tenant)
        .raw("kind", format!("{kind:?}"))
        .field(carrier, "name", Field::Name)
        .end()
}

fn owner(carrier: &mut Carrier<'_>, id: &str, is_subject: bool) -> Vec<u8> {
    let owner = Object::default();
    let owner = match is_subject {
        true => owner.id(carrier, "session", id),
        false => owner.raw("session", format!("{id:?}")),
    };
    owner.field(carrier, "host", Field::Host).field(carrier, "name", Field::Holder).end()
}

fn claim(carrier: &mut Carrier<'_>, id: &str) -> Object {
    let enqueue = if carrier.request.waits { "true" } else { "false" };
    let terms = match carrier.request.kind {
        Kind::Leader => b"\"Leader\"".to_vec(),
        Kind::Master => {
            let terms = Object::default().field(carrier, "priority", Field::Priority).end();
            Object::default().raw("Master", terms).end()
        }
        Kind::Semaphore => {
            let terms = Object::default().field(carrier, "limit", Field::Limit).end();
            Object::default().raw("Semaphore", terms).end()
        }
        Kind::Lease => {
            let terms = Object::default().time(carrier, "grace", Field::Grace);
            let terms = terms.raw("attributes", attributes(carrier)).end();
            Object::default().raw("Lease", terms).end()
        }
    };
    let object = Object::default().id(carrier, "id", id).raw("resource", resource(carrier));
    let object = object.raw("owner", owner(carrier, id, false));
    object.time(carrier, "ttl", Field::Ttl).raw("terms", terms).raw("enqueue", enqueue)
}

fn page(carrier: &mut Carrier<'_>) -> Vec<u8> {
    let page = Object::default().field(carrier, "after", Field::Cursor);
    page.field(carrier, "limit", Field::PageLimit).end()
}

fn revocation(carrier: &mut Carrier<'_>) -> Vec<u8> {
    let revocation = Object::default();
    let revocation = match carrier.request.get(Field::By) {
        Some(_) => revocation.field(carrier, "by", Field::By),
        None => revocation.raw("by", "\"root on host-a\""),
    };
    let revocation = revocation.field(carrier, "reason", Field::Reason);
    revocation.field(carrier, "for_ms", Field::ForMs).end()
}

fn change(carrier: &mut Carrier<'_>, id: &str) -> Vec<u8> {
    let program = Object::default().field(carrier, "user", Field::User);
    let program = program.field(carrier, "command", Field::Command).end();
    let end = Object::default().field(carrier, "reason", Field::Reason);
    let end = end.field(carrier, "by", Field::By).end();
    Object::default()
        .raw("resource", resource(carrier))
        .id(carrier, "claim", id)
        .raw("owner", owner(carrier, id, false))
        .field(carrier, "token", Field::Token)
        .raw("what", "\"granted\"")
        .raw("holder", Object::default().raw("program", program).end())
        .raw("end", end)
        .end()
}
