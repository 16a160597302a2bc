//! Keys and arguments of the scripts. Their header comments name them in this order.

use std::time::Duration;

use tenure_core::model::{Claim, ClaimId, Resource, SessionId, SessionRecord, Terms, defaults};
use tenure_wire::{Attributes, Kind};

use super::super::layout::{Layout, SemaphoreKey, hyphenated, member, session_text};
use super::scripts::{self, Invocation};

/// Longest time that a key is given, ms: 30 years.
const EXPIRY_MAX_MS: u64 = 946_080_000_000;

/// Whole milliseconds, never less than asked for.
pub(super) fn millis(duration: Duration) -> u64 {
    let ms = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    ms.min(EXPIRY_MAX_MS)
}

fn ttl_ms(ttl: Duration) -> u64 {
    millis(ttl).max(1)
}

/// A resource as its claims' records have it.
fn named(resource: &Resource) -> String {
    format!("{}:{}", resource.kind, resource.name)
}

/// The script keeps the limit in force.
const KEEPS: u8 = 1;
/// The script keeps the limit in force where others use it.
const KEEPS_OF_OTHERS: u8 = 2;

/// `None` if the terms are not those of the resource's kind.
pub(super) fn claim(layout: &Layout, claim: &Claim, agent: &str, floor: u64) -> Option<Invocation> {
    match (claim.resource.kind, &claim.terms) {
        (Kind::Leader, Terms::Leader) => {
            let call = Invocation::new(&scripts::CLAIM_LEADER);
            let call = claim_common(layout, claim, agent, floor, call);
            Some(with_queue(layout, &claim.resource, call))
        }
        (Kind::Master, Terms::Master { priority }) => {
            Some(claim_master(layout, claim, agent, floor, *priority))
        }
        (Kind::Semaphore, Terms::Semaphore { limit, keeps, only_own }) => {
            let keeps = if *keeps { KEEPS } else { u8::from(*only_own) * KEEPS_OF_OTHERS };
            Some(claim_permit(layout, claim, agent, floor, *limit, keeps))
        }
        (Kind::Lease, Terms::Lease { grace, attributes, take_over }) => {
            let call = claim_lease(layout, claim, agent, floor, *grace, attributes);
            let take_over = take_over.as_ref();
            Some(
                call.arg(take_over.map(|it| hyphenated(it.from.0)).unwrap_or_default())
                    .arg(take_over.map_or(0, |it| millis(it.unbeaten)))
                    .arg(layout.sets()),
            )
        }
        _ => None,
    }
}

/// The keys and arguments that all kinds begin with.
fn claim_common(
    layout: &Layout,
    claim: &Claim,
    agent: &str,
    floor: u64,
    call: Invocation,
) -> Invocation {
    let Resource { tenant, .. } = &claim.resource;
    let id = hyphenated(claim.id.0);
    call.for_ttl(claim.ttl)
        .key(layout.main(&claim.resource))
        .key(layout.claim(tenant, &id))
        .key(layout.fence(tenant))
        .arg(id)
        .arg(named(&claim.resource))
        .arg(session_text(claim.owner.session))
        .arg(&claim.owner.host)
        .arg(&claim.owner.name)
        .arg(ttl_ms(claim.ttl))
        .arg(floor)
        .arg(layout.claim(tenant, ""))
        .arg(agent)
        .arg(u8::from(claim.enqueue))
        .arg(defaults::QUEUE_MAX)
}

/// Adds the keys of an exclusive resource's queue.
fn with_queue(layout: &Layout, resource: &Resource, call: Invocation) -> Invocation {
    let call = call.key(layout.queue(resource)).key(layout.queue_ends(resource));
    match resource.kind {
        Kind::Lease => call.key(layout.queue_sessions(&resource.tenant, &resource.name)),
        _ => call,
    }
}

/// Adds what makes somebody the master, and tells of it.
fn with_project(layout: &Layout, master: &Resource, call: Invocation) -> Invocation {
    let Resource { tenant, name: project, .. } = master;
    call.arg(project)
        .arg(layout.session(""))
        .arg(layout.session_channel(""))
        .arg(layout.project_channel(tenant, project))
        .arg(defaults::PREFERRED_SURFACE)
        .arg(defaults::PREFERRED_PRIORITY)
}

fn claim_master(
    layout: &Layout,
    claim: &Claim,
    agent: &str,
    floor: u64,
    priority: i32,
) -> Invocation {
    let Resource { tenant, name: project, .. } = &claim.resource;
    let call = claim_common(layout, claim, agent, floor, Invocation::new(&scripts::CLAIM_MASTER))
        .key(layout.master_claim(tenant, project));
    let call = with_queue(layout, &claim.resource, call);
    with_project(layout, &claim.resource, call).arg(priority)
}

fn claim_permit(
    layout: &Layout,
    claim: &Claim,
    agent: &str,
    floor: u64,
    limit: u32,
    keeps: u8,
) -> Invocation {
    let Resource { tenant, name, .. } = &claim.resource;
    let call = claim_common(layout, claim, agent, floor, Invocation::new(&scripts::CLAIM_PERMIT));
    with_semaphore(layout, tenant, name, call)
        .arg(member(claim.id))
        .arg(limit)
        .arg(layout.notification(tenant, ""))
        .arg(keeps)
}

