//! A node that runs.

mod attest;
mod members;

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use openraft::ReadPolicy;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{ClientWriteError, RaftError};
use tenure_core::model::{Answer, Failure, Request};
use tenure_host::timer::Timer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::debug;

use crate::clock::ClusterTime;
use crate::disk::{Images, Log};
use crate::machine::{Command, Operation, Outcome};
use crate::net::{Ask, Link, LinkError, Peers, Refusal, Tell, serve};
use crate::raft::{Clock, Listener, Raft, StateMachine};

pub use self::attest::{Attested, Verdict};
pub use self::members::View;

/// A follower that hears nothing for so long asks for votes.
const ELECTION_MS: std::ops::Range<u64> = 300..600;
const HEARTBEAT_MS: u64 = 100;
/// Entries after which the log is cut, and an image takes the place of what came before.
const IMAGE_EVERY: u64 = 20_000;
/// Entries that are left for followers that lag.
const LEFT_FOR_FOLLOWERS: u64 = 5_000;
/// The time for a request, over changes of the leader.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// The wait for news of a leader before the next try.
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// Time passes at least so often while anything runs out one day, so that nodes agree about it.
const TICK_MAX: Duration = Duration::from_secs(1);

/// The things that a node needs to run.
pub struct Setup<'a> {
    /// Random, and made with its folder: a folder that was wiped is another node.
    pub id: u64,
    pub folder: &'a Path,
    /// It hears the other nodes here.
    pub listener: TcpListener,
    /// The clock of this host; it goes on while the host sleeps.
    pub clock: Clock,
    pub listens: Arc<dyn Listener>,
}

/// A running node. Cheap to clone: all are the same one.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    id: u64,
    clock: Clock,
    raft: Raft,
    machine: StateMachine,
    applied: watch::Receiver<u64>,
    /// Ways to the nodes that have led.
    leaders: Mutex<HashMap<u64, Link>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// The reason for which it serves nobody any more.
    halted: OnceLock<String>,
}

