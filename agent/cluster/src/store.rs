//! A node as the store of its gateway.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::engine::Effect;
use tenure_core::model::{Answer, CallId, Change, Request};
use tenure_core::time::Boottime;
use tenure_stores::relay::{Relay, Told, What};
use tenure_stores::{Examination, Health, Report, Upstream};
use tenure_wire::UpstreamState;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;

use crate::machine::Machine;
use crate::node::Node;
use crate::raft::Listener;

/// The guarantee of a cluster.
pub const GUARANTEE: &str = "linearizable; survives the loss of a minority of its nodes";

/// The time in which another node is made the leader at the end.
const RESIGN_MAX: Duration = Duration::from_secs(2);
/// Changes that wait to be told; beyond, everything is to be read again.
const CHANGES_MAX: usize = 65_536;

/// The changes that a node has applied, on their way to its gateway.
#[derive(Clone)]
pub struct Feed(Arc<Changes>);

struct Changes {
    sender: mpsc::Sender<Heard>,
    /// Some were not told.
    lost: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// A node's word to its gateway.
enum Heard {
    Report(Report),
    /// News of the gateway at another node.
    Told(Told),
}

/// The end of a feed that is read.
pub struct Hearer(mpsc::Receiver<Heard>);

/// A feed, and its end. The first thing that it tells is that everything is to be read.
pub fn feed() -> (Feed, Hearer) {
    let (sender, heard) = mpsc::channel(CHANGES_MAX);
    let (lost, waker) = (AtomicBool::new(true), Mutex::default());
    (Feed(Arc::new(Changes { sender, lost, waker })), Hearer(heard))
}

impl Feed {
    fn tell(&self, heard: Heard) {
        if self.0.sender.try_send(heard).is_err() {
            self.lose();
        }
    }

    fn lose(&self) {
        self.0.lost.store(true, Ordering::Release);
        if let Some(waker) = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }
}

impl Listener for Feed {
    fn applied(&self, effects: Vec<Effect>, machine: &Machine) {
        for effect in effects {
            let Effect::Change(change) = effect else { continue };
            self.tell(Heard::Report(report(change, machine)));
        }
    }

    fn replaced(&self) {
        self.lose();
    }

    fn told(&self, principal: Arc<str>, news: Vec<u8>) {
        self.tell(Heard::Told(Told { principal, what: What::Relayed(news) }));
    }
}

/// A change in the words of a store. The gateway asks for what it is not told.
fn report(change: Change, machine: &Machine) -> Report {
    match change {
        Change::Lost { claim, resource } => {
            let engine = machine.engine();
            match engine.and_then(|engine| engine.why_gone(claim)) {
                Some(reason) => {
                    let revocation = engine.and_then(|engine| engine.revocation(claim));
                    Report::Lost { claim, reason, revocation }
                }
                None => Report::Change(Change::Lost { claim, resource }),
            }
        }
        // Its times are by the cluster's clock.
        Change::Granted { claim, resource, .. } => {
            Report::Change(Change::Granted { claim, resource, grant: None })
        }
        change => Report::Change(change),
    }
}

/// The store of a gateway: the node beside it, which asks whichever node leads.
pub struct Cluster {
    node: Node,
    /// The node's threads: nothing of it runs on the store's.
    threads: Option<Runtime>,
    runtime: Handle,
    feed: Feed,
    hearer: Hearer,
    answers: (mpsc::UnboundedSender<Report>, mpsc::UnboundedReceiver<Report>),
    /// An answer that waits for the changes before it.
    answered: Option<Report>,
    /// News of gateways at other nodes.
    told: VecDeque<Told>,
}

impl Cluster {
    /// A store over a node that runs on these threads, and tells this feed.
    pub fn new(node: Node, threads: Runtime, feed: (Feed, Hearer)) -> Cluster {
        let runtime = threads.handle().clone();
        let mut cluster = Cluster::over(node, runtime, feed);
        cluster.threads = Some(threads);
        cluster
    }

