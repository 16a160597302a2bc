//! Holders and waiters of a resource.

use tenure_wire::Kind;

use super::{Engine, Occupation};
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
        let entry = |id: &ClaimId| -> Option<StandingEntry> {
            self.claims.get(id).map(|tracked| tracked.standing(now))
        };
        let mut standing = match self.resources.get(resource) {
            None => UpstreamStanding::default(),
            Some(Occupation::Exclusive(id)) => {
                let holders: Vec<_> = entry(id).into_iter().collect();
                UpstreamStanding { holding: holders.len() as u64, holders, ..Default::default() }
            }
            Some(Occupation::Semaphore(semaphore)) => UpstreamStanding {
                limit: Some(semaphore.limit),
                holders: semaphore.holders.values().take(listed).filter_map(entry).collect(),
                holding: semaphore.holders.len() as u64,
                waiters: semaphore
                    .queue
                    .iter()
                    .take(listed)
                    .filter_map(|(_, id)| entry(&id))
                    .collect(),
                waiting: semaphore.queue.len() as u64,
                ..Default::default()
            },
        };
        if resource.kind == Kind::Master {
            let project = (resource.tenant.clone(), resource.name.clone());
            standing.sessions = self.sessions.names(&project, listed);
            standing.members = self.sessions.count(&project);
        }
        standing
    }
}
