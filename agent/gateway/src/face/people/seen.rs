//! What people saw last of resources: what a shared store calls a change is one for them if it shows.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::{Resource, StandingEntry, UpstreamStanding};
use tenure_core::time::Boottime;
use tenure_host::clock;

/// Nobody looks at a resource any more when the last look was so long ago.
const LOOKED_WITHIN: Duration = Duration::from_secs(30);
/// Resources that are remembered; of more no changes are told until some are forgotten.
const SEEN_MAX: usize = 10_000;

/// What was seen, as a hash, and when.
#[derive(Debug, Default)]
pub(in crate::face) struct Seen(Mutex<HashMap<Resource, (u64, Boottime)>>);

impl Seen {
    /// Somebody is shown a resource.
    pub(super) fn note(&self, resource: &Resource, standing: &UpstreamStanding) {
        let now = clock::now();
        let mut seen = self.seen();
        if seen.len() >= SEEN_MAX {
            seen.retain(|_, (_, at)| now.since(*at) < LOOKED_WITHIN);
        }
        if seen.len() < SEEN_MAX || seen.contains_key(resource) {
            seen.insert(resource.clone(), (hash(standing), now));
        }
    }

    /// True if somebody looked at it not long ago.
    pub(in crate::face) fn is_looked_at(&self, resource: &Resource) -> bool {
        let now = clock::now();
        self.seen().get(resource).is_some_and(|(_, at)| now.since(*at) < LOOKED_WITHIN)
    }

    /// True if it is not as it was seen; it is remembered as it is now.
    pub(in crate::face) fn differs(
        &self,
        resource: &Resource,
        standing: &UpstreamStanding,
    ) -> bool {
        let hash = hash(standing);
        let mut seen = self.seen();
        seen.get_mut(resource).is_some_and(|(was, _)| std::mem::replace(was, hash) != hash)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Resource, (u64, Boottime)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of what a renewal leaves as it is: who, with which token, and how many.
fn hash(standing: &UpstreamStanding) -> u64 {
    let of = |entries: &[StandingEntry]| -> Vec<_> {
        entries.iter().map(|it| (it.owner.session.0, it.token)).collect()
    };
    let mut hasher = DefaultHasher::new();
    (standing.limit, standing.holding, standing.waiting, standing.members).hash(&mut hasher);
    (of(&standing.holders), of(&standing.waiters)).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use tenure_wire::Kind;

    use super::*;

    #[test]
    fn a_renewal_is_no_change_and_a_waiter_is() {
        let seen = Seen::default();
        let resource = Resource { tenant: "t".into(), kind: Kind::Leader, name: "n".into() };
        let held = UpstreamStanding { holding: 1, ..UpstreamStanding::default() };
        assert!(!seen.is_looked_at(&resource) && !seen.differs(&resource, &held));
        seen.note(&resource, &held);
        let renewed = UpstreamStanding { runs_out: Some(Duration::from_secs(30)), ..held.clone() };
        assert!(seen.is_looked_at(&resource) && !seen.differs(&resource, &renewed));
        let waited_for = UpstreamStanding { waiting: 1, ..held };
        assert!(seen.differs(&resource, &waited_for));
        assert!(!seen.differs(&resource, &waited_for), "it was told");
    }
}
