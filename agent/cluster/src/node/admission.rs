//! Nodes that are added.

use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::{ChangeMembers, Instant as _};

use super::changes::{Unchanged, refused};
use super::members::LOOK_EVERY;
use super::{ANSWER_MAX, Attested, Node};
use crate::control::{Client, Control, Report};
use crate::net::{Ask, FRAME_MAX, Tell, TooLarge};
use crate::raft::Member;

/// The time in which a node that is added takes everything; its administrator waits a little longer.
const CATCH_UP_MAX: Duration = Duration::from_secs(590);
/// Entries that a node may lack when it begins to vote: the next ones wait for it.
const NEARLY: u64 = 1000;
/// A node that is silent for so long while it is given everything is not waited for.
const JOINING_SILENCE_MAX: Duration = Duration::from_secs(10);
impl Node {
    /// Has the node at an address vote.
    pub(super) async fn admit(&self, address: String) -> Result<u64, Unchanged> {
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
        let told = tokio::time::timeout(ANSWER_MAX, asked).await;
        let silent =
            |_| refused(format!("node {id:x} at {address} gave no answer within {ANSWER_MAX:?}"));
        let told = told.map_err(silent)?.map_err(refused)?;
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
        TooLarge::check(self.bytes().0).map_err(refused)?;
        self.cut_large_log().await?;
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
            Err(_) => {
                let why =
                    self.0.ways.deliveries().cause(id).map(|cause| format!(", since {cause}"));
                let why = why.unwrap_or_default();
                Some(format!("has not taken everything within {CATCH_UP_MAX:?}{why}"))
            }
        } {
            // Otherwise it would be given everything for ever. Another leader may have been elected.
            let _ = self.change(ChangeMembers::RemoveNodes([id].into())).await;
            return Err(refused(format!("node {id:x} at {address} {cause}: try again")));
        }
        self.change(ChangeMembers::AddVoterIds([id].into())).await
    }

    /// Puts an image in the place of a log that begins with a backup: as an entry that would go in one frame, which has not as
    /// much room. It is cut when the backup is restored, unless the node ended meanwhile.
    async fn cut_large_log(&self) -> Result<(), Unchanged> {
        let is_whole = self.0.raft.metrics().borrow_watched().purged.is_none();
        if is_whole && self.bytes().0 > FRAME_MAX as u64 / 4 {
            self.cut_log().await.map_err(refused)?;
        }
        Ok(())
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
            if let Some(cause) = self.0.ways.deliveries().lasting_cause(id) {
                return Err(refused(cause));
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
}
