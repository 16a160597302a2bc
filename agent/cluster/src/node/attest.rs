//! Nodes compare what they have become. One that is unlike the majority stops: it would answer otherwise.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tracing::warn;
use uuid::Uuid;

use super::Node;
use crate::host::Alarm;
use crate::machine::{Digest, first_version};
use crate::net::{Ask, Tell};

/// The time between two comparisons.
const EVERY: Duration = Duration::from_secs(60);
/// The time for an answer of a fellow.
const PATIENCE: Duration = Duration::from_secs(1);

/// A node's word about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attested {
    pub cluster: Option<Uuid>,
    /// The index of the latest entry that it has applied.
    pub applied: u64,
    /// Its fingerprint after the entry that was asked about, if it remembers it.
    pub digest: Option<Digest>,
    /// The version of the machine's rules that its program knows.
    #[serde(default = "first_version")]
    pub known: u32,
    /// It leads, as far as it knows, and reaches no majority.
    #[serde(default)]
    pub leads_nobody: bool,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Alike,
    /// Too few answered.
    Unsure,
    /// Some differ, and none of two sides is a majority.
    Split,
    /// A majority is unlike this node.
    Alone,
}

/// PURE. Compares this node's fingerprint with those of its fellows, of `voters` in all.
fn compare(own: Digest, others: &[Digest], voters: usize) -> Verdict {
    let mut sides: BTreeMap<u64, usize> = BTreeMap::from([(own.0, 1)]);
    for other in others {
        *sides.entry(other.0).or_default() += 1;
    }
    let majority = voters / 2 + 1;
    match sides.iter().find(|(_, count)| **count >= majority) {
        Some((side, _)) if *side != own.0 => Verdict::Alone,
        _ if sides.len() > 1 => Verdict::Split,
        Some(_) => Verdict::Alike,
        None => Verdict::Unsure,
    }
}

/// PURE. The latest entry that a majority of the voters has applied; `None` if fewer have said.
fn applied_by_majority(applied: impl IntoIterator<Item = u64>, voters: usize) -> Option<u64> {
    let mut applied: Vec<_> = applied.into_iter().collect();
    applied.sort_unstable_by(|a, b| b.cmp(a));
    applied.get(voters / 2).copied()
}

impl Node {
    /// This node's word, for another one that asks about an entry.
    pub(crate) fn attest(&self, index: u64) -> Attested {
        let (applied, _) = self.0.machine.digest();
        let leads_nobody =
            self.leader() == Some(self.id()) && self.view().leader != Some(self.id());
        let (cluster, known) =
            self.0.machine.look(|machine, _| (machine.cluster(), machine.known()));
        Attested { cluster, applied, digest: self.0.machine.digest_at(index), known, leads_nobody }
    }

    /// The words of all other members about an entry; `None` of those that do not answer.
    pub async fn ask_others(&self, index: u64) -> BTreeMap<u64, Option<Attested>> {
        let others = self.members().into_iter().filter(|(id, _)| *id != self.id());
        let asked = others.map(|(id, address)| async move {
            let link = self.link(id, &address);
            let asking = link.ask(Ask::Attest { index }, Bytes::new());
            let told = match tokio::time::timeout(PATIENCE, asking).await {
                Ok(Ok(Tell::Attested(attested))) => Some(attested),
                _ => None,
            };
            (id, told)
        });
        futures_util::future::join_all(asked).await.into_iter().collect()
    }

    /// Compares this node with the other voters, as of the latest entry that it and a majority have applied: one that is far
    /// behind keeps nobody from it.
    pub async fn compare(&self) -> Verdict {
        let voters = self.view().voters;
        let (own, _) = self.0.machine.digest();
        let told = self.ask_voters(&voters, own).await;
        let applied = told.into_iter().map(|it| it.applied).chain([own]);
        let Some(index) = applied_by_majority(applied, voters.len()) else {
            return Verdict::Unsure;
        };
        let index = index.min(own);
        let Some(own) = self.0.machine.digest_at(index) else { return Verdict::Unsure };
        let told = self.ask_voters(&voters, index).await;
        let digests: Vec<_> = told.into_iter().filter_map(|it| it.digest).collect();
        compare(own, &digests, voters.len())
    }

    /// The words of those other voters that answer.
    async fn ask_voters(&self, voters: &BTreeMap<u64, String>, index: u64) -> Vec<Attested> {
        let told = self.ask_others(index).await.into_iter();
        told.filter(|(id, _)| voters.contains_key(id)).filter_map(|(_, told)| told).collect()
    }

