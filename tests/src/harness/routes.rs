//! Runners that hold mailboxes, proxies that are told of their routes, and streams of routes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_proto::prism::admin::v1 as admin;
use tenure_proto::prism::admin::v1::control_plane_server::{ControlPlane, ControlPlaneServer};
use tenure_proto::prism::control_plane_client::ControlPlaneClient;
use tenure_proto::prism::{ProxyRegistration, ProxyRegistrationAck};
use tenure_proto::tenure::v1::routes_client::RoutesClient;
use tenure_proto::tenure::v1::{RouteChange, WatchRequest};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use super::{DEADLINE, Gateway, Key, Watched, boottime_ns, free_port};

/// The tenant of a key without one.
const TENANT: &str = "default";

/// Programs that hold mailboxes, over the calls of an agent.
pub struct Runners<'a> {
    gateway: &'a Gateway,
    header: String,
    mark: String,
}

impl<'a> Runners<'a> {
    /// Those of a principal.
    pub fn new(gateway: &'a Gateway, key: Option<&Key>) -> Runners<'a> {
        let header = key.map(Key::header).unwrap_or_default();
        let mut runners = Runners { gateway, header, mark: String::new() };
        let welcome = runners.post("hello", &json!({"protocol": 1, "version": "x"}));
        welcome["mark"].as_str().expect("it has one").clone_into(&mut runners.mark);
        runners
    }

    fn post(&self, operation: &str, body: &Value) -> Value {
        let head = format!("POST /v1/upstream/{operation}");
        let answer = self.gateway.call_with(&self.header, &head, &body.to_string());
        let (status, answer) = answer.expect("the gateway answers");
        assert_eq!(status, 200, "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("it has a body");
        serde_json::from_str(body).unwrap_or(Value::Null)
    }

    fn id(&self, number: usize) -> String {
        format!("67e55044-10b1-426f-{number:04x}-{}", self.mark)
    }

    /// The runner of that number takes a mailbox for 60 s, or says something else of it.
    #[track_caller]
    pub fn take(&self, number: usize, mailbox: &str, status: &str) {
        self.take_for(number, mailbox, status, 60, 60);
    }

    /// The same for so many seconds, and so many of grace.
    #[track_caller]
    pub fn take_for(&self, number: usize, mailbox: &str, status: &str, ttl: u64, grace: u64) {
        let resource = json!({"tenant": TENANT, "kind": "lease", "name": mailbox});
        let owner = json!({"session": self.id(number), "host": "alpha", "name": runner(number)});
        let address = format!("10.0.0.1:{number}");
        let attributes = json!({"address": address, "proxy_id": "proxy-01", "status": status});
        let terms = json!({"Lease": {"grace": seconds(grace), "attributes": attributes}});
        let claim = json!({"id": self.id(number), "resource": resource, "owner": owner,
            "ttl": seconds(ttl), "terms": terms, "enqueue": false});
        let answer = self.post("claim", &claim);
        assert!(answer.to_string().contains("Held"), "{answer}");
    }

    /// Runners renew their mailboxes for so many seconds from now on, at the same instant; 512 at most.
    #[track_caller]
    pub fn renew(&self, mailboxes: impl Iterator<Item = (usize, String)>, ttl: u64) {
        let beat = |(number, mailbox)| {
            let resource = json!({"tenant": TENANT, "kind": "lease", "name": mailbox});
            let claim = json!({"claim": self.id(number), "resource": resource});
            json!({"subject": {"Claim": claim}, "ttl": seconds(ttl)})
        };
        let answer = self.post("renew", &json!({"beats": Vec::from_iter(mailboxes.map(beat))}));
        let answers = answer["beats"].as_array().expect("one for each");
        assert!(answers.iter().all(|it| !it["Held"].is_null()), "{answer}");
    }

    /// It gives the mailbox up.
    #[track_caller]
    pub fn release(&self, number: usize, mailbox: &str) {
        let resource = json!({"tenant": TENANT, "kind": "lease", "name": mailbox});
        self.post("release", &json!({"claim": self.id(number), "resource": resource}));
    }
}

/// The name of the runner of that number.
pub fn runner(number: usize) -> String {
    format!("runner-{number}")
}

fn seconds(secs: u64) -> Value {
    json!({"secs": secs, "nanos": 0})
}

/// The routes that a proxy was told.
#[derive(Debug, Default)]
pub struct Told {
    /// The runner and the status of each mailbox.
    pub routes: BTreeMap<String, (String, String)>,
    /// The latest version of each mailbox, whether it has a route or not.
    versions: BTreeMap<String, u64>,
    /// When it was told of each mailbox last, in ns of CLOCK_BOOTTIME.
    pub at: BTreeMap<String, u64>,
}

/// A proxy: a gRPC server.
pub struct FakeProxy {
    /// Its id.
    pub id: String,
    address: SocketAddr,
    delay: Duration,
    told: Arc<Watched<Told>>,
    server: Option<Runtime>,
}

impl FakeProxy {
    /// One that answers after so long.
    pub fn start(id: &str, delay: Duration) -> FakeProxy {
        FakeProxy::start_at(id, Ipv4Addr::LOCALHOST, delay)
    }

    /// The same at another address of this thread's network.
    pub fn start_at(id: &str, ip: Ipv4Addr, delay: Duration) -> FakeProxy {
        let told = Arc::new(Watched::default());
        let (id, address) = (id.to_owned(), SocketAddr::from((ip, free_port())));
        let mut proxy = FakeProxy { id, address, delay, told, server: None };
        proxy.start_again();
        proxy
    }

    /// It is gone, with all that it knew.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown_timeout(DEADLINE);
        }
        *self.told.lock() = Told::default();
    }

