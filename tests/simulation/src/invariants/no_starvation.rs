//! I4: no waiter starves on a free resource, or on one that it was granted and has not heard of, once faults have
//! stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::model::{ClaimId, Resource};

use super::super::time::TrueTime;
use super::Verdict;

/// A store grants again so long after the trouble: the longest distance between two tries, and some work.
const RECOVERY_MAX: Duration = Duration::from_millis(12_500);

/// Since when each resource has been free while somebody waited for it.
#[derive(Default)]
pub(crate) struct NoStarvation {
    since: BTreeMap<Resource, TrueTime>,
    /// Since when each waiter has been granted what it waits for.
    granted: BTreeMap<ClaimId, TrueTime>,
    /// Since when a store has granted nothing for want of a disk.
    mute: Option<TrueTime>,
    /// When its agent was last seen to stand still.
    stood_still: Option<TrueTime>,
}

impl NoStarvation {
    /// A look at a resource: whether it is free, and who waits for it.
    pub(crate) fn looked(
        &mut self,
        now: TrueTime,
        resource: &Resource,
        free: bool,
        waiting: &[String],
        patience: Duration,
    ) -> Verdict {
        if !free || waiting.is_empty() {
            self.since.remove(resource);
            return Ok(());
        }
        let since = *self.since.entry(resource.clone()).or_insert(now);
        if now.since(since) <= patience {
            return Ok(());
        }
        Err(format!(
            "{resource} has been free for {:?} while {} waited for it",
            now.since(since),
            waiting.join(", ")
        ))
    }

    /// A look at those who still wait for what they have been granted.
    pub(crate) fn untold(
        &mut self,
        now: TrueTime,
        granted: &BTreeSet<ClaimId>,
        patience: Duration,
    ) -> Verdict {
        self.granted.retain(|claim, _| granted.contains(claim));
        for claim in granted {
            let since = *self.granted.entry(*claim).or_insert(now);
            if now.since(since) > patience {
                let late = now.since(since);
                return Err(format!("{claim} was granted {late:?} ago, and its agent waits on"));
            }
        }
        Ok(())
    }

    /// The agent of a store cannot try again now; when it goes on, the distance between two tries is what it was.
    pub(crate) fn stood_still(&mut self, now: TrueTime) {
        self.stood_still = Some(now);
    }

    /// A look at a store: why it grants nothing, and since when its disks are well. It tries again at growing
    /// distances, which may have grown before it had to grant nothing.
    pub(crate) fn store(
        &mut self,
        now: TrueTime,
        mute: Option<&str>,
        well_since: Option<TrueTime>,
    ) -> Verdict {
        let Some(cause) = mute else {
            self.mute = None;
            return Ok(());
        };
        let since = *self.mute.get_or_insert(now);
        let Some(well_since) = well_since else { return Ok(()) };
        let well_since = well_since.max(since).max(self.stood_still.unwrap_or(since));
        if now.since(well_since) <= RECOVERY_MAX {
            return Ok(());
        }
        Err(format!(
            "nothing is granted {:?} after the disk was well: {cause}",
            now.since(well_since)
        ))
    }

    /// A program has waited for an answer that does not depend on anybody else.
    pub(crate) fn answered_late(&self, what: &str, asked: TrueTime, now: TrueTime) -> Verdict {
        Err(format!("{what} was asked at {asked:?} and is not answered at {now:?}"))
    }
}
