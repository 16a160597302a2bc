//! Changes of members, by whichever node leads.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};

use super::Node;
use super::control::ASTRAY;
use crate::control::{Control, Report};
use crate::net::{Ask, LinkError, Tell};
use crate::raft::{Member, Types};

/// The time in which a cluster finds a new leader; an administrator waits for an answer a little longer.
const LEADER_MAX: Duration = Duration::from_secs(4);
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
    pub(super) async fn settled(
        &self,
    ) -> Result<(BTreeMap<u64, String>, BTreeMap<u64, String>), Unchanged> {
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

    /// Puts entries about members into the log, unless this node has just been taken out: it leads for a moment still.
    pub(super) async fn one_at_a_time<T>(
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

pub(super) fn refused(cause: impl ToString) -> Unchanged {
    Unchanged::Refused(cause.to_string())
}

fn unchanged(error: RaftError<Types, ClientWriteError<Types>>) -> Unchanged {
    match error {
        // The next leader may have the entry or not: whoever goes on looks first.
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
