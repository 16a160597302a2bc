//! Clients of the control plane by several libraries, each client with a connection of its own. See `tests/python/plane_client.py`
//! and `tests/go/plane_client.go`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_proto::prism::ProxyRegistration;
use tenure_proto::prism::admin::v1::control_plane_client::ControlPlaneClient;
use tenure_proto::prism::admin::v1::{AcquireLeaseRequest, MailboxHeartbeatRequest};
use tenure_proto::prism::control_plane_client::ControlPlaneClient as ProxiesClient;
use tenure_proto::tenure::v1::WatchRequest;
use tenure_proto::tenure::v1::routes_client::RoutesClient;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::{Foreign, go_program, python};

/// The time of a call, unless a test says otherwise.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two calls of one that works.
const EVERY: Duration = Duration::from_secs(1);
/// The status of a call that did what it was asked for.
const DONE: &str = "OK";

const TIMEOUT: &str = "Timeout expired";

/// A library of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    Grpcio,
    GrpcGo,
    Tonic,
}

impl Library {
    pub const ALL: [Library; 3] = [Library::Grpcio, Library::GrpcGo, Library::Tonic];

    /// Starts clients by it.
    #[track_caller]
    pub fn clients(self) -> Box<dyn PlaneClients> {
        let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client-sdk/proto/protos");
        let python = || python::command("plane_client.py", &[&protos.display().to_string()]);
        match self {
            Library::Grpcio => Box::new(Foreign::start(&mut python())),
            Library::GrpcGo => Box::new(go_program("plane_client", &[])),
            Library::Tonic => Box::new(TonicClients::new()),
        }
    }
}

/// The work of a client.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Work {
    /// How often it has called.
    pub calls: u64,
    /// The statuses of calls and streams that failed.
    pub failed: Vec<String>,
    /// How often it was told of routes.
    pub told: u64,
}

/// Clients, which are known by their names.
pub trait PlaneClients {
    /// Connects one with the library's defaults, or with a ping every so many seconds, also without a call.
    fn open(&mut self, client: &str, address: &str, ping_s: Option<u64>);

    /// Takes a mailbox for an hour; the status with its words, `OK` if it has the mailbox.
    fn take(&mut self, client: &str, mailbox: &str) -> String;

    /// Renews the lease of the mailbox of its name within so long; the status with its words, `OK` if it was renewed.
    fn beat(&mut self, client: &str, within: Duration) -> String;

    /// Follows the routes, and from now on, once a second, changes that of the mailbox of its name and
    /// registers the proxy of its name at that address.
    fn work(&mut self, client: &str, proxy: &str);

    /// Its work so far.
    fn worked(&mut self, client: &str) -> Work;

    /// Ends its work.
    fn rest(&mut self, client: &str);
}

impl Foreign {
    #[track_caller]
    fn of_client(&mut self, what: &str, client: &str, mut with: Value) -> Value {
        with["client"] = json!(client);
        self.call(what, &with)
    }

    #[track_caller]
    fn status(&mut self, client: &str, with: Value) -> String {
        let said = self.of_client("beat", client, with);
        said.as_str().expect("a status is a text").to_owned()
    }
}

impl PlaneClients for Foreign {
    fn open(&mut self, client: &str, address: &str, ping_s: Option<u64>) {
        self.of_client("open", client, json!({"address": address, "ping_s": ping_s}));
    }

    fn take(&mut self, client: &str, mailbox: &str) -> String {
        self.status(client, json!({"mailbox": mailbox, "take": true}))
    }

    fn beat(&mut self, client: &str, within: Duration) -> String {
        let within_s = within.as_secs_f64();
        self.status(client, json!({"mailbox": client, "within_s": within_s}))
    }

    fn work(&mut self, client: &str, proxy: &str) {
        self.of_client("work", client, json!({"mailbox": client, "proxy": proxy}));
    }

    fn worked(&mut self, client: &str) -> Work {
        serde_json::from_value(self.of_client("report", client, json!({}))).expect("a report")
    }

    fn rest(&mut self, client: &str) {
        self.of_client("rest", client, json!({}));
    }
}

/// Clients by tonic.
struct TonicClients {
    clients: HashMap<String, TonicClient>,
    runtime: Runtime,
}

struct TonicClient {
    name: String,
    channel: Channel,
    worked: Arc<Mutex<Work>>,
    work: JoinSet<()>,
}

impl TonicClients {
    fn new() -> TonicClients {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        TonicClients { clients: HashMap::new(), runtime: runtime.expect("threads can be started") }
    }
}

