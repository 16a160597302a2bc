//! The engine as the state machine of openraft.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{Stream, TryStreamExt};
use openraft::alias::{EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use serde::{Deserialize, Serialize};
use tenure_core::engine::Effect;
use tenure_core::time::Boottime;
use tokio::sync::watch;

use crate::clock::{ClusterClock, ClusterTime};
use crate::disk::Images;
use crate::machine::{Command, Digest, Image, Machine, Operation, Outcome};
use crate::size::{AsOf, Size, bytes_of};

/// Fingerprints that are remembered, for nodes that compare them.
const DIGESTS: usize = 16_384;

/// Entries whose receipt is remembered until they are applied; beyond, the cluster's time goes by when that is.
const RECEIVED_MAX: usize = 16_384;

/// The address of a node, for its fellows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// `HOST:PORT`, where it listens to them.
    pub address: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

openraft::declare_raft_types!(
    /// The types of this cluster.
    pub Types:
        D = Command,
        R = Outcome,
        NodeId = u64,
        Node = Member,
);

type Payload = EntryPayload<Command, u64, Member>;

/// Consensus with this machine.
pub(crate) type Raft = openraft::Raft<Types, StateMachine>;

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.operation {
            Operation::Found(_) => "found",
            Operation::Request(_) => "request",
            Operation::Tick => "tick",
            Operation::Keys(_) => "keys",
            Operation::Version(_) => "version",
        };
        write!(f, "{what} at {}", self.at.as_nanos())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Answer(_) => "answer",
            Outcome::Keys(_) => "keys",
            Outcome::Done => "done",
            Outcome::Refused => "refused",
        })
    }
}

/// Hears what comes of entries, in the order in which they are applied, on the thread that applies them.
pub trait Listener: Send + Sync {
    /// The effects of an entry, and the machine just after it.
    fn applied(&self, effects: Vec<Effect>, machine: &Machine);

    /// The machine is another one: what came between was not told.
    fn replaced(&self);

    /// The gateway at another node has news for the agents of a principal.
    fn told(&self, _principal: Arc<str>, _news: Vec<u8>) {}
}

/// The host's clock.
pub type Clock = Arc<dyn Fn() -> Boottime + Send + Sync>;

/// The machine of this node. Cheap to clone: all are the same one.
#[derive(Clone)]
pub struct StateMachine {
    shared: Arc<Shared>,
    images: Images,
}

struct Shared {
    node: u64,
    clock: Clock,
    state: Mutex<State>,
    /// The index of the latest entry that was applied.
    applied: watch::Sender<u64>,
    listener: Arc<dyn Listener>,
}

struct State {
    machine: Machine,
    time: ClusterClock,
    last: Option<LogIdOf<Types>>,
    members: StoredMembershipOf<Types>,
    /// The fingerprints after the latest entries, by index.
    digests: VecDeque<(u64, Digest)>,
    /// The first receipt of entries that are not applied yet, by index and term. The last ones of a leader that died
    /// are applied under the next one: to count from then would leave out the election.
    received: BTreeMap<(u64, u64), Boottime>,
    size: Size,
}

/// An image as it is kept and sent.
#[derive(Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) meta: SnapshotMetaOf<Types>,
    /// The cluster's time of its latest entry.
    pub(crate) stamp: ClusterTime,
    pub(crate) image: Option<Image>,
}