/// The outcome of one try.
enum Tried {
    Answered(Answer, u64),
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
    pub async fn start(setup: Setup<'_>) -> io::Result<Node> {
        let Setup { id, folder, listener, clock, listens } = setup;
        let config = openraft::Config {
            cluster_name: "tenure".to_owned(),
            heartbeat_interval: HEARTBEAT_MS,
            election_timeout_min: ELECTION_MS.start,
            election_timeout_max: ELECTION_MS.end,
            enable_pre_vote: Some(true),
            // After a restart it asks first: others may have gone on.
            enable_leader_restore: Some(false),
            snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(IMAGE_EVERY),
            max_in_snapshot_log_to_keep: LEFT_FOR_FOLLOWERS,
            replication_lag_threshold: IMAGE_EVERY + LEFT_FOR_FOLLOWERS,
            ..openraft::Config::default()
        };
        let config = config.validate().map_err(io::Error::other)?;
        let machine = StateMachine::new(Images::open(folder)?, Arc::clone(&clock), listens);
        let (log, applied) = (Log::open(folder)?, machine.applied());
        let raft = Raft::new(id, Arc::new(config), Peers, log, machine.clone()).await;
        let raft = raft.map_err(io::Error::other)?;
        let (leaders, tasks) = (Mutex::default(), Mutex::default());
        let node = Node(Arc::new(Inner {
            id,
            clock,
            raft,
            machine,
            applied,
            leaders,
            tasks,
            halted: OnceLock::new(),
        }));
        let tasks = [
            tokio::spawn(serve(listener, node.clone())),
            tokio::spawn(node.clone().tick(Timer::new()?)),
            tokio::spawn(node.clone().compare_always(Timer::new()?)),
        ];
        node.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).extend(tasks);
        Ok(node)
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.0.raft
    }

    /// Stops. What it has said to be kept is on its disk.
    pub async fn stop(&self) {
        for task in self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
        // It may have stopped by itself.
        let _ = self.0.raft.shutdown().await;
    }

    /// Serves nobody any more, for this reason.
    async fn halt(&self, cause: &str) {
        // The first reason stays.
        let _ = self.0.halted.set(cause.to_owned());
        // It may have stopped by itself.
        let _ = self.0.raft.shutdown().await;
    }

    /// The answer to a request, from whichever node leads. What this node says of it later is no older.
    ///
    /// # Errors
    ///
    /// [`Failure::Unavailable`] if nothing happened, [`Failure::Unknown`] if it is not known.
    pub async fn ask(&self, request: Request) -> Result<Answer, Failure> {
        if let Some(cause) = self.0.halted.get() {
            return Err(Failure::Unavailable(cause.clone()));
        }
        let (mut uncertain, mut is_trying) = (None, false);
        let tries = async {
            loop {
                is_trying = true;
                let tried = self.attempt(request.clone()).await;
                is_trying = false;
                match tried {
                    Tried::Answered(answer, index) => return Ok((answer, index)),
                    Tried::NotLeader => {}
                    // It can be sent again, as every request can.
                    Tried::Failed(Failure::Unknown(cause)) => uncertain = Some(cause),
                    Tried::Failed(failure @ Failure::Denied(_)) => return Err(failure),
                    Tried::Failed(Failure::Unavailable(_)) => {}
                }
                self.await_leader().await;
            }
        };
        let (answer, index) = match tokio::time::timeout(ANSWER_MAX, tries).await {
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
            Ok(Ok(_)) => Ok(answer),
            Ok(Err(_)) | Err(_) => {
                Err(Failure::Unknown("this node does not keep up with its cluster".to_owned()))
            }
        }
    }

    async fn await_leader(&self) {
        let mut metrics = self.0.raft.metrics();
        // Either it says something new, or it is tried again all the same.
        let _ = tokio::time::timeout(TRY_AGAIN, metrics.changed()).await;
    }

    async fn attempt(&self, request: Request) -> Tried {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let Some(leader) = metrics.current_leader else { return Tried::NotLeader };
        if leader == self.0.id {
            return match self.lead(request).await {
                Ok((answer, index)) => Tried::Answered(answer, index),
                Err(Refusal::NotLeader) => Tried::NotLeader,
                Err(Refusal::Failed(failure)) => Tried::Failed(failure),
            };
        }
        let members = metrics.membership_config.membership();
        let Some(member) = members.get_node(&leader) else { return Tried::NotLeader };
        let link = {
            let mut leaders = self.0.leaders.lock().unwrap_or_else(PoisonError::into_inner);
            let link = leaders.entry(leader).or_insert_with(|| Link::new(leader, &member.address));
            if link.address() != member.address {
                *link = Link::new(leader, &member.address);
            }
            link.clone()
        };
        let mut news = self.0.raft.metrics();
        let asked = link.ask(Ask::Request(request), Bytes::new());
        let other = async {
            // A leader that hangs is not waited for longer than it leads.
            while news.borrow_watched().current_leader == Some(leader)
                && news.changed().await.is_ok()
            {}
        };
        tokio::select! {
            told = asked => match told {
                Ok(Tell::Request(Ok((answer, index)))) => Tried::Answered(answer, index),
                Ok(Tell::Request(Err(Refusal::NotLeader))) => Tried::NotLeader,
                Ok(Tell::Request(Err(Refusal::Failed(failure)))) => Tried::Failed(failure),
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

    /// The answer, if this node leads, and the index of the entry that it comes after.
    pub(crate) async fn lead(&self, request: Request) -> Result<(Answer, u64), Refusal> {
        let uncertain = |cause: String| Refusal::Failed(Failure::Unknown(cause));
        if request.is_read() {
            let index = self.0.raft.ensure_linearizable(ReadPolicy::ReadIndex).await;
            let index = index.map_err(|_| Refusal::NotLeader)?.index();
            let answer = self.0.machine.look(|machine, at| machine.read(at, request));
            return answer.map(|answer| (answer, index)).ok_or_else(no_cluster);
        }
        match self.propose(Operation::Request(request)).await {
            Ok((Outcome::Answer(answer), index)) => Ok((answer, index)),
            Ok((Outcome::Done | Outcome::Refused, _)) => Err(no_cluster()),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(Refusal::NotLeader)
            }
            Err(error) => Err(uncertain(error.to_string())),
        }
    }

    /// Puts an entry into the log, if this node leads, and waits until it is applied here.
    async fn propose(
        &self,
        operation: Operation,
    ) -> Result<(Outcome, u64), RaftError<crate::raft::Types, ClientWriteError<crate::raft::Types>>>
    {
        let command = Command { at: self.0.machine.now(), operation };
        let written = self.0.raft.client_write(command).await?;
        Ok((written.data, written.log_id.index))
    }

    /// Lets time pass in the cluster while this node leads: what runs out ends by an entry, on all nodes alike.
    async fn tick(self, mut timer: Timer) {
        let mut applied = self.0.applied.clone();
        let mut last = ClusterTime::default();
        loop {
            let mut metrics = self.0.raft.metrics();
            while metrics.borrow_watched().current_leader != Some(self.0.id) {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
            let now = (self.0.clock)();
            let (due, at) = self.0.machine.look(|machine, at| {
                (machine.poll_timeout().map(|due| due.min(last.after(TICK_MAX))), at)
            });
            if due.is_some_and(|due| due <= at) {
                last = at;
                if let Err(error) = self.propose(Operation::Tick).await {
                    debug!(%error, "time does not pass");
                    self.await_leader().await;
                }
                continue;
            }
            timer.set(due.map(|due| now + due.since(at)));
            tokio::select! {
                () = poll_fn(|context| timer.poll_fired(context)) => {}
                changed = applied.changed() => if changed.is_err() { return },
            }
        }
    }
}

fn no_cluster() -> Refusal {
    let cause = "this node has no cluster yet: found one with `tenured-gateway cluster init`, or add the node to one";
    Refusal::Failed(Failure::Unavailable(cause.to_owned()))
}