impl PlaneClients for TonicClients {
    fn open(&mut self, client: &str, address: &str, ping_s: Option<u64>) {
        let mut endpoint =
            Endpoint::from_shared(format!("http://{address}")).expect("it is an address");
        if let Some(seconds) = ping_s {
            let every = Duration::from_secs(seconds);
            endpoint = endpoint.http2_keep_alive_interval(every).keep_alive_while_idle(true);
        }
        let _entered = self.runtime.enter();
        let (name, channel) = (client.to_owned(), endpoint.connect_lazy());
        let opened = TonicClient { name, channel, worked: Arc::default(), work: JoinSet::new() };
        self.clients.insert(client.to_owned(), opened);
    }

    fn take(&mut self, client: &str, mailbox: &str) -> String {
        let wanted = AcquireLeaseRequest {
            mailbox_id: mailbox.to_owned(),
            runner_id: mailbox.to_owned(),
            ttl_seconds: 3600,
            ..AcquireLeaseRequest::default()
        };
        let mut plane = ControlPlaneClient::new(self.clients[client].channel.clone());
        outcome(self.runtime.block_on(plane.acquire_lease(timed(wanted, PATIENCE))), |answer| {
            (answer.success, answer.message)
        })
    }

    fn beat(&mut self, client: &str, within: Duration) -> String {
        let TonicClient { channel, name, .. } = &self.clients[client];
        self.runtime.block_on(beat(channel, name, "active", within))
    }

    fn work(&mut self, client: &str, proxy: &str) {
        let _entered = self.runtime.enter();
        let client = self.clients.get_mut(client).expect("it was opened");
        let (channel, worked) = (client.channel.clone(), Arc::clone(&client.worked));
        client.work.spawn(async move {
            let failed = follow(channel, &worked).await;
            lock(&worked).failed.push(format!("the stream: {failed}"));
        });
        let (channel, worked) = (client.channel.clone(), Arc::clone(&client.worked));
        let (name, proxy) = (client.name.clone(), proxy.to_owned());
        client.work.spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            for status in ["active", "degraded"].into_iter().cycle() {
                ticks.tick().await;
                let said = [
                    beat(&channel, &name, status, PATIENCE).await,
                    register(&channel, &name, &proxy).await,
                ];
                let mut worked = lock(&worked);
                worked.calls += 1;
                worked.failed.extend(said.into_iter().filter(|said| said != DONE));
            }
        });
    }

    fn worked(&mut self, client: &str) -> Work {
        lock(&self.clients[client].worked).clone()
    }

    fn rest(&mut self, client: &str) {
        self.clients.get_mut(client).expect("it was opened").work = JoinSet::new();
    }
}

fn lock(worked: &Mutex<Work>) -> MutexGuard<'_, Work> {
    worked.lock().unwrap_or_else(PoisonError::into_inner)
}

fn timed<T>(message: T, within: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(within);
    request
}

fn outcome<T>(
    answer: Result<tonic::Response<T>, Status>,
    of: impl Fn(T) -> (bool, String),
) -> String {
    match answer.map(|answer| of(answer.into_inner())) {
        Ok((true, _)) => DONE.to_owned(),
        Ok((false, message)) => message,
        // The library's own word for a deadline that has passed at the client.
        Err(status) if status.code() == Code::Cancelled && status.message() == TIMEOUT => {
            format!("{:?}: {TIMEOUT}", Code::DeadlineExceeded)
        }
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    }
}

async fn beat(channel: &Channel, mailbox: &str, status: &str, within: Duration) -> String {
    let request = MailboxHeartbeatRequest {
        mailbox_id: mailbox.to_owned(),
        runner_id: mailbox.to_owned(),
        status: status.to_owned(),
        ..MailboxHeartbeatRequest::default()
    };
    let mut plane = ControlPlaneClient::new(channel.clone());
    outcome(plane.mailbox_heartbeat(timed(request, within)).await, |answer| {
        (answer.lease_renewed, answer.message)
    })
}

async fn register(channel: &Channel, id: &str, address: &str) -> String {
    let (proxy_id, address) = (id.to_owned(), address.to_owned());
    let registration = ProxyRegistration { proxy_id, address, ..ProxyRegistration::default() };
    let mut proxies = ProxiesClient::new(channel.clone());
    outcome(proxies.register_proxy(timed(registration, PATIENCE)).await, |ack| {
        (ack.success, ack.message)
    })
}

/// Counts what it is told; the status with which the stream ends.
async fn follow(channel: Channel, worked: &Mutex<Work>) -> Status {
    let mut stream = match RoutesClient::new(channel).watch(WatchRequest::default()).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return status,
    };
    loop {
        match stream.message().await {
            Ok(Some(_)) => lock(worked).told += 1,
            Ok(None) => return Status::ok("it has ended"),
            Err(status) => return status,
        }
    }
}
