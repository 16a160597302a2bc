//! The members of the cluster.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver as _;
use tenure_core::engine::EngineSettings;
use tenure_stores::Nodes;
use tracing::{info, warn};
use uuid::Uuid;

use super::{ANSWER_MAX, Attested, Node};
use crate::host::Alarm;
use crate::machine::{Digest, Founding, Operation, Outcome, Restored};
use crate::net::{Ask, Tell};
use crate::raft::Member;

/// A leader that has heard no majority for so long, or that this node has not heard, leads as far as anybody knows no
/// more: openraft names it until it votes for another one.
const SILENCE_MAX: Duration = Duration::from_secs(2);
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
}

impl Node {
    /// Founds a cluster of this node alone, once. It leads when this is done.
    ///
    /// # Errors
    ///
    /// When it belongs to a cluster already.
    pub async fn found(
        &self,
        address: String,
        token_floor: u64,
        settings: EngineSettings,
        restored: Option<Restored>,
    ) -> io::Result<Uuid> {
        // A founding that broke off before its first entry is gone on with.
        if !self.0.raft.is_initialized().await.map_err(io::Error::other)? {
            let members = BTreeMap::from([(self.0.id, Member { address })]);
            self.0.raft.initialize(members).await.map_err(io::Error::other)?;
        }
        let cluster = Uuid::from_u128(random()?);
        let operation =
            Operation::Found(Box::new(Founding { cluster, token_floor, settings, restored }));
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
        if let Tell::Attested(Attested { cluster: Some(other), .. }) = told
            && Some(other) != self.view().cluster
        {
            return Err(io::Error::other(format!(
                "node {id:x} at {address} belongs to another cluster: stop it, wipe its folder, and add it by its new id"
            )));
        }
        let member = Member { address };
        self.0.raft.add_learner(id, member, true).await.map_err(io::Error::other)?;
        let voters = openraft::ChangeMembers::AddVoterIds([id].into());
        self.0.raft.change_membership(voters, false).await.map_err(io::Error::other)?;
        Ok(())
    }

    /// Takes a node out.
    ///
    /// # Errors
    ///
    /// When this node does not lead, or nobody would be left.
    pub async fn remove(&self, id: u64) -> io::Result<()> {
        let voters = openraft::ChangeMembers::RemoveVoters([id].into());
        self.0.raft.change_membership(voters, false).await.map_err(io::Error::other)?;
        Ok(())
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
            false => self.silence() < SILENCE_MAX,
        };
        let (applied, digest) = self.0.machine.digest();
        let cluster = self.0.machine.look(|machine, _| machine.cluster());
        let leader = metrics.current_leader.filter(is_in_touch).filter(|_| self.halted().is_none());
        View { cluster, leader, voters: voters.collect(), applied, digest }
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

    /// Tells the log who leads, and while this node does, who goes silent and who is back.
    pub(super) async fn tell_of_others(self, mut timer: Box<dyn Alarm>) {
        let (mut led, mut away) = (None, BTreeMap::new());
        loop {
            timer.set(Some((self.0.clock)() + LOOK_EVERY));
            poll_fn(|context| timer.poll_fired(context)).await;
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
