//! Operations on both sides.

use std::fmt;

use tenure_core::model::{Beat, Claim, ClaimId, Request, Resource, Subject, Terms};

use crate::text::{ms, short};

/// One step of a run. Stands for itself, so that a run can be repeated with some left out.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// Asks both sides.
    Ask(Request),
    /// Revokes a grant by its token, which the two sides number differently.
    Revoke {
        resource: Resource,
        /// The grant whose token is named; `None` for a token that was never granted.
        of: Option<ClaimId>,
    },
    /// Lets time pass until so many ms after the start.
    Pass(u64),
    /// The store's connection breaks.
    Reconnect,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Ask(request) => write_request(f, request),
            Operation::Revoke { resource, of } => {
                let of = of.map_or("nobody".to_owned(), |of| short(of.0));
                write!(f, "revoke {resource} token of {of}")
            }
            Operation::Pass(_) => f.write_str("time passes"),
            Operation::Reconnect => f.write_str("reconnect"),
        }
    }
}

fn write_request(f: &mut fmt::Formatter<'_>, request: &Request) -> fmt::Result {
    match request {
        Request::Claim(claim) => write_claim(f, claim),
        Request::Renew(beats) => {
            f.write_str("renew")?;
            beats.iter().try_for_each(|beat| write_beat(f, beat))
        }
        Request::Release { claim, resource } => write!(f, "release {} {resource}", short(claim.0)),
        Request::Announce(record) => write!(
            f,
            "announce {} in {}:{} surface={} ttl={}",
            short(record.owner.session.0),
            record.tenant,
            record.project,
            record.surface,
            ms(record.ttl)
        ),
        Request::EndSession { session, tenant, project } => {
            write!(f, "end {} in {tenant}:{project}", short(session.0))
        }
        Request::Inspect(resource) => write!(f, "inspect {resource}"),
        Request::Holders(resource) => write!(f, "holders of {resource}"),
        Request::Members { within, .. } => write!(f, "members of {within:?}"),
        Request::Routes { tenant, name, .. } => {
            write!(f, "routes of {tenant} {}", name.as_deref().unwrap_or_default())
        }
        Request::Resources { .. } => f.write_str("resources"),
        Request::Record(entries) => {
            let of = entries.first().map(|entry| entry.resource.to_string()).unwrap_or_default();
            write!(f, "record {} of {of}", entries.len())
        }
        Request::History(resource) => write!(f, "history of {resource}"),
        Request::Revoke { resource, token, .. } => {
            write!(f, "revoke {resource}")?;
            token.map_or(Ok(()), |token| write!(f, " token={token}"))
        }
    }
}

fn write_claim(f: &mut fmt::Formatter<'_>, claim: &Claim) -> fmt::Result {
    let Claim { id, resource, owner, ttl, .. } = claim;
    write!(f, "claim {} by {} {resource} ttl={}", short(id.0), short(owner.session.0), ms(*ttl))?;
    match &claim.terms {
        Terms::Leader => {}
        Terms::Master { priority } => write!(f, " priority={priority}")?,
        Terms::Semaphore { limit, keeps, .. } => {
            write!(f, " {}={limit}", if *keeps { "default_limit" } else { "limit" })?;
        }
        Terms::Lease { grace, attributes, take_over } => {
            write!(f, " grace={}", ms(*grace))?;
            let texts = [&attributes.address, &attributes.proxy_id, &attributes.status];
            texts.into_iter().flatten().try_for_each(|text| write!(f, " {text:?}"))?;
            attributes.partition.map_or(Ok(()), |partition| write!(f, " partition={partition}"))?;
            take_over.as_ref().map_or(Ok(()), |it| {
                write!(f, " take_over={} unbeaten={}", short(it.from.0), ms(it.unbeaten))
            })?;
        }
    }
    if claim.enqueue { Ok(()) } else { f.write_str(" try") }
}

fn write_beat(f: &mut fmt::Formatter<'_>, beat: &Beat) -> fmt::Result {
    match &beat.subject {
        Subject::Claim { claim, resource } => {
            write!(f, " [{} {resource} {}]", short(claim.0), ms(beat.ttl))
        }
        Subject::Session { session, .. } => {
            write!(f, " [session {} {}]", short(session.0), ms(beat.ttl))
        }
    }
}
