//! Nodes that run, and requests to them.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tenure_cluster::machine::{Machine, VERSION};
use tenure_cluster::net::{Network, Trust};
use tenure_cluster::node::{BYTES_MAX, IMAGE_EVERY, Node, Setup};
use tenure_cluster::raft::Listener;
use tenure_cluster::{Folder, Tls, host};
use tenure_core::engine::{Effect, EngineSettings};
use tenure_core::model::{
    Answer, Beat, Change, Claim, ClaimAnswer, ClaimId, Owner, Request, Resource, SessionId,
    Subject, Terms,
};
use tenure_wire::Kind;
use tokio::net::TcpListener;
use uuid::Uuid;

pub(crate) const TTL: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Heard(pub(crate) Mutex<Vec<ClaimId>>);

impl Listener for Heard {
    fn applied(&self, effects: Vec<Effect>, _: &Machine) {
        let lost = effects.into_iter().filter_map(|effect| match effect {
            Effect::Change(Change::Lost { claim, .. }) => Some(claim),
            _ => None,
        });
        self.0.lock().unwrap().extend(lost);
    }

    fn replaced(&self) {}
}

pub(crate) struct Running {
    pub(crate) node: Node,
    pub(crate) address: String,
    pub(crate) heard: Arc<Heard>,
    pub(crate) folder: TempDir,
}

/// Starts a node with what is in a folder.
pub(crate) async fn start(folder: TempDir) -> Running {
    start_with(folder, listener().await, None).await
}

pub(crate) async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

pub(crate) async fn start_with(
    folder: TempDir,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
) -> Running {
    let address = listener.local_addr().unwrap().to_string();
    let heard = Arc::<Heard>::default();
    let node = try_start(folder.path(), listener, tls, heard.clone()).await.unwrap();
    Running { node, address, heard, folder }
}

/// Starts a node that the others find at another address than where it listens.
pub(crate) async fn start_at(
    folder: TempDir,
    listener: TcpListener,
    address: String,
    heard: Arc<Heard>,
) -> Running {
    let setup = setup(folder.path(), listener, None, heard.clone()).unwrap();
    let node = Node::start(Setup { address: address.clone(), ..setup }).await.unwrap();
    Running { node, address, heard, folder }
}

/// Starts a node whose program knows the rules of that version.
pub(crate) async fn start_knowing(
    folder: TempDir,
    listener: TcpListener,
    known: u32,
) -> io::Result<Running> {
    let address = listener.local_addr()?.to_string();
    let heard = Arc::<Heard>::default();
    let setup = Setup { known, ..setup(folder.path(), listener, None, heard.clone())? };
    let node = Node::start(setup).await?;
    Ok(Running { node, address, heard, folder })
}

pub(crate) async fn try_start(
    folder: &Path,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    listens: Arc<dyn Listener>,
) -> io::Result<Node> {
    Node::start(setup(folder, listener, tls, listens)?).await
}

fn setup(
    folder: &Path,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    listens: Arc<dyn Listener>,
) -> io::Result<Setup> {
    let (disk, address) = (Box::new(Folder::open(folder)?), listener.local_addr()?.to_string());
    let trust = tls.map_or_else(Trust::own_user, Trust::Certificates);
    let (network, clock, timers) = (Network::tcp(listener, trust), host::clock(), host::timers());
    let (image_every, known, bytes_max) = (IMAGE_EVERY, VERSION, BYTES_MAX);
    Ok(Setup { disk, network, address, clock, timers, listens, image_every, known, bytes_max })
}

impl Running {
    pub(crate) async fn found(&self) {
        self.node
            .found(self.address.clone(), 1_000, EngineSettings::default(), None)
            .await
            .unwrap();
    }

    pub(crate) async fn add(&self, other: &Running) {
        self.node.add(other.node.id(), other.address.clone()).await.unwrap();
    }

    pub(crate) fn cluster(&self) -> Option<Uuid> {
        self.node.view().cluster
    }

    /// Stops it; its folder, and a listener at its address.
    pub(crate) async fn stop(self) -> (TempDir, TcpListener) {
        let Running { node, address, folder, .. } = self;
        node.stop().await;
        drop(node);
        until("its port to be free", async || TcpListener::bind(&address).await.is_ok()).await;
        (folder, TcpListener::bind(&address).await.unwrap())
    }
}

pub(crate) async fn cluster(count: u64) -> Vec<Running> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(start(TempDir::new().unwrap()).await);
    }
    nodes[0].found().await;
    for other in &nodes[1..] {
        nodes[0].add(other).await;
    }
    nodes
}

pub(crate) fn resource() -> Resource {
    Resource { tenant: "default".into(), kind: Kind::Leader, name: "role".into() }
}

pub(crate) fn claim(number: u128, enqueue: bool) -> Request {
    let id = Uuid::from_u128(number);
    Request::Claim(Claim {
        id: ClaimId(id),
        resource: resource(),
        owner: Owner { session: SessionId(id), host: "here".into(), name: "program".into() },
        ttl: TTL,
        terms: Terms::Leader,
        enqueue,
    })
}

pub(crate) fn beat(number: u128) -> Request {
    let subject = Subject::Claim { claim: ClaimId(Uuid::from_u128(number)), resource: resource() };
    Request::Renew(vec![Beat { subject, ttl: TTL }])
}

pub(crate) fn release(number: u128) -> Request {
    Request::Release { claim: ClaimId(Uuid::from_u128(number)), resource: resource() }
}

#[track_caller]
pub(crate) fn token(answer: &Answer) -> u64 {
    match answer {
        Answer::Claim(ClaimAnswer::Held { token, .. }) => *token,
        other => panic!("{other:?} is no grant"),
    }
}

pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !holds().await {
            // Only a pause between two looks.
            let _ =
                tokio::time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited)
        .await
        .unwrap_or_else(|_| panic!("waited for {what}"));
}
