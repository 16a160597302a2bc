//! I4: no waiter starves on a free resource, once faults have stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use tenured::model::Resource;

use super::super::time::TrueTime;
use super::Verdict;

/// Since when each resource has been free while somebody waited for it.
#[derive(Default)]
pub(crate) struct NoStarvation {
    since: BTreeMap<Resource, TrueTime>,
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

    /// A program has waited for an answer that does not depend on anybody else.
    pub(crate) fn answered_late(&self, what: &str, asked: TrueTime, now: TrueTime) -> Verdict {
        Err(format!("{what} was asked at {asked:?} and is not answered at {now:?}"))
    }
}
