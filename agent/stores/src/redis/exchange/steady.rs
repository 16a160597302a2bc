//! Steady beats: those of claims that hold with the ttl that they were granted with, as the server said last
//! time. Nothing but its key, and that there is a record, must be looked at for such a one.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::model::{Beat, ClaimId, Resource, Subject};
use tenure_wire::Kind;

use super::super::layout::{Layout, SemaphoreKey, hyphenated, member};
use super::encode::millis;
use super::scripts::Invocation;

/// Grants are swept when there are so many more than twice those of the last sweep.
const SWEEP_ABOVE: usize = 1024;

/// The grants whose next beat is a steady one. They are a hint: the server looks whether it is, and where it is not,
/// or is not known to be, the beat is asked like any other.
#[derive(Debug, Default)]
pub struct Grants {
    of: HashMap<ClaimId, Grant>,
    /// Those that a sweep has left.
    left: usize,
}

#[derive(Debug)]
struct Grant {
    token: u64,
    ttl: Duration,
    /// Said since the last sweep.
    is_new: bool,
}

impl Grants {
    /// The token of the grant, if this is a steady beat of it.
    pub fn steady(&self, Beat { subject, ttl }: &Beat) -> Option<u64> {
        let Subject::Claim { claim, resource } = subject else { return None };
        if resource.kind == Kind::Master {
            return None;
        }
        self.of.get(claim).filter(|grant| grant.ttl == *ttl).map(|grant| grant.token)
    }

    /// The server says that the next beat like this one is steady.
    pub fn note(&mut self, Beat { subject, ttl }: &Beat, token: u64) {
        let Subject::Claim { claim, resource } = subject else { return };
        if resource.kind == Kind::Master {
            return;
        }
        if self.of.len() > 2 * self.left + SWEEP_ABOVE {
            // Nobody says here what a hold's end is: what was not said for long is said again if need be.
            self.of.retain(|_, grant| std::mem::take(&mut grant.is_new));
            self.left = self.of.len();
        }
        self.of.insert(*claim, Grant { token, ttl: *ttl, is_new: true });
    }

    /// The next beat is asked like any other.
    pub fn forget(&mut self, Beat { subject, .. }: &Beat) {
        if let Subject::Claim { claim, .. } = subject {
            self.forget_claim(*claim);
        }
    }

    /// It is claimed anew: the grant may be another one.
    pub fn forget_claim(&mut self, claim: ClaimId) {
        self.of.remove(&claim);
    }
}

/// Adds a group of steady beats of one kind and ttl to a call.
pub(super) fn add<'a>(
    call: Invocation,
    layout: &Layout,
    ttl: Duration,
    group: impl ExactSizeIterator<Item = (ClaimId, &'a Resource)> + Clone,
) -> Invocation {
    let Some(kind) = group.clone().next().map(|(_, resource)| resource.kind) else { return call };
    let record = |(claim, resource): (ClaimId, &Resource)| {
        layout.claim(&resource.tenant, &hyphenated(claim.0))
    };
    let main = |(_, resource): (ClaimId, &'a Resource)| layout.main(resource);
    let call = call.arg(kind).arg(millis(ttl).max(1)).arg(group.len());
    if kind == Kind::Semaphore {
        let max =
            |(_, of): (_, &Resource)| layout.semaphore(&of.tenant, SemaphoreKey::Max, &of.name);
        call.args(group.clone().map(max))
            .args(group.clone().map(record))
            .args(group.clone().map(main))
            .args(group.map(|(claim, _)| member(claim)))
    } else {
        call.args(group.clone().map(main))
            .args(group.clone().map(record))
            .args(group.map(|(claim, _)| hyphenated(claim.0)))
    }
}
