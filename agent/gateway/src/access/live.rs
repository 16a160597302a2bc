//! A claim of a principal, as far as this gateway knows of it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{ClaimId, GoneReason, Owner, Resource, SessionId, Terms};
use tenure_core::time::Boottime;

use super::fact::{Event, Fact, outcome};
use super::past::Told;

#[derive(Debug)]
pub(super) struct Live {
    pub(super) stage: Stage,
    /// In the store.
    pub(super) bytes: usize,
    pub(super) resource: Resource,
    /// The name of its session; `None` if this gateway did not see the claim.
    pub(super) holder: Option<Arc<str>>,
    /// `None` if this gateway did not see the claim.
    pub(super) session: Option<SessionId>,
    /// For how long a store keeps it after its ttl.
    pub(super) grace: Duration,
    /// When a store forgets it, unless it is renewed.
    pub(super) until: Boottime,
    pub(super) told: Told,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The store has not answered.
    Asked {
        queues: bool,
    },
    Waiting,
    /// With this token.
    Held(u64),
}

/// Bytes of a record in a store, beside its texts.
pub(super) const RECORD_BYTES: usize = 256;

/// Without its owner where this gateway did not see the claim.
pub(super) fn bytes_of_claim(resource: &Resource, owner: Option<&Owner>) -> usize {
    let of_owner = owner.map_or(0, |owner| owner.host.len() + owner.name.len());
    RECORD_BYTES + resource.tenant.len() + resource.name.len() + of_owner
}

pub(super) fn grace(terms: &Terms) -> Duration {
    match terms {
        Terms::Lease { grace, .. } => *grace,
        Terms::Master { .. } | Terms::Leader | Terms::Semaphore { .. } => Duration::ZERO,
    }
}

impl Live {
    pub(super) fn may_wait(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Asked { queues: true })
    }

    pub(super) fn token(&self) -> Option<u64> {
        match self.stage {
            Stage::Held(token) => Some(token),
            Stage::Asked { .. } | Stage::Waiting => None,
        }
    }

    pub(super) fn loss(self, claim: ClaimId, reason: GoneReason) -> Fact {
        let event = match reason {
            GoneReason::Preempted => Event::Preemption,
            GoneReason::Released => Event::Release,
            _ => Event::Loss,
        };
        Fact {
            session: self.session,
            claim: Some(claim),
            token: self.token(),
            resource: Some(self.resource),
            holder: self.holder,
            ..Fact::new(event, outcome(reason))
        }
    }
}
