//! The members of the cluster.

use std::collections::BTreeMap;
use std::io;

use openraft::async_runtime::watch::WatchReceiver as _;
use tenure_core::engine::EngineSettings;
use uuid::Uuid;

use super::{ANSWER_MAX, Node};
use crate::machine::{Digest, Founding, Operation, Outcome};
use crate::raft::Member;

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
    ) -> io::Result<Uuid> {
        // A founding that broke off before its first entry is gone on with.
        if !self.0.raft.is_initialized().await.map_err(io::Error::other)? {
            let members = BTreeMap::from([(self.0.id, Member { address })]);
            self.0.raft.initialize(members).await.map_err(io::Error::other)?;
        }
        let cluster = Uuid::from_u128(random()?);
        let operation = Operation::Found(Founding { cluster, token_floor, settings });
        let wait = self.0.raft.wait(Some(ANSWER_MAX));
        wait.current_leader(self.0.id, "founded").await.map_err(io::Error::other)?;
        match self.propose(operation).await.map_err(io::Error::other)?.0 {
            Outcome::Done => Ok(cluster),
            Outcome::Refused | Outcome::Answer(_) => {
                Err(io::Error::other("there is a cluster already"))
            }
        }
    }

    /// Has another node vote from now on. It is given everything first.
    ///
    /// # Errors
    ///
    /// When this node does not lead, or the other cannot be reached.
    pub async fn add(&self, id: u64, address: String) -> io::Result<()> {
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
        let (applied, digest) = self.0.machine.digest();
        let cluster = self.0.machine.look(|machine, _| machine.cluster());
        View { cluster, leader: metrics.current_leader, voters: voters.collect(), applied, digest }
    }

    /// The reason that is given where nobody leads.
    pub(crate) fn leaderless(&self) -> String {
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