impl StateMachine {
    /// One whose machine has applied nothing. openraft gives it the last image of its folder, and what follows in
    /// the log.
    pub(crate) fn new(
        node: u64,
        machine: Machine,
        images: Images,
        clock: Clock,
        listener: Arc<dyn Listener>,
    ) -> StateMachine {
        let time = ClusterClock::new(ClusterTime::default(), clock());
        let members = StoredMembershipOf::<Types>::default();
        let (digests, received) = (VecDeque::new(), BTreeMap::new());
        let size = Size::default();
        let state = State { machine, time, last: None, members, digests, received, size };
        let (state, applied) = (Mutex::new(state), watch::Sender::new(0));
        let shared = Shared { node, clock, state, applied, listener };
        StateMachine { shared: Arc::new(shared), images }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster's time, as far as this node knows it; `None` before it has applied an entry of this term.
    pub(crate) fn now_in(&self, term: u64) -> Option<ClusterTime> {
        let now = (self.shared.clock)();
        let state = self.state();
        let applied = state.last.as_ref()?.committed_leader_id().term;
        (applied == term).then(|| state.time.at(now))
    }

    /// The cluster's time is this at least.
    pub(crate) fn hear(&self, stamp: ClusterTime) {
        let now = (self.shared.clock)();
        self.state().time.hear(stamp, now);
    }

    /// The entries have come from the node that leads, whatever becomes of them.
    pub(crate) fn receive(&self, entries: &[EntryOf<Types>]) {
        let now = (self.shared.clock)();
        let received = &mut self.state().received;
        for entry in entries {
            if received.len() == RECEIVED_MAX {
                return;
            }
            let id = &entry.log_id;
            received.entry((id.index, id.committed_leader_id().term)).or_insert(now);
        }
    }

    /// Looks at the machine as it is now; `at` is the cluster's time.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Machine, ClusterTime) -> T) -> T {
        let now = (self.shared.clock)();
        let mut state = self.state();
        let at = state.time.at(now);
        look(&mut state.machine, at)
    }

