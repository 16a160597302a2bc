//! The readiness of a node for requests: it votes in a cluster, and has applied the entries of that cluster.

use std::sync::atomic::{AtomicBool, Ordering};

use openraft::async_runtime::watch::WatchReceiver as _;
use tokio::sync::watch;

use super::{Node, UNFOUNDED};
use crate::net::Question;

/// Committed entries by which a node may be behind while it keeps up.
const BEHIND_MAX: u64 = 1000;

/// The facts that decide whether a node serves.
#[derive(Default)]
pub(super) struct Service {
    /// The reason for which the node serves no requests any more.
    pub(super) halted: watch::Sender<Option<String>>,
    /// True once the node has applied every entry that its cluster had after the start.
    has_caught_up: AtomicBool,
}

impl Node {
    /// Waits until this node has applied every entry that the cluster had after the node's start.
    pub(crate) async fn catch_up(self) {
        while self.halted().is_none() {
            // Each of these calls waits for a leader.
            if self.question(Question::Latest).await.is_ok() {
                self.0.service.has_caught_up.store(true, Ordering::Release);
                return;
            }
        }
    }

    /// The reason for which no requests should be sent to this node yet. A majority that is lost later is no such
    /// reason: clients then see the gateway's refusals, which balancers would hide.
    pub(crate) fn unready(&self) -> Option<String> {
        if let Some(cause) = self.halted() {
            return Some(cause);
        }
        let (view, members) = (self.view(), self.members());
        if !members.is_empty() && !members.contains_key(&self.id()) {
            return Some(self.leaderless());
        }
        if members.is_empty() {
            return Some(UNFOUNDED.to_owned());
        }
        if !view.voters.contains_key(&self.id()) {
            return Some(
                "this node does not vote in its cluster yet: it is being added".to_owned(),
            );
        }
        if !self.0.service.has_caught_up.load(Ordering::Acquire) {
            let wait = match view.leader {
                Some(leader) => format!("node {leader:x} leads, and gives it what it lacks"),
                None => self.leaderless(),
            };
            return Some(format!(
                "this node has not caught up with its cluster since it started: {wait}"
            ));
        }
        // Not those of a leader whose majority is gone, which its disk cannot help.
        let metrics = self.0.raft.metrics();
        let committed =
            metrics.borrow_watched().local_committed.as_ref().map_or(0, |last| last.index);
        let behind = committed.saturating_sub(view.applied);
        (behind > BEHIND_MAX).then(|| {
            format!("this node is {behind} committed entries behind, {BEHIND_MAX} at most are well: look at its disk")
        })
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tenure_core::engine::EngineSettings;

    use super::super::halt::tests::start;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_is_ready_once_it_votes_and_has_caught_up() {
        let folder = TempDir::new().unwrap();
        let node = start(folder.path()).await.unwrap();
        assert!(node.unready().unwrap().contains("no cluster yet"));
        let address = node.0.address.clone();
        node.found(address, 1_000, EngineSettings::default(), None).await.unwrap();
        assert!(node.unready().unwrap().contains("has not caught up"));
        node.clone().catch_up().await;
        assert_eq!(node.unready(), None);
    }
}
