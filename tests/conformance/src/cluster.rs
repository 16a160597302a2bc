//! A cluster of three nodes behind a gateway at the one that leads. The nodes go by the corpus's clock, and their disks are real
//! ones.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tempfile::TempDir;
use tenure_cluster::Folder;
use tenure_cluster::host::Alarm;
use tenure_cluster::machine::{Machine, VERSION};
use tenure_cluster::net::{Network, Trust};
use tenure_cluster::node::{BYTES_MAX, IMAGE_EVERY, Node, Setup, Verdict};
use tenure_cluster::raft::Listener;
use tenure_cluster::store::{Cluster, feed};
use tenure_core::engine::{Effect, EngineSettings};
use tenure_core::time::Boottime;
use tenure_gateway::store::Clock;
use tenure_host::clock;
use tenure_stores::remote;
use tenure_stores::settings::OpenError;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::allowances::Allowance;
use crate::client::Client;
use crate::gateway::{AHEAD, Behind, Open, Site, TIMEOUT};
use crate::stores::Store;

pub(crate) const STORE: Store = Store {
    name: "gateway-cluster",
    faults: &[],
    open: |_| Box::new(Client::new(Site::new(Nodes::default()))),
};

/// Tokens are greater, as in the plans.
const TOKEN_FLOOR: u64 = 1500;
/// Threads of the nodes, as many as a gateway gives one.
const THREADS: usize = 2;
const NODES: usize = 3;

/// The nodes of a cluster.
#[derive(Default)]
struct Nodes {
    time: Arc<Time>,
    folder: Option<TempDir>,
    running: Arc<Mutex<Option<Running>>>,
}

#[derive(Clone)]
struct Running {
    /// The first of them leads, and has the gateway.
    nodes: Vec<Node>,
    threads: Arc<Runtime>,
}

/// Has no gateway.
struct Nobody;

impl Listener for Nobody {
    fn applied(&self, _: Vec<Effect>, _: &Machine) {}
    fn replaced(&self) {}
}

/// The time of the hosts, which passes when the corpus says so.
#[derive(Default)]
struct Time {
    base: Boottime,
    us: AtomicU64,
    alarms: Mutex<Vec<Arc<Mutex<Armed>>>>,
}

#[derive(Default)]
struct Armed {
    at: Option<Boottime>,
    waker: Option<Waker>,
}

struct TestAlarm {
    time: Arc<Time>,
    armed: Arc<Mutex<Armed>>,
}

impl Time {
    fn now(&self) -> Boottime {
        self.base + Duration::from_micros(self.us.load(Ordering::Acquire))
    }

    fn alarm(self: &Arc<Time>) -> Box<dyn Alarm> {
        let armed = Arc::<Mutex<Armed>>::default();
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&armed));
        Box::new(TestAlarm { time: Arc::clone(self), armed })
    }

    fn ring(&self) {
        let now = self.now();
        for armed in self.alarms.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let mut armed = armed.lock().unwrap_or_else(PoisonError::into_inner);
            if armed.at.is_some_and(|at| at <= now) {
                armed.waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl Alarm for TestAlarm {
    fn set(&mut self, at: Option<Boottime>) {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner).at = at;
    }

    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        if armed.at.is_some_and(|at| at <= self.time.now()) {
            armed.at = None;
            return Poll::Ready(());
        }
        armed.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Nodes {
    fn running(&self) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A node that goes by the corpus's clock, with a folder of its own in this one, and its address.
async fn start(
    within: &Path,
    number: usize,
    time: &Arc<Time>,
    listens: Arc<dyn Listener>,
) -> io::Result<(Node, String)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let (now, timers) = (Arc::clone(time), Arc::clone(time));
    let setup = Setup {
        disk: Box::new(Folder::open(&within.join(number.to_string()))?),
        network: Network::tcp(listener, Trust::own_user()),
        address: address.clone(),
        clock: Arc::new(move || now.now()),
        timers: Arc::new(move || Ok(timers.alarm())),
        listens,
        image_every: IMAGE_EVERY,
        known: VERSION,
        bytes_max: BYTES_MAX,
    };
    Ok((Node::start(setup).await?, address))
}

impl Behind for Nodes {
    fn allowances(&self) -> &'static [Allowance] {
        &[
            Allowance::NoVersionHints,
            Allowance::TellsInTime,
            Allowance::NoHints,
            Allowance::OtherVersions,
            Allowance::OwnWords,
        ]
    }

    fn wipe(&mut self) {
        if let Some(Running { nodes, threads }) = self.running() {
            // The gateway's node has not stopped: it has threads that are not the store's.
            threads.block_on(async {
                let compared = nodes[0].compare().await;
                assert!(!matches!(compared, Verdict::Split | Verdict::Alone), "nodes differ");
                for node in nodes {
                    node.stop().await;
                }
            });
        }
        *self = Nodes::default();
        self.folder = Some(tempfile::tempdir().expect("a temporary folder"));
        self.time = Arc::new(Time { base: clock::now() + AHEAD, ..Time::default() });
    }

    fn set_clock(&mut self, us: u64) {
        // Whole ms, as the clock of the plan, so that the same falls into one step.
        self.time.us.store(us / 1000 * 1000, Ordering::Release);
        self.time.ring();
        let Some(Running { nodes, threads }) = self.running() else { return };
        threads.block_on(async {
            let is_due = |due: Option<_>, at| due.is_some_and(|due| due <= at);
            let done = async {
                while nodes[0]
                    .look(|machine, at| is_due(machine.poll_timeout(), at))
                    .await
                    .expect("the node leads")
                {}
            };
            tokio::time::timeout(TIMEOUT, done).await.expect("what is due ends");
        });
    }

    fn clock(&self) -> Clock {
        let time = Arc::clone(&self.time);
        Arc::new(move || time.now())
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn opener(&self) -> Open {
        let (time, running) = (Arc::clone(&self.time), Arc::clone(&self.running));
        let path = self.folder.as_ref().expect("a run has begun").path().to_owned();
        Box::new(move |place| {
            let threads = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
            let threads = threads.map_err(OpenError::Start)?;
            let (feed, hearer) = feed();
            let (listens, (started, is_started)) =
                (Arc::new(feed.clone()), std::sync::mpsc::sync_channel(1));
            threads.spawn(async move {
                let start = async {
                    let (leader, address) = start(&path, 0, &time, listens).await?;
                    leader.found(address, TOKEN_FLOOR, EngineSettings::default(), None).await?;
                    let mut nodes = vec![leader];
                    for number in 1..NODES {
                        let (node, address) = start(&path, number, &time, Arc::new(Nobody)).await?;
                        let added = nodes[0].add(node.id(), address).await;
                        added.map_err(io::Error::other)?;
                        nodes.push(node);
                    }
                    io::Result::Ok(nodes)
                };
                started.send(start.await).expect("the store waits for it");
            });
            let nodes =
                is_started.recv().expect("it says how it went").map_err(OpenError::Start)?;
            let node = nodes[0].clone();
            let mut known = running.lock().unwrap_or_else(PoisonError::into_inner);
            let runtime = threads.handle().clone();
            *known = Some(Running { nodes, threads: Arc::new(threads) });
            remote::open(place, || Box::new(Cluster::over(node, runtime, (feed, hearer))))
        })
    }
}
