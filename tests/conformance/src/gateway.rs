//! A store behind a gateway, through an agent's whole client of that gateway.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::time::Boottime;
use tenure_gateway::access::Access;
use tenure_gateway::delivery::{Delivery, Networks, Told};
use tenure_gateway::face::{self, Budgets, ControlPlane, Face, Hosts, Limits, People, Plane};
use tenure_gateway::mailbox::{self, Policies};
use tenure_gateway::metrics::Metrics;
use tenure_gateway::store::{self, Clock, Store as Way};
use tenure_gateway::trail::Trail;
use tenure_host::clock;
use tenure_host::directory::Directory;
use tenure_stores::gateway::wire::StoreInfo;
use tenure_stores::gateway::{Gateway, GatewayAccess};
use tenure_stores::journal::Files;
use tenure_stores::redis::Redis;
use tenure_stores::redis::layout::Layout;
use tenure_stores::redis::settings::{RedisAccess, RedisServer};
use tenure_stores::remote::Endpoint;
use tenure_stores::settings::secret::Credentials;
use tenure_stores::settings::{OpenError, Opened, Place};
use tenure_stores::{Upstream, embedded, remote};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::allowances::Allowance;
use crate::client::{Client, Installation, REDIS_WITHOUT_HINTS};
use crate::redis::{EPOCH_US, Server};
use crate::stores::Store;

/// The embedded store behind a gateway.
pub(crate) const EMBEDDED: Store = Store {
    name: "gateway-embedded",
    faults: &[],
    open: |_| Box::new(Client::new(Site::new(Embedded::default()))),
};

/// A Redis behind a gateway.
pub(crate) const REDIS: Store = Store {
    name: "gateway-redis",
    faults: &[],
    open: |_| Box::new(Client::new(Site::new(Server::start()))),
};

/// The corpus's time is so far ahead of the machine's that no timer fires by itself.
pub(crate) const AHEAD: Duration = Duration::from_secs(365 * 24 * 3600);
/// In so many turns of the store's thread all is done that is due: each ends all that a run of the corpus
/// can have at one instant.
const TURNS: usize = 4;
/// From a call of the client to its answer; not a measure of speed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Opens a store.
pub(crate) type Open = Box<dyn FnOnce(Place<'_>) -> Result<Opened, OpenError> + Send>;

/// A store behind a gateway.
pub(crate) trait Behind {
    fn allowances(&self) -> &'static [Allowance];
    fn wipe(&mut self);
    fn set_clock(&mut self, us: u64);
    /// The clock that the gateway goes by.
    fn clock(&self) -> Clock;
    /// True if that is the corpus's.
    fn keeps_time(&self) -> bool {
        false
    }
    /// Opens the store, on the gateway's thread.
    fn opener(&self) -> Open;
}

/// The engine, which goes by the corpus's clock.
#[derive(Default)]
struct Embedded {
    us: Arc<AtomicU64>,
    base: Boottime,
}

impl Behind for Embedded {
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
        self.us = Arc::default();
        self.base = clock::now() + AHEAD;
    }

    fn set_clock(&mut self, us: u64) {
        // Whole ms, as the clock of the plan, so that the same falls into one step.
        self.us.store(us / 1000 * 1000, Ordering::Relaxed);
    }

    fn clock(&self) -> Clock {
        let (us, base) = (Arc::clone(&self.us), self.base);
        Arc::new(move || base + Duration::from_micros(us.load(Ordering::Relaxed)))
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn opener(&self) -> Open {
        let opener = embedded::settings().resolve(None, &Credentials::default());
        let opener = opener.expect("it has no settings");
        Box::new(move |place| opener.open(place))
    }
}

/// Those of a Redis, behind a gateway.
const REDIS_BEHIND: [Allowance; REDIS_WITHOUT_HINTS.len() + 1] = {
    let mut all = [Allowance::OwnWords; REDIS_WITHOUT_HINTS.len() + 1];
    let (_, before) = all.split_at_mut(1);
    before.copy_from_slice(&REDIS_WITHOUT_HINTS);
    all
};

/// A Redis goes by its own clock, and its client by the machine's.
impl Behind for Server {
    fn allowances(&self) -> &'static [Allowance] {
        &REDIS_BEHIND
    }

    fn wipe(&mut self) {
        Server::wipe(self);
    }

    fn set_clock(&mut self, us: u64) {
        Server::set_clock(self, EPOCH_US + us);
    }

    fn clock(&self) -> Clock {
        Arc::new(clock::now)
    }

    fn opener(&self) -> Open {
        let access = RedisAccess::plain(RedisServer::Unix(self.socket()));
        Box::new(move |place| {
            remote::open(place, || Box::new(Redis::open(access, Layout::default())))
        })
    }
}

