//! A backend that offers the session plane (SPEC-032) and nothing else: sessions and masters.
//!
//! Registering there is running for master, and the backend makes the ids. So a claim registers a session of its
//! own once the master's place is open, and its release ends that. A session that claims nothing is registered
//! while there is a master whom it does not preempt. Nothing of it is kept here that matters: whoever repeats
//! an operation finds by the status what it has done.

mod calls;
mod known;
mod project;

use std::collections::HashMap;

use tenure_core::model::{AGENTS_TENANT, Answer, Denial, DenialRule, Failure, Request, Resource};
use tenure_host::clock;
use tenure_wire::{Check, Kind};

use self::calls::Caller;
pub(super) use self::calls::{is_status, probe};
pub(super) use self::known::{Plane, keep_up, look_on};
use super::Line;
use super::http::Http;
use crate::remote::Peer;

/// The session plane alone, and what that means.
pub(super) const MEANING: &str = "the upstream offers only the session plane (SPEC-032): sessions and masters work, leaders, leases \
     and semaphores are refused, messages are not heard, and changes by others are seen within a second";

/// The finding of an examination.
pub(super) fn check(peer: &Peer) -> Check {
    Check::warning(
        "gateway.session_plane",
        format!("{}: {MEANING}; tokens are as good as its clock", peer.place),
        "for all of Tenure, run tenured-gateway and set upstream to its URL",
    )
}

impl Plane {
    /// Performs an operation. Whatever fails after something was registered is *unknown*, and found by whoever
    /// repeats it.
    pub(super) async fn perform(
        &self,
        http: &Http,
        line: &Line,
        request: &Request,
        floor: u64,
    ) -> Result<Answer, Failure> {
        let caller = Caller { http, line };
        match request {
            // Nobody can ask for it later.
            Request::Announce(record) if record.is_agent() => return Ok(Answer::Announced),
            Request::EndSession { tenant, .. } if **tenant == *AGENTS_TENANT => {
                return Ok(Answer::Ended(false));
            }
            _ => {}
        }
        self.follow(clock::now(), request);
        match request {
            Request::Announce(record) => {
                caller.list(record).await?;
                Ok(Answer::Announced)
            }
            Request::Claim(claim) if claim.resource.kind == Kind::Master => {
                let surface = self.surface(claim.owner.session);
                Ok(Answer::Claim(caller.claim(claim, &surface, floor).await?))
            }
            Request::Renew(beats) => Ok(Answer::Renew(caller.renew(beats).await?)),
            // A hold of an earlier upstream is not here.
            Request::Release { resource, .. } if resource.kind != Kind::Master => {
                Ok(Answer::Released(false))
            }
            Request::Release { claim, resource } => {
                let project = caller.status(resource).await?;
                Ok(Answer::Released(caller.end(project.of_claim(*claim)).await?))
            }
            Request::EndSession { session, tenant, project } => {
                let (tenant, name) = (tenant.clone(), project.clone());
                let project = caller.status(&Resource { tenant, kind: Kind::Master, name }).await?;
                let own = project.sessions().filter(|it| it.is_of(*session));
                Ok(Answer::Ended(caller.end(own).await?))
            }
            Request::Inspect(resource) | Request::Holders(resource)
                if resource.kind == Kind::Master =>
            {
                Ok(Answer::Standing(caller.status(resource).await?.standing()))
            }
            Request::Claim(claim) => Err(not_there(&of_kind(&claim.resource))),
            Request::Inspect(resource) | Request::Holders(resource) => {
                Err(not_there(&of_kind(resource)))
            }
            Request::Revoke { resource, .. } => {
                Err(not_there(&format!("revocation of {}", of_kind(resource))))
            }
            Request::History(_) => Err(not_there("the history of a resource")),
            // Nobody asks for it later.
            Request::Record(_) => Ok(Answer::Recorded),
            Request::Routes { .. } => Err(not_there("the routing table of leases")),
            Request::Members { .. } | Request::Resources { .. } => Err(not_there("a list of all")),
        }
    }
}

fn of_kind(resource: &Resource) -> String {
    format!("{} {:?}", resource.kind, resource.name)
}

/// The refusal of what only a gateway has.
fn not_there(what: &str) -> Failure {
    denied(format!(
        "{what}: the upstream offers only the session plane, which has sessions and masters: ask for a \
         master, or have upstream name a tenured-gateway, which has all kinds"
    ))
}

fn denied(detail: String) -> Failure {
    Failure::Denied(Denial { rule: DenialRule::Forbidden, detail })
}

/// Projects, each read once.
type Projects<'a> = HashMap<&'a Resource, project::Project>;
