//! A node that runs.

mod admission;
mod attest;
mod changes;
mod control;
mod halt;
mod join;
mod members;
mod ready;
mod room;
mod time;
mod upgrade;
mod ways;

use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use openraft::ReadPolicy;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{ClientWriteError, ForwardToLeader, RaftError};
use tenure_core::model::{Answer, Denial, DenialRule, Failure, Request, Terms};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::ways::Ways;
use crate::clock::ClusterTime;
use crate::disk::{Disk, Images, Log, Place};
use crate::host::Timers;
use crate::keys;
use crate::machine::{Command, Machine, ONLY_OWN_SINCE, Operation, Outcome};
use crate::net::{
    Ask, Deliveries, Dial, Link, LinkError, Network, Peers, Question, Refusal, Reply, Tell, serve,
};
use crate::raft::{Clock, Listener, Raft, StateMachine};

pub use self::attest::{Attested, Verdict};
pub use self::changes::Unchanged;
pub use self::members::View;
pub use self::room::BYTES_MAX;

/// A follower that hears nothing for so long asks for votes.
const ELECTION_MS: std::ops::Range<u64> = 300..600;
const HEARTBEAT_MS: u64 = 100;
/// Entries after which the log is cut, and an image takes the place of what came before.
pub const IMAGE_EVERY: u64 = 20_000;
/// Entries that go to a node in one frame. With 512 beats each, and names of any length that is taken, that is 45 MB.
const ENTRIES_MAX: u64 = 150;
/// The time for a request, over changes of the leader.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// The wait for news of a leader before the next try.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// The things that a node needs to run.
pub struct Setup {
    /// It says which node this is: a disk that was wiped is another one.
    pub disk: Box<dyn Disk>,
    /// It hears the other nodes here, and reaches them.
    pub network: Network,
    /// `HOST:PORT`, where the other nodes find that.
    pub address: String,
    /// The clock of this host; it goes on while the host sleeps.
    pub clock: Clock,
    /// Timers of that clock.
    pub timers: Timers,
    pub listens: Arc<dyn Listener>,
    /// Entries between two images; [`IMAGE_EVERY`] unless that is to be tried.
    pub image_every: u64,
    /// The version of the machine's rules that this program knows; [`crate::machine::VERSION`] unless an upgrade is to be
    /// tried.
    pub known: u32,
    /// The bytes that the cluster may keep; [`BYTES_MAX`] unless that is to be tried.
    pub bytes_max: u64,
}

/// A running node. Cheap to clone: all are the same one.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    id: u64,
    address: String,
    clock: Clock,
    ways: Ways,
    listens: Arc<dyn Listener>,
    raft: Raft,
    machine: StateMachine,
    applied: watch::Receiver<u64>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Its folder, which is left with the last one that writes there.
    place: Box<dyn Place>,
    service: ready::Service,
    office: control::Office,
}

/// The outcome of one try.
enum Tried {
    Answered(Reply, u64),
    /// Nothing happened; another node leads, or none does.
    NotLeader,
    Failed(Failure),
}