    /// The bytes of the image that would be made now, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.state().size.now()
    }

    /// Counts the bytes of an image that is made for that alone. Takes time and memory in proportion to what there is.
    pub(crate) fn count(&self) {
        let (image, as_of) = {
            let state = self.state();
            (state.machine.freeze(), state.size.as_of())
        };
        let bytes = bytes_of(&image);
        self.state().size.count(as_of, bytes);
    }

    /// Follows the index of the latest entry that was applied.
    pub(crate) fn applied(&self) -> watch::Receiver<u64> {
        self.shared.applied.subscribe()
    }

    /// The latest entry, and the fingerprint after it.
    pub(crate) fn digest(&self) -> (u64, Digest) {
        let state = self.state();
        (state.last.as_ref().map_or(0, |last| last.index), state.machine.digest())
    }

    /// The fingerprint after an entry; `None` if that is not remembered, or still to come.
    pub(crate) fn digest_at(&self, index: u64) -> Option<Digest> {
        let state = self.state();
        let at = state.digests.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        state.digests.get(at).map(|(_, digest)| *digest)
    }

    fn apply_one(&self, last: LogIdOf<Types>, payload: Payload) -> io::Result<Outcome> {
        let now = (self.shared.clock)();
        let mut state = self.state();
        let place = (last.index, last.committed_leader_id().term);
        let received_at = state.received.remove(&place).unwrap_or(now);
        while state.received.first_key_value().is_some_and(|(first, _)| *first < place) {
            state.received.pop_first();
        }
        let outcome = match payload {
            EntryPayload::Blank => Outcome::Done,
            EntryPayload::Membership(members) => {
                state.members = StoredMembershipOf::<Types>::new(Some(last), members);
                Outcome::Done
            }
            EntryPayload::Normal(command) => {
                // A cluster begins once: the time of another beginning is none of it.
                let is_of_cluster = !matches!(command.operation, Operation::Found(_))
                    || state.machine.cluster().is_none();
                if is_of_cluster && last.committed_leader_id().node_id == self.shared.node {
                    state.time.hear(command.at, now);
                } else if is_of_cluster {
                    state.time.follow(command.at, received_at);
                }
                state.size.add(&command.operation);
                // openraft stops the node at an error.
                let (outcome, effects) = state.machine.apply(command).map_err(io::Error::other)?;
                self.shared.listener.applied(effects, &state.machine);
                outcome
            }
        };
        state.last = Some(last);
        if state.digests.len() == DIGESTS {
            state.digests.pop_front();
        }
        let digest = state.machine.digest();
        state.digests.push_back((last.index, digest));
        Ok(outcome)
    }

    fn freeze(&self) -> (Snapshot, AsOf) {
        let now = (self.shared.clock)();
        let state = self.state();
        let meta = SnapshotMetaOf::<Types> {
            last_log_id: state.last,
            last_membership: state.members.clone(),
        };
        let snapshot = Snapshot { meta, stamp: state.time.at(now), image: state.machine.freeze() };
        (snapshot, state.size.as_of())
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = Vec<u8>;
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> io::Result<(Option<LogIdOf<Types>>, StoredMembershipOf<Types>)> {
        let state = self.state();
        Ok((state.last, state.members.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let index = entry.log_id.index;
            let outcome = self.apply_one(entry.log_id, entry.payload)?;
            self.shared.applied.send_replace(index);
            if let Some(responder) = responder {
                responder.send(outcome);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder { snapshot: Some(self.freeze()), machine: self.clone() }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Types>,
        data: Vec<u8>,
    ) -> io::Result<()> {
        let snapshot: Snapshot = serde_json::from_slice(&data)?;
        let known = self.state().machine.known();
        let machine = Machine::thaw(snapshot.image, known).map_err(io::Error::other)?;
        let bytes = data.len() as u64;
        self.images.keep(data).await?;
        let now = (self.shared.clock)();
        {
            let mut state = self.state();
            state.machine = machine;
            state.time.follow(snapshot.stamp, now);
            state.last = meta.last_log_id;
            state.digests.clear();
            state.size.replace(bytes);
            state.members = meta.last_membership.clone();
            self.shared.listener.replaced();
        }
        let index = meta.last_log_id.as_ref().map_or(0, |last| last.index);
        self.shared.applied.send_replace(index);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, Vec<u8>>>> {
        let Some(data) = self.images.kept().await? else { return Ok(None) };
        /// Nothing but what says where it belongs.
        #[derive(Deserialize)]
        struct Head {
            meta: SnapshotMetaOf<Types>,
        }
        let Head { meta } = serde_json::from_slice(&data)?;
        Ok(Some(SnapshotOf::<Types, Vec<u8>> { meta, snapshot: data }))
    }
}

/// Writes an image down, beside the machine that goes on.
pub struct Builder {
    snapshot: Option<(Snapshot, AsOf)>,
    machine: StateMachine,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Vec<u8>;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, Vec<u8>>> {
        let built = || io::Error::other("an image is built once");
        let (snapshot, as_of) = self.snapshot.take().ok_or_else(built)?;
        let meta = snapshot.meta.clone();
        let data = serde_json::to_vec(&snapshot)?;
        drop(snapshot);
        self.machine.state().size.count(as_of, data.len() as u64);
        self.machine.images.keep(data.clone()).await?;
        Ok(SnapshotOf::<Types, Vec<u8>> { meta, snapshot: data })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use openraft::entry::RaftEntry;
    use openraft::testing::log_id;
    use tempfile::TempDir;

    use super::*;
    use crate::disk::Folder;

    struct Nobody;

    impl Listener for Nobody {
        fn applied(&self, _: Vec<Effect>, _: &Machine) {}

        fn replaced(&self) {}
    }

    #[test]
    fn entries_that_are_applied_late_take_no_time_from_the_cluster() {
        let folder = TempDir::new().unwrap();
        let images = Images::open(&Folder::open(folder.path()).unwrap()).unwrap();
        let now = Arc::new(AtomicU64::new(0));
        let set = Arc::clone(&now);
        let clock: Clock = Arc::new(move || Boottime::from_nanos(set.load(Ordering::Relaxed)));
        let machine = StateMachine::new(7, Machine::default(), images, clock, Arc::new(Nobody));
        let [known, unknown] = [1, 2].map(|index| {
            let command = Command { at: ClusterTime::default(), operation: Operation::Tick };
            EntryOf::<Types>::new(log_id::<Types>(1, 0, index), EntryPayload::Normal(command))
        });
        machine.receive(std::slice::from_ref(&known));
        now.store(1_000_000_000, Ordering::Relaxed);
        // Sent again by another leader.
        machine.receive(std::slice::from_ref(&known));
        machine.apply_one(known.log_id, known.payload).unwrap();
        assert_eq!(machine.look(|_, at| at).since(ClusterTime::default()), Duration::from_secs(1));
        assert!(machine.state().received.is_empty());
        machine.apply_one(unknown.log_id, unknown.payload).unwrap();
        assert_eq!(machine.look(|_, at| at), ClusterTime::default());
    }
}
