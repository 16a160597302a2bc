//! Changes of members.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{ChangeMembers, Instant as _};

use super::control::ASTRAY;
use super::members::LOOK_EVERY;
use super::{ANSWER_MAX, Attested, Node};
use crate::control::{Client, Control, Report};
use crate::net::{Ask, LinkError, Tell};
use crate::raft::{Member, Types};

/// The time in which a cluster finds a new leader; an administrator waits for an answer a little longer.
const LEADER_MAX: Duration = Duration::from_secs(4);
/// The time in which a node that is added takes everything; its administrator waits a little longer.
const CATCH_UP_MAX: Duration = Duration::from_secs(590);
/// Entries that a node may lack when it begins to vote: the next ones wait for it.
const NEARLY: u64 = 1000;
/// A node that is silent for so long while it is given everything is not waited for.
const JOINING_SILENCE_MAX: Duration = Duration::from_secs(10);
/// The time for a change of members.
const CHANGE_MAX: Duration = Duration::from_secs(4);
const UNSURE: &str =
    "too few nodes answer: whether it was done is not known; look at the members, and try again";

/// A change that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Unchanged {
    /// It can be gone on with there.
    #[error("no node leads for long enough: look at the members, and try again")]
    Overtaken,
    /// It can be tried again soon.
    #[error("another change of members is under way: try again")]
    Busy,
    /// In words for an administrator.
    #[error("{0}")]
    Refused(String),
}

impl Node {
    /// Has whichever node leads change the members. A leader that died a moment ago is still the one that this node
    /// knows of: the next one is waited for. It goes on with a change over which the one before it lost its office.
    pub(super) async fn change_members(&self, mut control: Control) -> Result<Report, String> {
        if control.is_relayed() {
            return match self.change_as_leader(&control).await {
                Err(Unchanged::Overtaken | Unchanged::Busy) => Ok(Report::NotYet),
                done => done.map_err(|cause| cause.to_string()),
            };
        }
        let until = (self.0.clock)() + control.patience();
        let mut leader_until = (self.0.clock)() + LEADER_MAX;
        loop {
            let (tried, view, now) = (self.leader(), self.view(), (self.0.clock)());
            let left = until.since(now);
            let leader = view.leader.and_then(|id| Some((id, view.voters.get(&id)?)));
            if leader.is_some() {
                leader_until = now + LEADER_MAX;
            }
            let cause = match leader {
                Some((id, _)) if id == self.id() => {
                    match tokio::time::timeout(left, self.change_as_leader(&control)).await {
                        Ok(Err(cause @ (Unchanged::Overtaken | Unchanged::Busy))) => {
                            control.mark_begun();
                            cause.to_string()
                        }
                        Ok(done) => return done.map_err(|cause| cause.to_string()),
                        Err(_) => return Err(UNSURE.to_owned()),
                    }
                }
                Some((id, address)) => {
                    let asked = self.ask_leader(id, address, &control);
                    match tokio::time::timeout(left, asked).await {
                        Ok(Ok(Tell::Control(Ok(Report::NotYet)))) => {
                            control.mark_begun();
                            Unchanged::Busy.to_string()
                        }
                        Ok(Ok(Tell::Control(report))) => return report,
                        Ok(Ok(Tell::Failed(cause))) => return Err(cause),
                        Ok(Ok(_)) => return Err(ASTRAY.to_owned()),
                        Ok(Err(error @ LinkError::Unreachable { .. })) => error.to_string(),
                        Ok(Err(LinkError::Broke { .. })) => {
                            control.mark_begun();
                            Unchanged::Overtaken.to_string()
                        }
                        Err(_) => return Err(UNSURE.to_owned()),
                    }
                }
                None => self.leaderless(),
            };
            let is_member = self.members().contains_key(&self.id());
            if !is_member || self.halted().is_some() || now >= until.min(leader_until) {
                return Err(cause);
            }
            self.await_other(tried).await;
        }
    }

    /// The leader's answer. One that another node takes the place of meanwhile is not waited for.
    async fn ask_leader(
        &self,
        leader: u64,
        address: &str,
        control: &Control,
    ) -> Result<Tell, LinkError> {
        let (link, mut metrics) = (self.link(leader, address), self.0.raft.metrics());
        let other =
            metrics.wait_until(|news| news.current_leader.is_some_and(|other| other != leader));
        tokio::select! {
            biased;
            told = link.ask(Ask::Control(control.relayed()), Bytes::new()) => told,
            _ = other => Err(LinkError::Broke {
                address: address.into(),
                cause: "another node leads".to_owned(),
            }),
        }
    }

