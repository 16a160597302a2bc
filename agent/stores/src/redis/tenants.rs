//! Pure. The tenants whose keys the feed tracks, beside the default one. The prefix of all tenants' keys
//! would tell of far more: of tokens, records and limits, and of each record's end.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_core::model::{Request, Resource, Subject};
use tenure_wire::DEFAULT_TENANT;

/// Tenants that are tracked one by one: the server compares every key that changes with every prefix. An
/// agent with more hears of all.
const TRACKED_MAX: usize = 16;

/// The tenants whose keys are tracked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tracked {
    /// These, and the default one.
    These(BTreeSet<Arc<str>>),
    All,
}

/// Tenants that this agent's programs use.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    /// The caretaker looks after semaphores of all tenants.
    is_caretaker: bool,
    used: BTreeSet<Arc<str>>,
    tracked: Option<Tracked>,
}

impl Tenants {
    /// This agent is the caretaker from now on, or no longer is.
    pub(super) fn appoint(&mut self, is_caretaker: bool) {
        self.is_caretaker = is_caretaker;
    }

    /// A call is about to be sent.
    pub(super) fn handle_request(&mut self, request: &Request) {
        match request {
            Request::Claim(claim) => self.meet(&claim.resource),
            Request::Inspect(resource) => self.meet(resource),
            Request::Renew(beats) => {
                for beat in beats {
                    if let Subject::Claim { resource, .. } = &beat.subject {
                        self.meet(resource);
                    }
                }
            }
            _ => {}
        }
    }

    fn meet(&mut self, Resource { tenant, .. }: &Resource) {
        if **tenant != *DEFAULT_TENANT
            && self.used.len() <= TRACKED_MAX
            && !self.used.contains(tenant)
        {
            self.used.insert(Arc::clone(tenant));
        }
    }

    /// The keys to be tracked.
    pub(super) fn wanted(&self) -> Tracked {
        if self.is_caretaker || self.used.len() > TRACKED_MAX {
            return Tracked::All;
        }
        Tracked::These(self.used.clone())
    }

    /// This is tracked from now on.
    pub(super) fn track(&mut self, tracked: Tracked) {
        self.tracked = Some(tracked);
    }

    /// True if something is to be tracked that is not.
    pub(super) fn lacks(&self) -> bool {
        match &self.tracked {
            None | Some(Tracked::All) => false,
            Some(Tracked::These(tracked)) => self.is_caretaker || !self.used.is_subset(tracked),
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_wire::Kind;

    use super::*;

    fn inspect(tenant: &str) -> Request {
        Request::Inspect(Resource { tenant: tenant.into(), kind: Kind::Leader, name: "x".into() })
    }

    #[test]
    fn tenants_are_tracked_one_by_one_unless_there_are_many() {
        let mut tenants = Tenants::default();
        tenants.handle_request(&inspect(DEFAULT_TENANT));
        assert_eq!(tenants.wanted(), Tracked::These(BTreeSet::new()));
        tenants.track(tenants.wanted());
        assert!(!tenants.lacks());
        tenants.appoint(true);
        assert!(tenants.lacks() && tenants.wanted() == Tracked::All);
        tenants.appoint(false);
        for number in 0..2 * TRACKED_MAX {
            tenants.handle_request(&inspect(&number.to_string()));
            assert_eq!(tenants.lacks(), number <= TRACKED_MAX, "{number}");
            tenants.track(tenants.wanted());
            assert_eq!(tenants.wanted() == Tracked::All, number >= TRACKED_MAX, "{number}");
        }
        tenants.track(Tracked::All);
        tenants.appoint(true);
        assert!(!tenants.lacks());
    }
}
