//! The members of the cluster.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::{ChangeMembers, Instant as _};
use tenure_core::engine::EngineSettings;
use tenure_stores::Nodes;
use tracing::{debug, info, warn};
use uuid::Uuid;

use super::{ANSWER_MAX, Node};
use crate::clock::ClusterTime;
use crate::host::Alarm;
use crate::machine::{Digest, Founding, Operation, Outcome, Restored};
use crate::raft::Member;

/// A leader that has heard no majority for so long, or that this node has not heard, leads as far as anybody knows no
/// more: openraft names it until it votes for another one.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// The time between two looks at who leads, and who is silent.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A cluster as one node knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub cluster: Option<Uuid>,
    pub leader: Option<u64>,
    /// Nodes that vote, with their addresses.
    pub voters: BTreeMap<u64, String>,
    /// The index of the latest entry that this node has applied.
    pub applied: u64,
    pub digest: Digest,
    /// The version of the machine's rules by which it goes.
    pub version: Option<u32>,
}

impl Node {
    /// Founds a cluster of this node alone, once; it may go on from a backup, which was taken at that instant of its cluster. The
    /// node leads when this is done.
    ///
    /// # Errors
    ///
    /// When it belongs to a cluster already.
    pub async fn found(
        &self,
        address: String,
        token_floor: u64,
        settings: EngineSettings,
        restored: Option<(ClusterTime, Restored)>,
    ) -> io::Result<Uuid> {
        let _only = self.0.office.founding.lock().await;
        // In the log of a cluster that runs, a backup would go to all its nodes.
        if !(self.view().voters.is_empty() || self.has_half_begun()) {
            return Err(io::Error::other("there is a cluster already, and this node is of it"));
        }
        let restored = restored.map(|(stamp, restored)| {
            self.0.machine.hear(stamp);
            restored
        });
        // A founding that broke off before its first entry is gone on with.
        if !self.0.raft.is_initialized().await.map_err(io::Error::other)? {
            let members = BTreeMap::from([(self.0.id, Member { address })]);
            self.0.raft.initialize(members).await.map_err(io::Error::other)?;
        }
        let cluster = Uuid::from_u128(random()?);
        // A backup goes on by the rules by which it was made.
        let known = self.0.machine.look(|machine, _| machine.known());
        let version = restored.as_ref().map_or(known, |restored| restored.image.version());
        let founding = Founding { cluster, token_floor, settings, version, restored };
        let operation = Operation::Found(Box::new(founding));
        let wait = self.0.raft.wait(Some(ANSWER_MAX));
        wait.current_leader(self.0.id, "founded").await.map_err(io::Error::other)?;
        match self.propose(operation).await.map_err(io::Error::other)?.0 {
            Outcome::Done => Ok(cluster),
            Outcome::Refused | Outcome::Answer(_) | Outcome::Keys(_) => {
                Err(io::Error::other("there is a cluster already"))
            }
        }
    }

    /// All nodes of the cluster, with their addresses: those that vote, and those that do not yet.
    pub fn members(&self) -> BTreeMap<u64, String> {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        members.nodes().map(|(id, member)| (*id, member.address.clone())).collect()
    }

    /// True while two sets of voters must agree: a change of members is under way, or its leader died over it.
    fn is_between_members(&self) -> bool {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let sets = metrics.membership_config.membership().get_joint_config().len();
        metrics.current_leader == Some(self.0.id) && sets > 1
    }

    /// The cluster as this node knows it.
    pub fn view(&self) -> View {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        let voters = members.voter_ids().map(|id| {
            let address = members.get_node(&id).map_or_else(String::new, |it| it.address.clone());
            (id, address)
        });
        let is_in_touch = |leader: &u64| match *leader == self.0.id {
            // It needs nobody else.
            true if members.voter_ids().count() == 1 => true,
            true => metrics.last_quorum_acked.is_some_and(|at| at.elapsed() < SILENCE_MAX),
            false => self.silence() < SILENCE_MAX && !self.is_alone(*leader),
        };
        let (applied, digest) = self.0.machine.digest();
        let (cluster, version) =
            self.0.machine.look(|machine, _| (machine.cluster(), machine.version()));
        let leader = metrics.current_leader.filter(is_in_touch).filter(|_| self.halted().is_none());
        View { cluster, leader, voters: voters.collect(), applied, digest, version }
    }

    /// The reason for which a node has not taken its image, where this node leads.
    pub(crate) fn undelivered(&self, id: u64) -> Option<String> {
        self.0.ways.deliveries().cause(id)
    }