    async fn change_as_leader(&self, control: &Control) -> Result<Report, Unchanged> {
        match control {
            Control::Add { address, .. } => self.admit(address.clone()).await.map(Report::Added),
            Control::Remove { node, begun, .. } => {
                self.dismiss(*node, *begun).await.map(|()| Report::Removed)
            }
            _ => Err(refused(ASTRAY)),
        }
    }

    /// The voters and the members, once a majority has said that this node leads still and that nobody changes them.
    async fn settled(&self) -> Result<(BTreeMap<u64, String>, BTreeMap<u64, String>), Unchanged> {
        let latest = tokio::time::timeout(CHANGE_MAX, self.latest()).await;
        latest.map_err(|_| refused(UNSURE))?.map_err(|_| Unchanged::Overtaken)?;
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let (now, kept) = (metrics.membership_config, metrics.committed_membership_config);
        if now.log_id() != kept.log_id() || now.membership().get_joint_config().len() > 1 {
            return Err(Unchanged::Busy);
        }
        let votes: Vec<u64> = now.membership().voter_ids().collect();
        let members = now.membership().nodes().map(|(id, member)| (*id, member.address.clone()));
        let members: BTreeMap<_, _> = members.collect();
        let voters = members.clone().into_iter().filter(|(id, _)| votes.contains(id)).collect();
        Ok((voters, members))
    }

    async fn admit(&self, address: String) -> Result<u64, Unchanged> {
        let other = Client::over(&address, self.dial()).ask(Control::Status).await;
        let Report::Status(other) = other.map_err(refused)? else {
            return Err(refused(format!("the node at {address} answers another question")));
        };
        let (id, (voters, _)) = (other.node, self.settled().await?);
        let own = self.view().cluster;
        if let Some(cluster) = other.cluster.filter(|cluster| Some(*cluster) != own) {
            return Err(refused(format!(
                "node {id:x} at {address} is of another cluster, {cluster}: stop it, wipe its folder, start it, and add \
                 it then"
            )));
        }
        if other.cluster.is_none() && other.members.keys().eq([&id]) && !voters.contains_key(&id) {
            return Err(refused(format!(
                "node {id:x} at {address} has half begun a cluster of its own: stop it, wipe its folder, start it, and add it \
                 then; or go on there with `tenured-gateway cluster init`"
            )));
        }
        if voters.get(&id) == Some(&address) {
            // The one who asked may have missed the answer.
            return Ok(id);
        }
        let has_its_place = |(other, at): &(&u64, &String)| **other != id && **at == address;
        if let Some((old, _)) = voters.iter().find(has_its_place) {
            return Err(refused(format!(
                "node {old:x}, which is gone, was at {address} and votes still: take it out first, with \
                 `tenured-gateway cluster remove {old:x}`"
            )));
        }
        if let Some(known) = voters.get(&id) {
            return Err(refused(format!(
                "node {id:x} votes already, and the others find it at {known}: start it there again, or take it out with \
                 `tenured-gateway cluster remove {id:x}` and add it at {address} then"
            )));
        }
        self.add(id, address).await?;
        Ok(id)
    }

    async fn dismiss(&self, id: u64, begun: bool) -> Result<(), Unchanged> {
        let (_, members) = self.settled().await?;
        let status = self.status().await;
        let voters = status.members.iter().filter(|(_, member)| member.votes);
        let left: Vec<_> = voters.filter(|(other, _)| **other != id).collect();
        if begun && !members.contains_key(&id) {
            return Ok(());
        }
        if !members.contains_key(&id) {
            return Err(refused(format!("node {id:x} is none of this cluster")));
        }
        if left.is_empty() {
            return Err(refused(format!(
                "node {id:x} is the only one: stop it to end the cluster"
            )));
        }
        let (answering, needed) = (
            left.iter().filter(|(_, member)| member.applied.is_some()).count(),
            left.len() / 2 + 1,
        );
        if answering < needed {
            return Err(refused(format!(
                "without node {id:x} the cluster would stop: {answering} of the other {} answer, and {needed} must; \
                 start one of those that are down, or add another node first",
                left.len()
            )));
        }
        self.remove(id).await
    }