impl Node {
    /// Starts a node with what is in its folder.
    ///
    /// # Errors
    ///
    /// When the folder cannot be used, or has what this program does not understand.
    pub async fn start(setup: Setup) -> io::Result<Node> {
        let Setup { disk, network, address, clock, timers, listens, .. } = setup;
        let Setup { image_every, known, bytes_max, .. } = setup;
        let Network { dial, accept } = network;
        let id = disk.id();
        // For followers that lag.
        let left = image_every / 4;
        let config = openraft::Config {
            cluster_name: "tenure".to_owned(),
            heartbeat_interval: HEARTBEAT_MS,
            election_timeout_min: ELECTION_MS.start,
            election_timeout_max: ELECTION_MS.end,
            enable_pre_vote: Some(true),
            // After a restart it asks first: others may have gone on.
            enable_leader_restore: Some(false),
            // A node whose disk lost what it said to have synced is given that again. Without this the leader would replicate to it
            // no more, or in a debug build panic.
            allow_log_reversion: Some(true),
            max_payload_entries: ENTRIES_MAX,
            snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(image_every),
            max_in_snapshot_log_to_keep: left,
            replication_lag_threshold: image_every + left,
            ..openraft::Config::default()
        };
        let config = config.validate().map_err(io::Error::other)?;
        let (images, told) = (Images::open(&*disk)?, Arc::clone(&listens));
        let machine = Machine::knowing(known);
        let machine = StateMachine::new(id, machine, images, Arc::clone(&clock), told);
        let (log, applied) = (Log::open(&*disk)?, machine.applied());
        let deliveries = Deliveries::default();
        let peers = Peers { dial: Arc::clone(&dial), deliveries: deliveries.clone() };
        let raft = Raft::new(id, Arc::new(config), peers, log, machine.clone()).await;
        let raft = raft.map_err(io::Error::other)?;
        let node = Node(Arc::new(Inner {
            id,
            address,
            clock,
            ways: Ways::new(dial, deliveries),
            listens,
            raft,
            machine,
            applied,
            tasks: Mutex::default(),
            place: disk.place(),
            service: ready::Service::default(),
            office: control::Office::with(room::Room::of(bytes_max)),
        }));
        let tasks = [
            tokio::spawn(serve(accept, node.clone())),
            tokio::spawn(node.clone().tick(timers()?)),
            tokio::spawn(node.clone().compare_always(timers()?)),
            tokio::spawn(node.clone().watch()),
            tokio::spawn(node.clone().look_after_members(timers()?)),
        ];
        node.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).extend(tasks);
        Ok(node)
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn dial(&self) -> Arc<dyn Dial> {
        self.0.ways.dial()
    }

    /// A way to another node.
    fn link(&self, id: u64, address: &str) -> Link {
        self.0.ways.apart(id, address)
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.0.raft
    }

    /// Has another node lead, if this one does.
    pub async fn resign(&self) {
        if self.view().leader != Some(self.0.id) {
            return;
        }
        let Some(next) = self.successor() else { return };
        let mut metrics = self.0.raft.metrics();
        // Nobody waits for it longer than for an election.
        if self.0.raft.trigger().transfer_leader(next).await.is_ok() {
            let changed = async {
                while metrics.borrow_watched().current_leader == Some(self.0.id)
                    && metrics.changed().await.is_ok()
                {}
            };
            let _ = tokio::time::timeout(Duration::from_millis(ELECTION_MS.end), changed).await;
        }
    }

    /// Stops. What it has said to be kept is on its disk.
    pub async fn stop(&self) {
        self.0.place.leave();
        // It may have stopped by itself.
        let _ = self.0.raft.shutdown().await;
        for task in self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }

    /// News for a principal, from the gateway at another node.
    pub(crate) fn tell(&self, principal: Arc<str>, news: Vec<u8>) {
        self.0.listens.told(principal, news);
    }

    /// The answer to a request, from whichever node leads. What this node says of it later is no older.
    ///
    /// # Errors
    ///
    /// [`Failure::Denied`] of what no store takes, [`Failure::Unavailable`] if nothing happened, [`Failure::Unknown`] if it
    /// is not known.
    pub async fn ask(&self, request: Request) -> Result<Answer, Failure> {
        request.check().map_err(|invalid| Failure::invalid(&invalid))?;
        match self.question(Question::Request(request)).await? {
            Reply::Answer(answer) => Ok(answer),
            Reply::Keys(_) | Reply::Latest => Err(astray()),
        }
    }

    /// Changes the keys of gateways.
    ///
    /// # Errors
    ///
    /// As [`Node::ask`].
    pub async fn change_keys(&self, change: keys::Change) -> Result<keys::Changed, Failure> {
        match self.question(Question::ChangeKeys(change)).await? {
            Reply::Keys(changed) => Ok(changed),
            Reply::Answer(_) | Reply::Latest => Err(astray()),
        }
    }

