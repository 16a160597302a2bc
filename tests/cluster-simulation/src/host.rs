//! A host: its clock, its disk, and the process of its node. Each has a runtime of its own, whose time goes on only
//! while the process runs.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_cluster::disk::Disk as _;
use tenure_cluster::host::Alarm;
use tenure_cluster::machine::{Machine, VERSION};
use tenure_cluster::node::{BYTES_MAX, IMAGE_EVERY, Node, Setup, View};
use tenure_cluster::raft::Listener;
use tenure_core::engine::Effect;
use tenure_core::model::{Answer, Failure, Request};
use tenure_core::time::Boottime;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::chance::Random;
use crate::disk::SimDisk;
use crate::network::Net;

/// Entries between two images: seldom, and so often that nodes that were away need one.
const IMAGES_EVERY: [u64; 3] = [40, 200, IMAGE_EVERY];

/// A part of the time that a disk takes while its node starts.
const START_STEP: Duration = Duration::from_millis(1);

/// The answer to a request, once it comes. It ends without one when the process does.
pub(crate) type Reply = oneshot::Receiver<Result<Answer, Failure>>;

pub(crate) struct Host {
    number: usize,
    net: Net,
    pub(crate) disk: SimDisk,
    clock: Arc<HostClock>,
    /// How much faster its clock is than true time, per million.
    drift_ppm: i64,
    /// Entries between two images of its node.
    image_every: u64,
    /// The version of the machine's rules that its program knows.
    pub(crate) known: u32,
    process: Option<Process>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    /// Its processes stand still, and so do timers that do not count sleep.
    Asleep,
    /// Its process stands still; all timers go on.
    Stopped {
        since_us: u64,
    },
}

struct Process {
    // Dropped before its runtime.
    node: Node,
    runtime: Runtime,
}

#[derive(Default)]
struct HostClock {
    boottime_ns: AtomicU64,
    alarms: Mutex<Vec<Arc<Mutex<Armed>>>>,
}

#[derive(Default)]
struct Armed {
    at: Option<Boottime>,
    waker: Option<Waker>,
}

struct SimAlarm {
    clock: Arc<HostClock>,
    armed: Arc<Mutex<Armed>>,
}

impl HostClock {
    fn now(&self) -> Boottime {
        Boottime::from_nanos(self.boottime_ns.load(Ordering::Relaxed))
    }

    fn alarm(self: &Arc<HostClock>) -> Box<dyn Alarm> {
        let armed = Arc::<Mutex<Armed>>::default();
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&armed));
        Box::new(SimAlarm { clock: Arc::clone(self), armed })
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

impl Alarm for SimAlarm {
    fn set(&mut self, at: Option<Boottime>) {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner).at = at;
    }

    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        if armed.at.is_some_and(|at| at <= self.clock.now()) {
            armed.at = None;
            return Poll::Ready(());
        }
        armed.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

struct Nobody;

impl Listener for Nobody {
    fn applied(&self, _: Vec<Effect>, _: &Machine) {}
    fn replaced(&self) {}
}

impl Host {
    /// A host that was just switched on; nothing runs there yet.
    pub(crate) fn new(number: usize, net: &Net, random: &mut Random, disk_lies: bool) -> Host {
        let drift_ppm = random.number(0, 400) as i64 - 200;
        let disk = SimDisk::new(random.number(1, 1 << 50), disk_lies);
        let image_every = IMAGES_EVERY[random.index(IMAGES_EVERY.len())];
        let (clock, state) = (Arc::<HostClock>::default(), State::Runs);
        clock.boottime_ns.store(random.number(1, 1 << 50), Ordering::Relaxed);
        let (net, process, known) = (net.clone(), None, VERSION);
        Host { number, net, disk, clock, drift_ppm, image_every, known, process, state }
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        self.process.as_ref().map(|process| &process.node)
    }

    pub(crate) fn runs(&self) -> bool {
        self.process.is_some() && self.state == State::Runs
    }

