//! The time of the cluster, as this node gives it to entries while it leads.

use std::future::poll_fn;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver as _;
use tracing::debug;

use super::{Node, TRY_AGAIN};
use crate::clock::ClusterTime;
use crate::host::Alarm;
use crate::machine::Operation;

/// Time passes at least so often while anything runs out one day, so that nodes agree about it.
const TICK_MAX: Duration = Duration::from_secs(1);

impl Node {
    /// The instant of a new entry, while this node leads. It has applied the first one of its term before, and all that came
    /// before that: until then its clock may be ahead of the leader before it.
    pub(super) async fn stamp(&self) -> Option<ClusterTime> {
        let mut applied = self.0.applied.clone();
        loop {
            applied.mark_unchanged();
            let metrics = self.0.raft.metrics().borrow_watched().clone();
            if metrics.current_leader != Some(self.0.id) {
                return None;
            }
            if let Some(now) = self.0.machine.now_in(metrics.current_term) {
                return Some(now);
            }
            // It may lead no longer.
            let _ = tokio::time::timeout(TRY_AGAIN, applied.changed()).await;
        }
    }

    /// Lets time pass in the cluster while this node leads: what runs out ends by an entry, on all nodes alike.
    pub(super) async fn tick(self, mut timer: Box<dyn Alarm>) {
        let mut applied = self.0.applied.clone();
        let mut last = ClusterTime::default();
        loop {
            let mut metrics = self.0.raft.metrics();
            while metrics.borrow_watched().current_leader != Some(self.0.id) {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
            let now = (self.0.clock)();
            let (due, at) = self.0.machine.look(|machine, at| {
                (machine.poll_timeout().map(|due| due.min(last.after(TICK_MAX))), at)
            });
            if due.is_some_and(|due| due <= at) {
                last = at;
                if let Err(error) = self.propose(Operation::Tick).await {
                    debug!(%error, "time does not pass");
                    self.await_other(Some(self.0.id)).await;
                }
                continue;
            }
            timer.set(due.map(|due| now + due.since(at)));
            tokio::select! {
                biased;
                () = poll_fn(|context| timer.poll_fired(context)) => {}
                changed = applied.changed() => if changed.is_err() { return },
            }
        }
    }
}