    /// Stops for good: a node that differs would differ again.
    async fn condemn(&self) {
        let cause = "this node differs from the majority of its cluster, which must never happen: it serves nobody any \
                     more. Keep a copy of its folder and report this; take the node out, wipe the folder, and add it as a \
                     new node";
        if let Err(error) = self.0.place.condemn(cause) {
            warn!(%error, "this node would serve again after a new start");
        }
        self.halt(cause).await;
    }

    /// Compares every minute, and stops the node where it is alone.
    pub(super) async fn compare_always(self, mut timer: Box<dyn Alarm>) {
        loop {
            timer.set(Some((self.0.clock)() + EVERY));
            poll_fn(|context| timer.poll_fired(context)).await;
            self.compare_once().await;
        }
    }

    async fn compare_once(&self) {
        match self.compare().await {
            Verdict::Alike | Verdict::Unsure => {}
            Verdict::Split => warn!("the nodes of the cluster differ, and no majority is alike"),
            Verdict::Alone => self.condemn().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tenure_core::engine::EngineSettings;
    use tenure_core::model::Request;

    use super::super::halt::tests::start;
    use super::*;
    use crate::clock::ClusterTime;
    use crate::machine::{Command, Operation};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_differs_serves_nobody_and_does_not_start_again() {
        let folder = TempDir::new().unwrap();
        let node = start(folder.path()).await.unwrap();
        node.condemn().await;
        assert!(node.until_halted().await.contains("differs"));
        drop(node);
        let refused = start(folder.path()).await.err().unwrap().to_string();
        for words in ["differs from the majority", "wipe the folder", "add it as a new node"] {
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_became_something_else_stops_and_the_others_go_on() {
        let folders = [(); 3].map(|()| TempDir::new().unwrap());
        let mut nodes = Vec::new();
        for folder in &folders {
            nodes.push(start(folder.path()).await.unwrap());
        }
        let [first, second, other] = &nodes[..] else { panic!("three") };
        let address = |node: &Node| node.0.address.clone();
        first.found(address(first), 1_000, EngineSettings::default(), None).await.unwrap();
        first.add(second.id(), address(second)).await.unwrap();
        first.add(other.id(), address(other)).await.unwrap();
        for node in &nodes {
            node.compare_once().await;
            assert_eq!(node.halted(), None);
        }
        // An entry that only this one has, as an error of its program would make of one that all have.
        let stray = Command { at: ClusterTime::default(), operation: Operation::Tick };
        other.0.machine.look(|machine, _| machine.apply(stray).unwrap());
        let tick = || async { drop(first.propose(Operation::Tick).await.unwrap()) };
        while other.compare().await != Verdict::Alone {
            tick().await;
        }
        for node in [first, second] {
            node.compare_once().await;
            assert_eq!(node.halted(), None);
        }
        other.compare_once().await;
        assert!(other.until_halted().await.contains("differs from the majority"));
        let refused = other.ask(Request::Renew(Vec::new())).await.unwrap_err();
        assert!(refused.cause().contains("serves nobody"), "{refused:?}");
        tick().await;
        assert_eq!(second.compare().await, Verdict::Alike);
    }

    #[test]
    fn one_that_is_far_behind_keeps_nobody_from_comparing() {
        assert_eq!(applied_by_majority([30, 1, 29], 3), Some(29));
        assert_eq!(applied_by_majority([30, 1], 3), Some(1));
        assert_eq!(applied_by_majority([30], 3), None);
        assert_eq!(applied_by_majority([7], 1), Some(7));
    }

    #[test]
    fn one_that_is_unlike_the_majority_is_alone() {
        let [a, b, c] = [Digest(1), Digest(2), Digest(3)];
        for (own, others, voters, expected) in [
            (a, &[][..], 1, Verdict::Alike),
            (a, &[a, a], 3, Verdict::Alike),
            (a, &[a], 3, Verdict::Alike),
            (a, &[], 3, Verdict::Unsure),
            (a, &[b], 3, Verdict::Split),
            (a, &[a, b], 3, Verdict::Split),
            (a, &[b, b], 3, Verdict::Alone),
            (a, &[b, c], 3, Verdict::Split),
            (a, &[b, b, a, a], 5, Verdict::Split),
            (a, &[b, b, b, a], 5, Verdict::Alone),
        ] {
            assert_eq!(compare(own, others, voters), expected, "{own:?} beside {others:?}");
        }
    }
}
