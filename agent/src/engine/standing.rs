//! Who holds a resource and who waits.

use tenure::wire::Kind;

use super::{Engine, Occupation};
use crate::host::clock::Boottime;
use crate::model::{ClaimId, Resource, StandingEntry, UpstreamStanding};

impl Engine {
    pub(super) fn inspect(&self, now: Boottime, resource: &Resource) -> UpstreamStanding {
        let entry = |id: &ClaimId| -> Option<StandingEntry> {
            self.claims.get(id).map(|tracked| tracked.standing(now))
        };
        let mut standing = match self.resources.get(resource) {
            None => UpstreamStanding::default(),
            Some(Occupation::Exclusive(id)) => {
                UpstreamStanding { holders: entry(id).into_iter().collect(), ..Default::default() }
            }
            Some(Occupation::Semaphore(semaphore)) => UpstreamStanding {
                limit: Some(semaphore.limit),
                holders: semaphore.holders.values().filter_map(entry).collect(),
                waiters: semaphore.queue.iter().filter_map(|(_, id)| entry(&id)).collect(),
                ..Default::default()
            },
        };
        if resource.kind == Kind::Master {
            standing.sessions = self.sessions.names(&resource.tenant, &resource.name);
        }
        standing
    }
}