    /// A store over a node that others end.
    #[expect(
        clippy::disallowed_methods,
        reason = "as many answers as calls, which the gateway bounds"
    )]
    pub fn over(node: Node, runtime: Handle, (feed, hearer): (Feed, Hearer)) -> Cluster {
        let (answers, told) = (mpsc::unbounded_channel(), VecDeque::new());
        Cluster { node, threads: None, runtime, feed, hearer, answers, answered: None, told }
    }
}

impl Drop for Cluster {
    /// Has another node lead, and ends the threads of this one: whatever it said to be kept is on the disks.
    fn drop(&mut self) {
        let Some(threads) = self.threads.take() else { return };
        let node = self.node.clone();
        let (ended, is_over) = std::sync::mpsc::sync_channel::<()>(1);
        threads.spawn(async move {
            node.resign().await;
            node.stop().await;
            drop(ended);
        });
        // It ends without a word, or not in time.
        let _ = is_over.recv_timeout(RESIGN_MAX);
        threads.shutdown_background();
    }
}

impl Upstream for Cluster {
    fn health(&self) -> Health {
        let view = self.node.view();
        let leaderless = view.leader.is_none().then(|| self.node.leaderless());
        let state = match leaderless {
            None => UpstreamState::Up,
            Some(_) => UpstreamState::Down,
        };
        Health {
            last_error: leaderless,
            store_id: view.cluster.map(|cluster| cluster.to_string().into()),
            nodes: Some(self.node.nodes()),
            unready: self.node.unready(),
            ..Health::of(state)
        }
    }

    fn examine(&self) -> Examination {
        let node = self.node.clone();
        Box::pin(async move { crate::examine::checks(&node).await })
    }

    fn shares_journal(&self) -> bool {
        false
    }

    fn submit(&mut self, now: Boottime, call: CallId, request: Request) {
        let (node, answers) = (self.node.clone(), self.answers.0.clone());
        self.runtime.spawn(async move {
            let result = node.ask(request).await;
            // The store may have ended.
            let _ = answers.send(Report::Answer { call, sent_at: now, result });
        });
    }

    fn as_relay(&mut self) -> Option<&mut dyn Relay> {
        Some(self)
    }

    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Report> {
        if self.feed.0.lost.swap(false, Ordering::AcqRel) {
            // The gateway reads all of it again.
            while self.hearer.0.try_recv().is_ok() {}
            return Poll::Ready(Report::FeedLost);
        }
        // An answer comes after the changes that it follows from: they were told before it. It is taken first, because
        // both may come between the two looks.
        if self.answered.is_none()
            && let Poll::Ready(answer) = self.answers.1.poll_recv(context)
        {
            self.answered = answer;
        }
        while let Poll::Ready(Some(heard)) = self.hearer.0.poll_recv(context) {
            match heard {
                Heard::Report(report) => return Poll::Ready(report),
                Heard::Told(told) => self.told.push_back(told),
            }
        }
        if let Some(report) = self.answered.take() {
            return Poll::Ready(report);
        }
        let waker = context.waker().clone();
        *self.feed.0.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
        match self.feed.0.lost.load(Ordering::Acquire) {
            true => self.poll_report(context),
            false => Poll::Pending,
        }
    }

    fn poll_timeout(&self) -> Option<Boottime> {
        None
    }

    fn handle_timeout(&mut self, _: Boottime) {}

    fn close(&mut self) {
        // All that it was told to keep is on the disks.
    }
}

/// Every node applies everything, so that a gateway hears of all claims by itself. What is told from one to another
/// is what one alone knows: who asked it about a resource.
impl Relay for Cluster {
    fn begin(&mut self) {}

    fn attend(&mut self, now: Boottime, call: CallId, _: Arc<str>) {
        let result = Ok(Answer::Announced);
        // This store has its end.
        let _ = self.answers.0.send(Report::Answer { call, sent_at: now, result });
    }

    fn leave(&mut self, _: Boottime, _: Arc<str>) {}

    fn relay(&mut self, _: Boottime, principal: Arc<str>, news: Vec<u8>) {
        let _threads = self.runtime.enter();
        self.node.tell_others(&principal, news);
    }

    fn next_told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }
}