    /// Looks at the machine once it has become what all answers so far have come from.
    ///
    /// # Errors
    ///
    /// As [`Node::ask`].
    pub async fn look<T>(
        &self,
        look: impl FnOnce(&Machine, ClusterTime) -> T,
    ) -> Result<T, Failure> {
        self.question(Question::Latest).await?;
        Ok(self.0.machine.look(|machine, at| look(machine, at)))
    }

    /// The leader's reply. This node has applied what it comes from.
    async fn question(&self, question: Question) -> Result<Reply, Failure> {
        let (mut uncertain, mut is_trying) = (None, false);
        let tries = async {
            loop {
                if let Some(cause) = self.halted() {
                    return Err(match uncertain {
                        Some(_) => Failure::Unknown(cause),
                        None => Failure::Unavailable(cause),
                    });
                }
                is_trying = true;
                let leader = self.leader();
                let tried = self.attempt(question.clone()).await;
                is_trying = false;
                match tried {
                    Tried::Answered(reply, index) => return Ok((reply, index)),
                    Tried::NotLeader => {}
                    // It can be sent again, as every request can.
                    Tried::Failed(Failure::Unknown(cause)) => uncertain = Some(cause),
                    Tried::Failed(failure @ Failure::Denied(_)) => return Err(failure),
                    Tried::Failed(Failure::Unavailable(_)) => {}
                }
                self.await_other(leader).await;
            }
        };
        let (reply, index) = match tokio::time::timeout(ANSWER_MAX, tries).await {
            Ok(done) => done?,
            Err(_) => {
                let late = || format!("the cluster gave no answer within {ANSWER_MAX:?}");
                return Err(match uncertain.or_else(|| is_trying.then(late)) {
                    Some(cause) => Failure::Unknown(cause),
                    None => Failure::Unavailable(self.leaderless()),
                });
            }
        };
        let mut applied = self.0.applied.clone();
        let told = tokio::time::timeout(ANSWER_MAX, applied.wait_for(|it| *it >= index)).await;
        match told {
            Ok(Ok(_)) => Ok(reply),
            Ok(Err(_)) | Err(_) => {
                Err(Failure::Unknown("this node does not keep up with its cluster".to_owned()))
            }
        }
    }

    pub(super) fn leader(&self) -> Option<u64> {
        self.0.raft.metrics().borrow_watched().current_leader
    }

    /// Waits for another leader than the one that was tried, or none, before the next try. Other news come of each try.
    pub(super) async fn await_other(&self, tried: Option<u64>) {
        let mut metrics = self.0.raft.metrics();
        let other = async {
            // No more news come of a consensus that has ended: without a pause the processor would do nothing but try.
            if metrics.wait_until(|news| news.current_leader != tried).await.is_err() {
                pending().await
            }
        };
        // It is tried again all the same.
        let _ = tokio::time::timeout(TRY_AGAIN, other).await;
    }

    async fn attempt(&self, question: Question) -> Tried {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let Some(leader) = metrics.current_leader else { return Tried::NotLeader };
        if leader == self.0.id {
            return match self.lead(question).await {
                Ok((reply, index)) => Tried::Answered(reply, index),
                Err(Refusal::NotLeader) => Tried::NotLeader,
                Err(Refusal::Failed(failure)) => Tried::Failed(failure),
            };
        }
        let members = metrics.membership_config.membership();
        let Some(member) = members.get_node(&leader) else { return Tried::NotLeader };
        let link = self.0.ways.to(leader, &member.address);
        let mut news = self.0.raft.metrics();
        let asked = link.ask(Ask::Lead(question), Bytes::new());
        let other = async {
            // A leader that hangs is not waited for longer than it leads.
            while news.borrow_watched().current_leader == Some(leader)
                && news.changed().await.is_ok()
            {}
        };
        tokio::select! {
            biased;
            told = asked => match told {
                Ok(Tell::Lead(Ok((reply, index)))) => Tried::Answered(reply, index),
                Ok(Tell::Lead(Err(Refusal::NotLeader))) => Tried::NotLeader,
                Ok(Tell::Lead(Err(Refusal::Failed(failure)))) => Tried::Failed(failure),
                Ok(Tell::Failed(cause)) => Tried::Failed(Failure::Unknown(cause)),
                Ok(_) => Tried::Failed(Failure::Unknown("the leader answers another question".to_owned())),
                Err(error @ LinkError::Unreachable { .. }) => {
                    Tried::Failed(Failure::Unavailable(error.to_string()))
                }
                Err(error @ LinkError::Broke { .. }) => Tried::Failed(Failure::Unknown(error.to_string())),
            },
            () = other => Tried::Failed(Failure::Unknown("the leader changed meanwhile".to_owned())),
        }
    }