    /// Has another node vote from now on. It is given everything first.
    ///
    /// # Errors
    ///
    /// When this node does not lead, the other cannot be reached, or it belongs to another cluster.
    pub async fn add(&self, id: u64, address: String) -> Result<(), Unchanged> {
        let Ok(office) = self.0.office.versions.try_lock() else { return Err(Unchanged::Busy) };
        // openraft would try for ever, and not say why.
        let asking = self.link(id, &address);
        let asked = asking.ask(Ask::Attest { index: 0 }, Bytes::new());
        let told =
            tokio::time::timeout(ANSWER_MAX, asked).await.map_err(refused)?.map_err(refused)?;
        let Tell::Attested(Attested { cluster: other, known, .. }) = told else {
            return Err(refused(format!("node {id:x} at {address} answers another question")));
        };
        // A leader before this one may have changed the version.
        let known_here = self.look(|machine, _| (machine.cluster(), machine.version())).await;
        let (cluster, version) = known_here.map_err(|failure| refused(failure.cause()))?;
        if other.is_some() && other != cluster {
            return Err(refused(format!(
                "node {id:x} at {address} belongs to another cluster: stop it, wipe its folder, and add it by its new id"
            )));
        }
        if let Some(version) = version.filter(|version| *version > known) {
            return Err(refused(format!(
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
        self.one_at_a_time(self.0.raft.add_learner(id, member, false)).await?;
        drop(office);
        let catching_up = tokio::time::timeout(CATCH_UP_MAX, self.caught_up(id)).await;
        if let Some(cause) = match catching_up {
            Ok(Ok(())) => None,
            Ok(Err(Unchanged::Refused(cause))) => Some(cause),
            Ok(Err(other)) => return Err(other),
            Err(_) => Some(format!("has not taken everything within {CATCH_UP_MAX:?}")),
        } {
            // Otherwise it would be given everything for ever. Another leader may have been elected.
            let _ = self.change(ChangeMembers::RemoveNodes([id].into())).await;
            return Err(refused(format!("node {id:x} at {address} {cause}: try again")));
        }
        self.change(ChangeMembers::AddVoterIds([id].into())).await
    }

    /// Nodes that do not vote yet, with their addresses.
    pub(super) fn joining(&self) -> impl Iterator<Item = (u64, String)> + use<> {
        let voters = self.view().voters;
        self.members().into_iter().filter(move |(id, _)| !voters.contains_key(id))
    }

    /// Waits until a node that does not vote yet has nearly everything.
    async fn caught_up(&self, id: u64) -> Result<(), Unchanged> {
        let begun = (self.0.clock)();
        let mut metrics = self.0.raft.metrics();
        loop {
            let now = metrics.borrow_watched().clone();
            if now.current_leader != Some(self.0.id) {
                return Err(Unchanged::Overtaken);
            }
            let matched = now.replication.and_then(|all| all.get(&id).cloned()).flatten();
            let last = now.last_log_index.unwrap_or_default();
            if matched.is_some_and(|matched| matched.index + NEARLY >= last) {
                return Ok(());
            }
            let heard = now.heartbeat.and_then(|all| all.get(&id).copied()).flatten();
            let is_silent = heard.is_none_or(|at| at.elapsed() >= JOINING_SILENCE_MAX);
            if is_silent && (self.0.clock)().since(begun) >= JOINING_SILENCE_MAX {
                return Err(refused(format!("has not answered for {JOINING_SILENCE_MAX:?}")));
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
    pub async fn remove(&self, id: u64) -> Result<(), Unchanged> {
        self.change(match self.view().voters.contains_key(&id) {
            true => ChangeMembers::RemoveVoters([id].into()),
            false => ChangeMembers::RemoveNodes([id].into()),
        })
        .await
    }

    pub(super) async fn change(&self, change: ChangeMembers<u64, Member>) -> Result<(), Unchanged> {
        self.one_at_a_time(self.0.raft.change_membership(change, false)).await
    }

    /// Puts entries about members into the log, unless this node has been taken out: openraft would take them from it for a moment.
    async fn one_at_a_time<T>(
        &self,
        entries: impl Future<Output = Result<T, RaftError<Types, ClientWriteError<Types>>>>,
    ) -> Result<(), Unchanged> {
        let changing = async {
            let _only = self.0.office.members.lock().await;
            if !self.members().contains_key(&self.id()) {
                return Err(Unchanged::Overtaken);
            }
            entries.await.map(drop).map_err(unchanged)
        };
        let changed = tokio::time::timeout(CHANGE_MAX, changing).await;
        changed.unwrap_or_else(|_| Err(refused(UNSURE)))
    }
}

fn refused(cause: impl ToString) -> Unchanged {
    Unchanged::Refused(cause.to_string())
}

fn unchanged(error: RaftError<Types, ClientWriteError<Types>>) -> Unchanged {
    match error {
        // What the next leader has not of the log is gone: it is looked at what became of it.
        RaftError::APIError(
            ClientWriteError::ForwardToLeader(_) | ClientWriteError::LogEntryDiscarded(_),
        ) => Unchanged::Overtaken,
        // Somebody else ends the change, or makes another one.
        RaftError::APIError(
            ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_))
            | ClientWriteError::PreconditionFailed(_),
        ) => Unchanged::Busy,
        error => refused(error),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tenure_core::engine::EngineSettings;

    use super::super::halt::tests::start;
    use super::*;
    use crate::machine::Operation;

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
        first.control(Control::remove(78), Vec::new()).await.unwrap();
        let add = Control::add(other.0.address.clone());
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
        let add = Control::add(moved.0.address.clone());
        let refused = third.control(add, Vec::new()).await.unwrap_err();
        assert!(
            refused.contains("the others find it at") && refused.contains("take it out"),
            "{refused}"
        );
        // It goes on as another address of the same node once it was taken out.
        third.control(Control::remove(id), Vec::new()).await.unwrap();
        let add = Control::add(moved.0.address.clone());
        third.control(add, Vec::new()).await.unwrap();
        assert_eq!(first.members()[&moved.id()], moved.0.address);
        third.stop().await;
        first.propose(Operation::Tick).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_is_silent_while_it_is_given_everything_is_not_waited_for() {
        let folder = TempDir::new().unwrap();
        let first = start(folder.path()).await.unwrap();
        let (address, floor) = (first.0.address.clone(), 1_000);
        first.found(address, floor, EngineSettings::default(), None).await.unwrap();
        let gone = Member { address: "127.0.0.1:1".to_owned() };
        first.0.raft.add_learner(77, gone, false).await.unwrap();
        // More than one that is nearly up to date may lack.
        for _ in 0..=NEARLY {
            first.propose(Operation::Tick).await.unwrap();
        }
        let cause = first.caught_up(77).await.unwrap_err();
        assert!(cause.to_string().contains("has not answered"), "{cause}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_next_leader_goes_on_with_a_change_of_members() {
        let folders = [(); 4].map(|()| TempDir::new().unwrap());
        let mut nodes = Vec::new();
        for folder in &folders {
            nodes.push(start(folder.path()).await.unwrap());
        }
        let (address, floor) = (nodes[0].0.address.clone(), 1_000);
        nodes[0].found(address, floor, EngineSettings::default(), None).await.unwrap();
        let other = nodes.pop().unwrap();
        for node in &nodes[1..] {
            nodes[0].add(node.id(), node.0.address.clone()).await.unwrap();
        }
        let (add, remove) = (Control::add(other.0.address.clone()), Control::remove(other.id()));
        for round in 0..20 {
            let control = if round % 2 == 0 { add.clone() } else { remove.clone() };
            let changing = nodes[round % 3].clone();
            let changed = tokio::spawn(async move {
                loop {
                    match changing.control(control.clone(), Vec::new()).await {
                        // On a machine that is busy with other things an election may take its time.
                        Err(cause) if cause.contains("no node of the cluster leads") => {}
                        Err(cause) if cause.contains("is none of this cluster") => break,
                        done => break drop(done.unwrap()),
                    }
                }
            });
            for node in &nodes {
                node.resign().await;
            }
            changed.await.unwrap();
        }
        nodes[0].look(|_, _| ()).await.unwrap();
        let voters = nodes[0].view().voters;
        assert_eq!(voters.len(), 3);
    }
}