    /// Starts its process.
    pub(crate) fn start(&mut self) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let (now, timers) = (Arc::clone(&self.clock), Arc::clone(&self.clock));
        let setup = Setup {
            disk: Box::new(self.disk.clone()),
            network: self.net.of(self.number),
            address: Net::address(self.number),
            clock: Arc::new(move || now.now()),
            timers: Arc::new(move || Ok(timers.alarm())),
            listens: Arc::new(Nobody),
            image_every: self.image_every,
            known: self.known,
            bytes_max: BYTES_MAX,
        };
        let mut starting = Box::pin(Node::start(setup));
        let node = loop {
            let turn = async { tokio::time::timeout(START_STEP, &mut starting).await };
            match runtime.block_on(turn) {
                Ok(node) => break node.expect("the node starts"),
                // It may write an image first.
                Err(_) => self.disk.go_on(START_STEP),
            }
        };
        self.process = Some(Process { node, runtime });
    }

    /// Ends its process at once. `is_dark` if the whole host loses its power.
    pub(crate) fn kill(&mut self, random: &mut Random, is_dark: bool) {
        self.state = State::Runs;
        self.net.leave(self.number, is_dark);
        self.process = None;
        self.disk.lose(random, is_dark);
        self.clock.alarms.lock().unwrap_or_else(PoisonError::into_inner).clear();
        if is_dark {
            self.clock.boottime_ns.store(random.number(1, 1 << 40), Ordering::Relaxed);
        }
    }

    /// It has a new disk, and is another node.
    pub(crate) fn replace(&mut self, random: &mut Random) {
        self.kill(random, false);
        self.disk = SimDisk::new(random.number(1, 1 << 50), self.disk.lies());
        self.start();
    }

    /// The cluster as its node knows it, by the time of that process: elsewhere it would be the machine's.
    pub(crate) fn view(&self) -> Option<View> {
        let Process { node, runtime } = self.process.as_ref()?;
        let _inside = runtime.enter();
        Some(node.view())
    }

    /// True if it leads as far as it knows.
    pub(crate) fn leads(&self) -> bool {
        self.runs() && self.view().is_some_and(|view| view.leader == Some(self.disk.id()))
    }

    pub(crate) fn sleep(&mut self) {
        self.state = State::Asleep;
    }

    pub(crate) fn stop(&mut self, now_us: u64) {
        self.state = State::Stopped { since_us: now_us };
    }

    /// Goes on after it slept or was stopped.
    pub(crate) fn wake(&mut self, now_us: u64) {
        if let (State::Stopped { since_us }, Some(process)) = (self.state, &self.process) {
            let passed = Duration::from_micros(now_us - since_us);
            process.runtime.block_on(tokio::time::advance(passed));
        }
        self.state = State::Runs;
    }

    /// Time passes there.
    pub(crate) fn pass(&mut self, now_us: u64, step_us: u64) {
        let step_ns =
            (step_us * 1000).saturating_add_signed(step_us as i64 * self.drift_ppm / 1000);
        self.clock.boottime_ns.fetch_add(step_ns, Ordering::Relaxed);
        self.disk.pass(now_us);
        if let (State::Runs, Some(process)) = (self.state, &self.process) {
            self.clock.ring();
            // tokio's time goes to the next timer whenever nothing is left to do.
            let step = Duration::from_micros(step_us);
            let turn = async { tokio::time::timeout(step, pending::<()>()).await };
            let _ = process.runtime.block_on(turn);
        }
    }

    /// Asks the node of its process.
    pub(crate) fn ask(&self, request: Request) -> Reply {
        let (reply, replied) = oneshot::channel();
        if let Some(Process { node, runtime }) = &self.process {
            let node = node.clone();
            runtime.spawn(async move {
                // Whoever asked may have gone.
                drop(reply.send(node.ask(request).await));
            });
        }
        replied
    }

    /// Has a task run in its process.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, is_done) = oneshot::channel();
        if let Some(process) = &self.process {
            process.runtime.spawn(async move { drop(done.send(task.await)) });
        }
        is_done
    }
}