    /// The reply, if this node leads, and the index of the entry that it comes after.
    pub(crate) async fn lead(&self, question: Question) -> Result<(Reply, u64), Refusal> {
        let uncertain = |cause: String| Refusal::Failed(Failure::Unknown(cause));
        if let Question::Request(request) = &question
            && let Err(invalid) = request.check()
        {
            // A node that sends this on is of an earlier version, and knows this rule only.
            let denial = Denial { rule: DenialRule::Forbidden, detail: invalid.to_string() };
            return Err(Refusal::Failed(Failure::Denied(denial)));
        }
        let operation = match question {
            Question::Latest => return Ok((Reply::Latest, self.latest().await?)),
            Question::Request(request) if request.is_read() => {
                let index = self.latest().await?;
                let answer = self.0.machine.look(|machine, at| machine.read(at, request));
                return answer.map(|it| (Reply::Answer(it), index)).ok_or_else(no_cluster);
            }
            Question::Request(request) => Operation::Request(self.understood(request)),
            Question::ChangeKeys(change) => Operation::Keys(change),
        };
        self.make_room(&operation).map_err(Refusal::Failed)?;
        match self.propose(operation).await {
            Ok((Outcome::Answer(answer), index)) => Ok((Reply::Answer(answer), index)),
            Ok((Outcome::Keys(changed), index)) => Ok((Reply::Keys(changed), index)),
            Ok((Outcome::Done | Outcome::Refused, _)) => Err(no_cluster()),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(Refusal::NotLeader)
            }
            Err(error) => Err(uncertain(error.to_string())),
        }
    }

    /// The request as all nodes understand it. One that does not know that a claim leaves the limit of others as it is
    /// would change it, and no longer have what the others have: until all know that, the claim leaves every limit.
    fn understood(&self, mut request: Request) -> Request {
        if let Request::Claim(claim) = &mut request
            && let Terms::Semaphore { keeps, only_own, .. } = &mut claim.terms
            && *only_own
        {
            let version = self.0.machine.look(|machine, _| machine.version());
            if version.is_none_or(|version| version < ONLY_OWN_SINCE) {
                (*keeps, *only_own) = (true, false);
            }
        }
        request
    }

    /// The index of the latest entry, once a majority has said that this node leads still, and it has applied it.
    async fn latest(&self) -> Result<u64, Refusal> {
        let latest = self.0.raft.ensure_linearizable(ReadPolicy::ReadIndex).await;
        latest.map(|id| id.index()).map_err(|_| Refusal::NotLeader)
    }

    /// Puts an entry into the log, if this node leads, and waits until it is applied here.
    async fn propose(
        &self,
        operation: Operation,
    ) -> Result<(Outcome, u64), RaftError<crate::raft::Types, ClientWriteError<crate::raft::Types>>>
    {
        let Some(at) = self.stamp().await else {
            return Err(RaftError::APIError(ForwardToLeader::empty().into()));
        };
        let command = Command { at, operation };
        let written = self.0.raft.client_write(command).await?;
        Ok((written.data, written.log_id.index))
    }
}

fn no_cluster() -> Refusal {
    Refusal::Failed(unfounded())
}

const UNFOUNDED: &str = "this node has no cluster yet: found one with `tenured-gateway cluster init`, or add the node to one";

fn unfounded() -> Failure {
    Failure::Unavailable(UNFOUNDED.to_owned())
}

fn astray() -> Failure {
    Failure::Unknown("the leader answers another question".to_owned())
}