/// A gateway in this process, and the store behind it.
pub(crate) struct Site<B> {
    behind: B,
    running: Option<Running>,
}

/// A running gateway.
struct Running {
    /// The connections are its tasks.
    runtime: Runtime,
    listener: TcpListener,
    way: Way,
    _directory: TempDir,
}

impl<B: Behind> Site<B> {
    pub(crate) fn new(behind: B) -> Site<B> {
        Site { behind, running: None }
    }

    fn start(&self) -> Running {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let [runtime_dir, state_dir] = ["run", "state"].map(|name| {
            Directory::private(&directory.path().join(name), 0o700).expect("the folder is ours")
        });
        let (clock, open) = (self.behind.clock(), self.behind.opener());
        let now = clock();
        let opened =
            store::spawn(clock, move || -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
                Ok(open(Place {
                    runtime_dir: Box::new(Files::of(runtime_dir)),
                    state_dir: Box::new(Files::of(state_dir)),
                    boot_id: Uuid::nil(),
                    now,
                    wall_clock_us: clock::wall_us(),
                    catch_up: &|_| {},
                })?)
            });
        let (way, _) = opened.expect("the store opens");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be");
        let runtime = serve(&listener, &way);
        Running { runtime, listener, way, _directory: directory }
    }
}

/// Serves agents on a thread of its own, until what it returns is dropped.
fn serve(listener: &TcpListener, way: &Way) -> Runtime {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _guard = runtime.enter();
    let listener = listener.try_clone().expect("a socket can be shared");
    let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
    let metrics = Arc::<Metrics>::default();
    let (told, networks) = (Told::default(), Networks::default());
    let delivery = Delivery::new(way.clone(), "corpus", metrics.routes.clone(), told, networks);
    let limits = Limits::default();
    let face = Face {
        store: way.clone(),
        access: Access::anybody(),
        keys: None,
        metrics,
        info: StoreInfo { kind: "corpus".to_owned(), guarantee: String::new(), id: None },
        trail: Trail::default(),
        drain: CancellationToken::new(),
        budgets: Budgets::new(&limits),
        people: People::new("local".to_owned()),
        plane: Plane::new(Duration::from_secs(90)),
        delivery,
        control: ControlPlane::new(Policies::default(), mailbox::GatewayRun::default()),
    };
    runtime.spawn(face::serve(listener, Arc::new(face), Hosts::default(), limits));
    drop(_guard);
    runtime
}

impl<B: Behind> Installation for Site<B> {
    fn allowances(&self) -> &'static [Allowance] {
        self.behind.allowances()
    }

    fn wipe(&mut self) {
        if let Some(before) = self.running.take() {
            before.runtime.shutdown_background();
        }
        self.behind.wipe();
        self.running = Some(self.start());
    }

    fn set_clock(&mut self, us: u64) {
        self.behind.set_clock(us);
        if let Some(Running { runtime, way, .. }) =
            self.running.as_ref().filter(|_| self.keeps_time())
        {
            for _ in 0..TURNS {
                runtime.block_on(way.health()).expect("the store's thread runs");
            }
        }
    }

    fn keeps_time(&self) -> bool {
        self.behind.keeps_time()
    }

    fn break_connections(&mut self) {
        if let Some(running) = &mut self.running {
            let next = serve(&running.listener, &running.way);
            std::mem::replace(&mut running.runtime, next).shutdown_background();
        }
    }

    fn connect(&self) -> Box<dyn Upstream> {
        let running = self.running.as_ref().expect("a run has begun");
        let address = running.listener.local_addr().expect("it is bound");
        Box::new(Gateway::open(GatewayAccess {
            endpoints: vec![Endpoint::Tcp(address.ip().to_string(), address.port())],
            tls: None,
            proxies: Arc::default(),
            key: None,
            own_key: None,
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
        }))
    }
}
