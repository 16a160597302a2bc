//! The members of the cluster.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{ChangeMembers, Instant as _};
use tenure_core::engine::EngineSettings;
use tenure_stores::Nodes;
use tracing::{debug, info, warn};
use uuid::Uuid;

use super::{ANSWER_MAX, Attested, Node};
use crate::clock::ClusterTime;
use crate::host::Alarm;
use crate::machine::{Digest, Founding, Operation, Outcome, Restored};
use crate::net::{Ask, Tell};
use crate::raft::Member;

/// A leader that has heard no majority for so long, or that this node has not heard, leads as far as anybody knows no
/// more: openraft names it until it votes for another one.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// The time in which a node that is added takes everything; its administrator waits a little longer.
const CATCH_UP_MAX: Duration = Duration::from_secs(590);
/// Entries that a node may lack when it begins to vote: the next ones wait for it.
const NEARLY: u64 = 1000;
/// A node that is silent for so long while it is given everything is not waited for.
const JOINING_SILENCE_MAX: Duration = Duration::from_secs(10);
/// The time for a change of members.
const CHANGE_MAX: Duration = Duration::from_secs(4);
/// The time between two looks at who leads, and who is silent.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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

    /// Has another node vote from now on. It is given everything first.
    ///
    /// # Errors
    ///
    /// When this node does not lead, the other cannot be reached, or it belongs to another cluster.
    pub async fn add(&self, id: u64, address: String) -> io::Result<()> {
        // openraft would try for ever, and not say why.
        let asking = self.link(id, &address);
        let asked = asking.ask(Ask::Attest { index: 0 }, Bytes::new());
        let told = tokio::time::timeout(ANSWER_MAX, asked).await?.map_err(io::Error::other)?;
        let Tell::Attested(Attested { cluster: other, known, .. }) = told else {
            return Err(io::Error::other(format!(
                "node {id:x} at {address} answers another question"
            )));
        };
        let (cluster, version) =
            self.0.machine.look(|machine, _| (machine.cluster(), machine.version()));
        if other.is_some() && other != cluster {
            return Err(io::Error::other(format!(
                "node {id:x} at {address} belongs to another cluster: stop it, wipe its folder, and add it by its new id"
            )));
        }
        if let Some(version) = version.filter(|version| *version > known) {
            return Err(io::Error::other(format!(
                "node {id:x} at {address} knows entries of version {known}, and the cluster has those of version {version}: \
                 install the release there that the other nodes have"
            )));
        }
        // A joining that broke off has left its place taken, or the node known by a former address.
        let stale = self.joining().filter(|(other, at)| (*other == id) != (*at == address));
        for (other, _) in stale {
            self.remove(other).await?;
        }
        let member = Member { address: address.clone() };
        self.0.raft.add_learner(id, member, false).await.map_err(io::Error::other)?;
        let catching_up = tokio::time::timeout(CATCH_UP_MAX, self.caught_up(id)).await;
        if let Some(cause) = match catching_up {
            Ok(Ok(())) => None,
            Ok(Err(cause)) => Some(cause),
            Err(_) => Some(format!("has not taken everything within {CATCH_UP_MAX:?}")),
        } {
            // Otherwise it would be given everything for ever. Another leader may have been elected.
            let _ = self.change(ChangeMembers::RemoveNodes([id].into())).await;
            return Err(io::Error::other(format!("node {id:x} at {address} {cause}: try again")));
        }
        self.change(ChangeMembers::AddVoterIds([id].into())).await
    }

    /// All nodes of the cluster, with their addresses: those that vote, and those that do not yet.
    pub fn members(&self) -> BTreeMap<u64, String> {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        members.nodes().map(|(id, member)| (*id, member.address.clone())).collect()
    }

    /// Nodes that do not vote yet, with their addresses.
    fn joining(&self) -> impl Iterator<Item = (u64, String)> + use<> {
        let voters = self.view().voters;
        self.members().into_iter().filter(move |(id, _)| !voters.contains_key(id))
    }

    /// Waits until a node that does not vote yet has nearly everything.
    async fn caught_up(&self, id: u64) -> Result<(), String> {
        let begun = (self.0.clock)();
        let mut metrics = self.0.raft.metrics();
        loop {
            let now = metrics.borrow_watched().clone();
            if now.current_leader != Some(self.0.id) {
                return Err("was not given everything: the leader changed meanwhile".to_owned());
            }
            let matched = now.replication.and_then(|all| all.get(&id).cloned()).flatten();
            let last = now.last_log_index.unwrap_or_default();
            if matched.is_some_and(|matched| matched.index + NEARLY >= last) {
                return Ok(());
            }
            let heard = now.heartbeat.and_then(|all| all.get(&id).copied()).flatten();
            let is_silent = heard.is_none_or(|at| at.elapsed() >= JOINING_SILENCE_MAX);
            if is_silent && (self.0.clock)().since(begun) >= JOINING_SILENCE_MAX {
                return Err(format!("has not answered for {JOINING_SILENCE_MAX:?}"));
            }
            // Silence is no news. An end of the consensus is seen when the members are changed.
            let _ = tokio::time::timeout(LOOK_EVERY, metrics.changed()).await;
        }
    }

    /// Takes a node out.
    ///
    /// # Errors
    ///
    /// When this node does not lead, or nobody would be left.
    pub async fn remove(&self, id: u64) -> io::Result<()> {
        self.change(match self.view().voters.contains_key(&id) {
            true => ChangeMembers::RemoveVoters([id].into()),
            false => ChangeMembers::RemoveNodes([id].into()),
        })
        .await
    }

    async fn change(&self, change: ChangeMembers<u64, Member>) -> io::Result<()> {
        let changing = self.0.raft.change_membership(change, false);
        match tokio::time::timeout(CHANGE_MAX, changing).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
                Err(io::Error::other(
                    "the leader changed meanwhile: look at the members, and try again",
                ))
            }
            Ok(Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::InProgress(_),
            )))) => Err(io::Error::other("another change of members is under way: try again")),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => Err(io::Error::other(
                "too few nodes answer: whether it was done is not known; look at the members, and try again",
            )),
        }
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

    /// The nodes, in numbers.
    pub fn nodes(&self) -> Nodes {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let voters = metrics.membership_config.membership().voter_ids().count();
        let leads = metrics.current_leader == Some(self.0.id) && self.halted().is_none();
        let applied = metrics.last_applied.map_or(0, |id| id.index);
        let silent = self.silent().len();
        let kept = metrics.replication.filter(|_| leads).unwrap_or_default();
        let slowest = kept.into_values().map(|id| id.map_or(0, |id| id.index)).min();
        let behind = slowest.map_or(0, |slowest| applied.saturating_sub(slowest));
        Nodes { leads, voters, silent, behind, applied }
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
        let voters = self.view().voters.len();
        format!(
            "no node of the cluster leads: {} of its {voters} must reach each other",
            voters / 2 + 1
        )
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

    use super::super::halt::tests::start;
    use super::*;
    use crate::control::Control;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_joining_that_broke_off_leaves_no_place_taken() {
        let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
        let first = start(folders[0].path()).await.unwrap();
        let other = start(folders[1].path()).await.unwrap();
        let (address, floor) = (first.0.address.clone(), 1_000);
        first.found(address, floor, EngineSettings::default(), None).await.unwrap();
        // Nobody is there, and it has the place of the one that joins later.
        let gone = Member { address: other.0.address.clone() };
        first.0.raft.add_learner(77, gone, false).await.unwrap();
        let elsewhere = Member { address: "127.0.0.1:1".to_owned() };
        first.0.raft.add_learner(78, elsewhere, false).await.unwrap();
        first.control(Control::Remove { node: 78 }, Vec::new()).await.unwrap();
        let add = Control::Add { address: other.0.address.clone() };
        first.control(add, Vec::new()).await.unwrap();
        let voters: Vec<_> = first.view().voters.into_keys().collect();
        assert_eq!(voters.len(), 2, "{voters:x?}");
        assert_eq!(first.joining().count(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_whose_joining_broke_off_asks_again_and_one_that_moved_is_taken_out_first() {
        let folders = [(); 3].map(|()| TempDir::new().unwrap());
        let first = start(folders[0].path()).await.unwrap();
        let other = start(folders[1].path()).await.unwrap();
        let third = start(folders[2].path()).await.unwrap();
        let (address, floor) = (first.0.address.clone(), 1_000);
        first.found(address.clone(), floor, EngineSettings::default(), None).await.unwrap();
        let member = Member { address: other.0.address.clone() };
        first.0.raft.add_learner(other.id(), member, true).await.unwrap();
        // It has heard of the cluster, and does not vote.
        let timer = (crate::host::timers())().unwrap();
        other.clone().join(vec![address], false, timer).await;
        assert!(first.view().voters.contains_key(&other.id()));

        first.add(third.id(), third.0.address.clone()).await.unwrap();
        let id = other.id();
        other.stop().await;
        drop(other);
        let moved = start(folders[1].path()).await.unwrap();
        let add = Control::Add { address: moved.0.address.clone() };
        let refused = third.control(add, Vec::new()).await.unwrap_err();
        assert!(
            refused.contains("the others find it at") && refused.contains("take it out"),
            "{refused}"
        );
        // It goes on as another address of the same node once it was taken out.
        third.control(Control::Remove { node: id }, Vec::new()).await.unwrap();
        let add = Control::Add { address: moved.0.address.clone() };
        third.control(add, Vec::new()).await.unwrap();
        assert_eq!(first.members()[&moved.id()], moved.0.address);
        third.stop().await;
        first.propose(Operation::Tick).await.unwrap();
    }

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