    /// It comes back, and knows nothing.
    pub fn start_again(&mut self) {
        let service = Service { told: Arc::clone(&self.told), delay: self.delay };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a thread can be started");
        let mut server = tonic::transport::Server::builder();
        let server = server.add_service(ControlPlaneServer::new(service)).serve(self.address);
        runtime.spawn(server);
        self.server = Some(runtime);
    }

    /// The address at which it can be told.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The routes that it was told.
    pub fn told(&self) -> &Watched<Told> {
        &self.told
    }

    /// Waits until it knows these mailboxes, with their runners, and no others.
    #[track_caller]
    pub fn knows(&self, expected: &BTreeMap<String, (String, String)>) {
        let found = self.told.wait(|told| (told.routes == *expected).then_some(()));
        if let Err(told) = found {
            panic!("{} knows {:?}, and not {expected:?}", self.id, told.routes);
        }
    }
}

impl Drop for FakeProxy {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
    }
}

struct Service {
    told: Arc<Watched<Told>>,
    delay: Duration,
}

impl Service {
    #[expect(clippy::disallowed_methods, reason = "a slow proxy sleeps when its machine does")]
    async fn take(&self, mailbox: String, version: u64, route: Option<(String, String)>) {
        tokio::time::sleep(self.delay).await;
        self.told.change(|told| {
            let latest = told.versions.entry(mailbox.clone()).or_default();
            if version < *latest {
                return;
            }
            *latest = version;
            told.at.insert(mailbox.clone(), boottime_ns());
            match route {
                Some(route) => drop(told.routes.insert(mailbox, route)),
                None => drop(told.routes.remove(&mailbox)),
            }
        });
    }
}

#[tonic::async_trait]
impl ControlPlane for Service {
    async fn acquire_lease(
        &self,
        _: Request<admin::AcquireLeaseRequest>,
    ) -> Result<Response<admin::AcquireLeaseResponse>, Status> {
        Err(Status::unimplemented("a proxy grants nothing"))
    }

    async fn release_lease(
        &self,
        _: Request<admin::ReleaseLeaseRequest>,
    ) -> Result<Response<admin::ReleaseLeaseResponse>, Status> {
        Err(Status::unimplemented("a proxy grants nothing"))
    }

    async fn mailbox_heartbeat(
        &self,
        _: Request<admin::MailboxHeartbeatRequest>,
    ) -> Result<Response<admin::MailboxHeartbeatResponse>, Status> {
        Err(Status::unimplemented("a proxy grants nothing"))
    }

