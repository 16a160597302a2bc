//! Holders and waiters of a resource.

use tenure_wire::Kind;

use super::Engine;
use crate::model::{ClaimId, Resource, STANDING_LISTED_MAX, StandingEntry, UpstreamStanding};
use crate::time::Boottime;

impl Engine {
    /// The first of those who hold and wait.
    pub fn inspect(&self, now: Boottime, resource: &Resource) -> UpstreamStanding {
        self.standing_of(now, resource, STANDING_LISTED_MAX)
    }

    /// Everybody who holds or waits.
    pub fn holders(&self, now: Boottime, resource: &Resource) -> UpstreamStanding {
        self.standing_of(now, resource, usize::MAX)
    }

    /// With at most so many entries of each list.
    fn standing_of(&self, now: Boottime, resource: &Resource, listed: usize) -> UpstreamStanding {
        let entry = |id: ClaimId| -> Option<StandingEntry> {
            self.claims.get(id).map(|tracked| tracked.standing(now))
        };
        let mut standing = UpstreamStanding::default();
        if let Some(occupation) = self.resources.get(resource) {
            let holders = occupation.holders.iter().take(listed);
            let waiters = occupation.queue.iter().take(listed);
            standing.limit = occupation.permits();
            standing.holders = holders.filter_map(|(_, id)| entry(id)).collect();
            standing.holding = occupation.holders.len() as u64;
            standing.waiters = waiters.filter_map(|(_, id)| entry(id)).collect();
            standing.waiting = occupation.queue.len() as u64;
            let first = occupation.holders.first().and_then(|id| self.claims.get(id));
            standing.lease =
                first.and_then(|tracked| tracked.lease_times(now, self.claims.notes_beats));
        }
        if resource.kind == Kind::Master {
            let project = (resource.tenant.clone(), resource.name.clone());
            standing.sessions = self.sessions.names(&project, listed);
            standing.members = self.sessions.count(&project);
        }
        standing
    }
}
