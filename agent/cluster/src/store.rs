//! A node as the store of its gateway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tenure_core::engine::Effect;
use tenure_core::model::{CallId, Change, Request};
use tenure_core::time::Boottime;
use tenure_stores::{Examination, Health, Report, Upstream};
use tenure_wire::UpstreamState;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::machine::Machine;
use crate::node::Node;
use crate::raft::Listener;

/// The guarantee of a cluster.
pub const GUARANTEE: &str = "linearizable; survives the loss of a minority of its nodes";

/// Changes that wait to be told; beyond, everything is to be read again.
const CHANGES_MAX: usize = 65_536;

/// The changes that a node has applied, on their way to its gateway.
#[derive(Clone)]
pub struct Feed(Arc<Changes>);

struct Changes {
    sender: mpsc::Sender<Report>,
    /// Some were not told.
    lost: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// The end of a feed that is read.
pub struct Heard(mpsc::Receiver<Report>);

/// A feed, and its end. The first thing that it tells is that everything is to be read.
pub fn feed() -> (Feed, Heard) {
    let (sender, heard) = mpsc::channel(CHANGES_MAX);
    let (lost, waker) = (AtomicBool::new(true), Mutex::default());
    (Feed(Arc::new(Changes { sender, lost, waker })), Heard(heard))
}

impl Feed {
    fn tell(&self, report: Report) {
        if self.0.sender.try_send(report).is_err() {
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
            self.tell(told(change, machine));
        }
    }

    fn replaced(&self) {
        self.lose();
    }
}

/// A change in the words of a store. The gateway asks for what it is not told.
fn told(change: Change, machine: &Machine) -> Report {
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
    /// The node's runtime: nothing of it runs on the store's thread.
    runtime: Handle,
    feed: Feed,
    heard: Heard,
    answers: (mpsc::UnboundedSender<Report>, mpsc::UnboundedReceiver<Report>),
}

impl Cluster {
    /// A store over a node that tells this feed.
    #[expect(
        clippy::disallowed_methods,
        reason = "as many answers as calls, which the gateway bounds"
    )]
    pub fn new(node: Node, runtime: Handle, (feed, heard): (Feed, Heard)) -> Cluster {
        Cluster { node, runtime, feed, heard, answers: mpsc::unbounded_channel() }
    }
}

impl Upstream for Cluster {
    fn health(&self) -> Health {
        let leaderless = self.node.view().leader.is_none().then(|| self.node.leaderless());
        let state = match leaderless {
            None => UpstreamState::Up,
            Some(_) => UpstreamState::Down,
        };
        Health {
            state,
            reach: None,
            last_error: leaderless,
            last_error_at: None,
            grants_nothing: None,
            behind: None,
            guarantee: None,
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

    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Report> {
        if self.feed.0.lost.swap(false, Ordering::AcqRel) {
            // The gateway reads all of it again.
            while self.heard.0.try_recv().is_ok() {}
            return Poll::Ready(Report::FeedLost);
        }
        // An answer comes after the changes that it follows from.
        if let Poll::Ready(Some(report)) = self.heard.0.poll_recv(context) {
            return Poll::Ready(report);
        }
        if let Poll::Ready(Some(report)) = self.answers.1.poll_recv(context) {
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
        // What it was told to keep is on the disks.
    }
}