    /// The nodes, in numbers.
    pub fn nodes(&self) -> Nodes {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let voters = metrics.membership_config.membership().voter_ids().count();
        // A leader without a majority does not count: operators count leaders to see whether the cluster serves.
        let leads = self.view().leader == Some(self.0.id);
        let applied = metrics.last_applied.map_or(0, |id| id.index);
        let silent = self.silent().len();
        let kept = metrics.replication.filter(|_| leads).unwrap_or_default();
        let slowest = kept.into_values().map(|id| id.map_or(0, |id| id.index)).min();
        let behind = slowest.map_or(0, |slowest| applied.saturating_sub(slowest));
        let (bytes, bytes_max) = self.bytes();
        Nodes { leads, voters, silent, behind, applied, bytes, bytes_max }
    }

    /// The other voter that answers and has most of the log, where this node leads.
    pub(super) fn successor(&self) -> Option<u64> {
        let (silent, voters) = (self.silent(), self.view().voters);
        let replication = self.0.raft.metrics().borrow_watched().replication.clone()?;
        let others = replication.into_iter().filter(|(id, _)| {
            *id != self.id() && voters.contains_key(id) && !silent.contains_key(id)
        });
        others.max_by_key(|(_, matched)| matched.map(|id| id.index)).map(|(id, _)| id)
    }

    /// Nodes that have not answered this one for a while, with their addresses; none if it does not lead.
    fn silent(&self) -> BTreeMap<u64, String> {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        if metrics.current_leader != Some(self.0.id) || self.halted().is_some() {
            return BTreeMap::new();
        }
        let heard = metrics.heartbeat.unwrap_or_default().into_iter();
        let silent = heard
            .filter(|(id, at)| *id != self.0.id && at.is_none_or(|at| at.elapsed() >= SILENCE_MAX));
        let members = metrics.membership_config.membership();
        let address = |id| members.get_node(&id).map_or_else(String::new, |it| it.address.clone());
        silent.map(|(id, _)| (id, address(id))).collect()
    }

    /// Tells the log who leads, and while this node does, who goes silent and who is back. A leader ends what the one before it
    /// left half done.
    pub(super) async fn look_after_members(self, mut timer: Box<dyn Alarm>) {
        let (mut led, mut away) = (None, BTreeMap::new());
        let mut was_between = false;
        loop {
            timer.set(Some((self.0.clock)() + LOOK_EVERY));
            poll_fn(|context| timer.poll_fired(context)).await;
            self.look_at_leader().await;
            self.raise_version().await;
            self.look_at_room().await;
            // One that is under way is over sooner. It ends in the same way twice.
            if std::mem::replace(&mut was_between, self.is_between_members())
                && was_between
                && let Err(error) = self.change(ChangeMembers::AddVoterIds([].into())).await
            {
                debug!(%error, "the change of members is not over");
            }
            let (leader, silent) = (self.view().leader, self.silent());
            if let Some(leader) = leader.filter(|leader| led.replace(*leader) != Some(*leader)) {
                info!("node {leader:x} leads the cluster");
            }
            for (id, address) in silent.iter().filter(|(id, _)| !away.contains_key(*id)) {
                warn!("node {id:x} at {address} does not answer");
            }
            // Another leader tells of them.
            let back = away
                .iter()
                .filter(|(id, _)| leader == Some(self.0.id) && !silent.contains_key(*id));
            for (id, address) in back {
                info!("node {id:x} at {address} answers again");
            }
            away = silent;
        }
    }

    /// The reason that is given where nobody leads.
    pub(crate) fn leaderless(&self) -> String {
        if let Some(cause) = self.halted() {
            return cause;
        }
        let (voters, members) = (self.view().voters.len(), self.members());
        if !members.is_empty() && !members.contains_key(&self.id()) {
            return "this node was taken out of its cluster: ask another one, or have one add it again with \
                    `tenured-gateway cluster add`"
                .to_owned();
        }
        if voters == 0 {
            return "this node belongs to no cluster: begin one with `tenured-gateway cluster init`, or have a node of \
                    one add it with `tenured-gateway cluster add`"
                .to_owned();
        }
        let quorum = voters / 2 + 1;
        format!("no node of the cluster leads: {quorum} of its {voters} must reach each other")
    }
}

fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::TRY_AGAIN;
    use super::super::halt::tests::start;
    use super::*;
    use crate::backup::Backup;
    use crate::control::Control;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_restore_that_is_refused_leaves_the_time_of_the_cluster_alone() {
        let folder = TempDir::new().unwrap();
        let node = start(folder.path()).await.unwrap();
        let address = node.0.address.clone();
        node.found(address.clone(), 1_000, EngineSettings::default(), None).await.unwrap();
        let image = node.0.machine.look(|machine, _| machine.freeze()).unwrap();
        let days = Duration::from_secs(100 * 24 * 3600);
        let stamp = ClusterTime::default().after(days);
        let restored = Some((stamp, Restored { image, quarantine: Duration::ZERO }));
        let refused = node.found(address, 1_000, EngineSettings::default(), restored).await;
        assert!(refused.unwrap_err().to_string().contains("already"));
        node.propose(Operation::Tick).await.unwrap();
        assert!(node.0.machine.look(|_, at| at) < stamp);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_without_a_leader_names_numbers_that_it_knows() {
        let folder = TempDir::new().unwrap();
        let node = start(folder.path()).await.unwrap();
        let alone = node.leaderless();
        assert!(alone.starts_with("this node belongs to no cluster: begin one with"), "{alone}");
        let address = node.0.address.clone();
        node.found(address, 1_000, EngineSettings::default(), None).await.unwrap();
        let known = "no node of the cluster leads: 1 of its 1 must reach each other";
        until(|| node.leaderless() == known).await;
    }

    /// So many nodes that are one cluster; the first of them leads.
    async fn cluster_of(folders: &[TempDir]) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        for folder in folders {
            let node = start(folder.path()).await.unwrap();
            let address = node.0.address.clone();
            match nodes.first() {
                None => {
                    let settings = EngineSettings::default();
                    node.found(address, 1_000, settings, None).await.unwrap();
                }
                Some(first) => first.add(node.id(), address).await.unwrap(),
            }
            nodes.push(node);
        }
        nodes
    }

    async fn until(what: impl Fn() -> bool) {
        while !what() {
            let _ = tokio::time::timeout(TRY_AGAIN, std::future::pending::<()>()).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_that_ends_chooses_a_successor_that_answers() {
        let folders = [(); 3].map(|()| TempDir::new().unwrap());
        let nodes = cluster_of(&folders).await;
        let [first, second, third] = &nodes[..] else { panic!("there are three") };
        // Whoever has most of the log is the last of its equals.
        let chosen = first.successor().unwrap();
        let (gone, left) = if chosen == second.id() { (second, third) } else { (third, second) };
        gone.stop().await;
        until(|| first.successor() == Some(left.id())).await;
        left.stop().await;
        until(|| first.successor().is_none()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_that_reaches_no_majority_is_nobodys_leader() {
        let folders = [(); 4].map(|()| TempDir::new().unwrap());
        let nodes = cluster_of(&folders).await;
        let [first, second, third, fourth] = &nodes[..] else { panic!("there are four") };
        until(|| second.view().leader == Some(first.id())).await;
        third.stop().await;
        fourth.stop().await;
        // It goes on telling the one that it reaches that it leads.
        until(|| second.view().leader.is_none() && second.leader() == Some(first.id())).await;
        assert!(second.silence() < SILENCE_MAX);
        // A leader without a majority does not count as a leader.
        until(|| !first.nodes().leads).await;
        assert_eq!(first.leader(), Some(first.id()), "it has not noticed");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_restored_cluster_gives_others_an_image_and_no_entry_of_any_size() {
        let folders = [(); 3].map(|()| TempDir::new().unwrap());
        let [old, new, other] = [0, 1, 2].map(|number| start(folders[number].path()));
        let (old, new, other) = (old.await.unwrap(), new.await.unwrap(), other.await.unwrap());
        let address = old.0.address.clone();
        old.found(address, 1_000, EngineSettings::default(), None).await.unwrap();
        let (image, stamp) = old.0.machine.look(|machine, at| (machine.freeze().unwrap(), at));
        let backup = Backup { taken_at_us: 1, stamp, image }.text().into_bytes();
        let restore = Control::Restore { quarantine: None };
        new.control(restore, backup).await.unwrap();
        let purged = |node: &Node| node.0.raft.metrics().borrow_watched().purged;
        assert!(purged(&new).is_some());
        let add = Control::add(other.0.address.clone());
        new.control(add, Vec::new()).await.unwrap();
        // It was given what is before its first entry.
        until(|| purged(&other).is_some()).await;
        let cluster = |node: &Node| node.view().cluster.unwrap();
        assert_eq!(cluster(&new), cluster(&other));
        assert_ne!(cluster(&new), cluster(&old));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_ends_a_change_of_members_that_was_left_half_done() {
        let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
        let first = start(folders[0].path()).await.unwrap();
        let other = start(folders[1].path()).await.unwrap();
        let (address, floor) = (first.0.address.clone(), 1_000);
        first.found(address, floor, EngineSettings::default(), None).await.unwrap();
        let member = Member { address: other.0.address.clone() };
        first.0.raft.add_learner(other.id(), member, true).await.unwrap();
        // Whoever asks for it goes after the first half.
        let changing = first.clone();
        let id = other.id();
        let change =
            tokio::spawn(
                async move { changing.change(ChangeMembers::AddVoterIds([id].into())).await },
            );
        let mut metrics = first.0.raft.metrics();
        let is_between =
            metrics.wait_until(|it| it.membership_config.membership().get_joint_config().len() > 1);
        is_between.await.unwrap();
        change.abort();
        let is_over = metrics
            .wait_until(|it| it.membership_config.membership().get_joint_config().len() == 1);
        is_over.await.unwrap();
        assert_eq!(first.view().voters.len(), 2);
    }
}