    async fn update_mailbox_route(
        &self,
        request: Request<admin::MailboxRouteUpdate>,
    ) -> Result<Response<admin::MailboxRouteUpdateAck>, Status> {
        let admin::MailboxRouteUpdate { mailbox_id, runner_id, status, version, .. } =
            request.into_inner();
        self.take(mailbox_id, version, Some((runner_id, status))).await;
        Ok(Response::new(admin::MailboxRouteUpdateAck { success: true }))
    }

    async fn remove_mailbox_route(
        &self,
        request: Request<admin::MailboxRouteRemoval>,
    ) -> Result<Response<admin::MailboxRouteRemovalAck>, Status> {
        let admin::MailboxRouteRemoval { mailbox_id, version } = request.into_inner();
        self.take(mailbox_id, version, None).await;
        Ok(Response::new(admin::MailboxRouteRemovalAck { success: true }))
    }
}

/// A channel to a gateway.
pub fn channel(gateway: &Gateway) -> Channel {
    Endpoint::from_shared(gateway.url()).expect("it has a URL").connect_lazy()
}

fn with_key<T>(key: Option<&Key>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(key) = key {
        let value = format!("Bearer {}", key.text).parse().expect("a key is ASCII");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// Registers a proxy.
///
/// # Errors
///
/// As the gateway says.
pub async fn register(
    gateway: &Gateway,
    key: Option<&Key>,
    id: &str,
    address: &str,
) -> Result<ProxyRegistrationAck, Status> {
    let (proxy_id, address) = (id.to_owned(), address.to_owned());
    let registration = ProxyRegistration { proxy_id, address, ..ProxyRegistration::default() };
    let mut client = ControlPlaneClient::new(channel(gateway));
    client.register_proxy(with_key(key, registration)).await.map(Response::into_inner)
}

/// A stream of routes, and what its reader has of it.
pub struct RouteStream {
    stream: Streaming<RouteChange>,
    /// The version to resume from.
    pub version: u64,
    /// The runner and the status of each mailbox.
    pub routes: BTreeMap<String, (String, String)>,
}

impl RouteStream {
    /// Opens one from the beginning.
    ///
    /// # Errors
    ///
    /// As the gateway says.
    pub async fn open(channel: Channel, key: Option<&Key>) -> Result<RouteStream, Status> {
        let stream = watch(channel, key, 0).await?;
        Ok(RouteStream { stream, version: 0, routes: BTreeMap::new() })
    }

    /// Goes on at this gateway.
    ///
    /// # Errors
    ///
    /// As the gateway says.
    pub async fn go_on_at(&mut self, channel: Channel, key: Option<&Key>) -> Result<(), Status> {
        self.stream = watch(channel, key, self.version).await?;
        Ok(())
    }

    /// Takes the next message, whose version must not go back.
    ///
    /// # Errors
    ///
    /// When the stream has ended.
    pub async fn next(&mut self) -> Result<RouteChange, Status> {
        let message = self.stream.message().await?;
        let change = message.ok_or_else(|| Status::new(Code::Ok, "the stream has ended"))?;
        assert!(change.version >= self.version, "{} < {}", change.version, self.version);
        self.version = change.version;
        if change.is_snapshot {
            self.routes.clear();
        }
        for route in &change.updated {
            let said = (route.runner_id.clone(), route.status.clone());
            self.routes.insert(route.mailbox_id.clone(), said);
        }
        for mailbox in &change.removed {
            self.routes.remove(mailbox);
        }
        Ok(change)
    }

    /// Reads until its reader knows these mailboxes, and no others.
    ///
    /// # Panics
    ///
    /// When the stream ends.
    pub async fn until(&mut self, expected: &BTreeMap<String, (String, String)>) {
        let wanted = async {
            while self.routes != *expected {
                self.next().await.expect("the stream goes on");
            }
        };
        let found = tokio::time::timeout(DEADLINE, wanted).await;
        assert!(found.is_ok(), "it knows {:?}, and not {expected:?}", self.routes);
    }
}

async fn watch(
    channel: Channel,
    key: Option<&Key>,
    from_version: u64,
) -> Result<Streaming<RouteChange>, Status> {
    let request = WatchRequest { from_version, tenant: String::new() };
    let answer = RoutesClient::new(channel).watch(with_key(key, request)).await;
    answer.map(Response::into_inner)
}
