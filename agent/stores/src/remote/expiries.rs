//! Pure. Expiry deadlines of resources that were inspected.

use std::collections::{BTreeSet, HashMap};

use tenure_core::model::Resource;
use tenure_core::time::Boottime;

/// One deadline for each resource: the latest that was learned.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    due: BTreeSet<(Boottime, Resource)>,
    at: HashMap<Resource, Boottime>,
}

impl Expiries {
    pub(super) fn set(&mut self, resource: &Resource, at: Boottime) {
        if let Some(before) = self.at.insert(resource.clone(), at) {
            self.due.remove(&(before, resource.clone()));
        }
        self.due.insert((at, resource.clone()));
    }

    pub(super) fn next(&self) -> Option<Boottime> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Boottime) -> Option<Resource> {
        if self.next()? > now {
            return None;
        }
        let (_, resource) = self.due.pop_first()?;
        self.at.remove(&resource);
        Some(resource)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_wire::Kind;

    use super::*;

    #[test]
    fn the_latest_instant_of_a_resource_counts() {
        let now = Boottime::from_nanos(1_000_000_000_000);
        let later = now + Duration::from_secs(1);
        let resource = Resource { tenant: "t".into(), kind: Kind::Leader, name: "n".into() };
        let mut expiries = Expiries::default();
        expiries.set(&resource, now);
        expiries.set(&resource, later);
        assert_eq!((expiries.next(), expiries.pop_due(now)), (Some(later), None));
        assert_eq!(expiries.pop_due(later), Some(resource));
        assert_eq!((expiries.next(), expiries.at.len()), (None, 0));
    }
}
