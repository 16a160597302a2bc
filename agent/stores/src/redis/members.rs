//! Pure. Names of large projects' sessions, so that not every change of a project makes every agent read
//! them again: what most want to know is who its master is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{Resource, STANDING_LISTED_MAX, UpstreamStanding};
use tenure_core::time::Boottime;

/// Names are read again when they are so old …
const KEPT: Duration = Duration::from_secs(30);
/// … or older by as much as this, differently by agent.
const SPREAD_MS: u64 = 30_000;
/// Projects whose names are kept.
const PROJECTS_MAX: usize = 1000;

/// Names of sessions, by the master of their project.
#[derive(Debug)]
pub(super) struct Members {
    kept: Duration,
    names: HashMap<Resource, (Boottime, Vec<Arc<str>>)>,
}

impl Members {
    /// `seed` differs between agents.
    pub(super) fn new(seed: u64) -> Members {
        Members { kept: KEPT + Duration::from_millis(seed % SPREAD_MS), names: HashMap::new() }
    }

    pub(super) fn names(&self, now: Boottime, master: &Resource) -> Option<Vec<Arc<str>>> {
        let (read_at, names) = self.names.get(master)?;
        (now.since(*read_at) < self.kept).then(|| names.clone())
    }

    /// A standing was read, with names that were read now or kept.
    pub(super) fn seen(&mut self, now: Boottime, master: &Resource, standing: &UpstreamStanding) {
        if standing.members <= STANDING_LISTED_MAX as u64 {
            self.names.remove(master);
        } else if self.names(now, master).is_none() {
            let kept = self.kept;
            if self.names.len() >= PROJECTS_MAX {
                self.names.retain(|_, (read_at, _)| now.since(*read_at) < kept);
            }
            if self.names.len() < PROJECTS_MAX {
                self.names.insert(master.clone(), (now, standing.sessions.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_wire::Kind;

    use super::*;

    #[test]
    fn names_of_large_projects_are_kept_for_a_while() {
        let now = Boottime::from_nanos(1_000_000_000_000);
        let master = Resource { tenant: "t".into(), kind: Kind::Master, name: "p".into() };
        let standing = |members, name: &str| UpstreamStanding {
            members,
            sessions: vec![name.into()],
            ..UpstreamStanding::default()
        };
        let mut members = Members::new(0);
        members.seen(now, &master, &standing(100, "small"));
        assert_eq!(members.names(now, &master), None);
        members.seen(now, &master, &standing(101, "first"));
        members.seen(now, &master, &standing(102, "first"));
        assert_eq!(members.names(now, &master), Some(vec!["first".into()]));
        let later = now + KEPT;
        assert_eq!(members.names(later, &master), None);
        members.seen(later, &master, &standing(102, "second"));
        assert_eq!(members.names(later, &master), Some(vec!["second".into()]));
        members.seen(later, &master, &standing(3, "small"));
        assert_eq!(members.names(later, &master), None);
    }
}