/// The other keys of a semaphore.
fn with_semaphore(layout: &Layout, tenant: &str, name: &str, call: Invocation) -> Invocation {
    call.key(layout.semaphore(tenant, SemaphoreKey::Ttl, name))
        .key(layout.semaphore(tenant, SemaphoreKey::Waiting, name))
        .key(layout.semaphore(tenant, SemaphoreKey::WaitingHeartbeat, name))
        .key(layout.semaphore(tenant, SemaphoreKey::Max, name))
}

fn claim_lease(
    layout: &Layout,
    claim: &Claim,
    agent: &str,
    floor: u64,
    grace: Duration,
    attributes: &Attributes,
) -> Invocation {
    let Resource { tenant, name, .. } = &claim.resource;
    let call = claim_common(layout, claim, agent, floor, Invocation::new(&scripts::CLAIM_LEASE))
        .key(layout.leases(tenant))
        .key(layout.routes(tenant));
    with_queue(layout, &claim.resource, call)
        .arg(name)
        .arg(millis(grace))
        .arg(attributes.address.as_deref().unwrap_or_default())
        .arg(attributes.proxy_id.as_deref().unwrap_or_default())
        .arg(defaults::partition(attributes, name))
        .arg(defaults::status(attributes))
}

pub(super) fn release(
    layout: &Layout,
    claim: ClaimId,
    resource: &Resource,
    floor: u64,
) -> Invocation {
    let Resource { tenant, kind, name } = resource;
    let id = hyphenated(claim.0);
    let script = match kind {
        Kind::Leader => &scripts::RELEASE_LEADER,
        Kind::Master => &scripts::RELEASE_MASTER,
        Kind::Lease => &scripts::RELEASE_LEASE,
        Kind::Semaphore => &scripts::RELEASE_PERMIT,
    };
    let call = Invocation::new(script)
        .key(layout.main(resource))
        .key(layout.claim(tenant, &id))
        .arg(id)
        .arg(named(resource));
    match kind {
        Kind::Leader | Kind::Master | Kind::Lease => {
            let call = call.arg(floor).arg(layout.claim(tenant, ""));
            with_exclusive(layout, resource, call)
        }
        Kind::Semaphore => {
            let call = call.key(layout.fence(tenant));
            with_semaphore(layout, tenant, name, call)
                .arg(member(claim))
                .arg(floor)
                .arg(layout.claim(tenant, ""))
                .arg(layout.notification(tenant, ""))
        }
    }
}

/// Adds what the end of an exclusive hold is told with, and whoever waits is granted with.
fn with_exclusive(layout: &Layout, resource: &Resource, call: Invocation) -> Invocation {
    let Resource { tenant, kind, name } = resource;
    let call = match kind {
        Kind::Leader | Kind::Semaphore => call,
        Kind::Master => with_project(layout, resource, call.key(layout.master_claim(tenant, name))),
        Kind::Lease => {
            let call = call.key(layout.leases(tenant)).key(layout.routes(tenant));
            call.arg(name).arg(layout.sets())
        }
    };
    with_queue(layout, resource, call.key(layout.fence(tenant)))
}

pub(super) fn revoke(
    layout: &Layout,
    resource: &Resource,
    token: Option<u64>,
    floor: u64,
) -> Invocation {
    let Resource { tenant, kind, name } = resource;
    let script = match kind {
        Kind::Leader => &scripts::REVOKE_LEADER,
        Kind::Master => &scripts::REVOKE_MASTER,
        Kind::Lease => &scripts::REVOKE_LEASE,
        Kind::Semaphore => &scripts::REVOKE_PERMITS,
    };
    let call = Invocation::new(script)
        .key(layout.main(resource))
        .arg(token.map_or_else(String::new, |token| token.to_string()))
        .arg(layout.claim(tenant, ""));
    match kind {
        Kind::Leader | Kind::Lease => with_exclusive(layout, resource, call.arg(floor)),
        Kind::Master => with_exclusive(layout, resource, call.arg(floor)),
        Kind::Semaphore => {
            let call = call.key(layout.fence(tenant));
            with_semaphore(layout, tenant, name, call)
                .arg(floor)
                .arg(layout.notification(tenant, ""))
        }
    }
}

pub(super) fn announce(layout: &Layout, record: &SessionRecord) -> Invocation {
    let SessionRecord { owner, tenant, project, surface, ttl, .. } = record;
    let session = session_text(owner.session);
    let (projects, sessions) = layout.projects();
    Invocation::new(&scripts::ANNOUNCE)
        .key(layout.session(&session))
        .key(layout.sessions(tenant, project))
        .key(layout.master(tenant, project))
        .key(ended(layout, tenant, &session))
        .arg(session)
        .arg(tenant)
        .arg(project)
        .arg(surface)
        .arg(&owner.host)
        .arg(&owner.name)
        .arg(ttl_ms(*ttl))
        .arg(defaults::priority(surface))
        .arg(layout.session(""))
        .arg(layout.project_channel(tenant, project))
        .arg(projects)
        .arg(sessions)
        .arg(layout.sets())
}

/// The mark of a session that has ended, apart from claims: one of them may have the session's id.
fn ended(layout: &Layout, tenant: &str, session: &str) -> String {
    layout.claim(tenant, &format!("session:{session}"))
}

pub(super) fn end_session(
    layout: &Layout,
    session: SessionId,
    tenant: &str,
    project: &str,
) -> Invocation {
    let session = session_text(session);
    let (projects, sessions) = layout.projects();
    Invocation::new(&scripts::END_SESSION)
        .key(layout.session(&session))
        .key(ended(layout, tenant, &session))
        .arg(session)
        .arg(tenant)
        .arg(project)
        .arg(projects)
        .arg(sessions)
        .arg(layout.project_channels())
}
