//! An etcd of three nodes, called over gRPC.

use std::process::{Command, Stdio};
use std::time::Duration;

use prost::Message;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::etcd::free_address;
use crate::bench::machine::installed;
use crate::harness::{DEADLINE, Program, boottime_ns};

/// A call that has no answer by then has none.
const ANSWER_MAX: Duration = Duration::from_secs(2);

// The parts of etcd's messages that are used here; its numbers are fixed.

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

/// That a key was created at revision 0: there is none.
#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
}

const EQUAL: i32 = 0;
const CREATE: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct OfKey {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Do {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Do>,
}

#[derive(Clone, PartialEq, Message)]
struct Decided {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Found {
    #[prost(int64, tag = "4")]
    count: i64,
}

/// Three nodes. Dropping it kills them.
pub(in crate::bench) struct EtcdCluster {
    nodes: Vec<Program>,
    endpoints: Vec<String>,
    _dir: TempDir,
}

impl EtcdCluster {
    pub(in crate::bench) fn start() -> anyhow::Result<EtcdCluster> {
        anyhow::ensure!(installed("etcd"), "etcd is not installed");
        let dir = TempDir::with_prefix("etcd-")?;
        let places = [(); 3].map(|()| Ok::<_, anyhow::Error>((free_address()?, free_address()?)));
        let places: Vec<_> = places.into_iter().collect::<Result<_, _>>()?;
        let peers =
            places.iter().enumerate().map(|(node, (_, peer))| format!("n{node}=http://{peer}"));
        let peers = peers.collect::<Vec<_>>().join(",");
        let mut nodes = Vec::new();
        for (node, (client, peer)) in places.iter().enumerate() {
            let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
            let log = std::fs::File::create(dir.path().join(format!("n{node}.log")))?;
            nodes.push(Program::start(
                Command::new("etcd")
                    .args(["--name", &format!("n{node}"), "--data-dir"])
                    .arg(dir.path().join(format!("n{node}")))
                    .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                    .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                    .args(["--initial-cluster", &peers])
                    .stdin(Stdio::null())
                    .stdout(log.try_clone()?)
                    .stderr(log),
            ));
        }
        let endpoints = places.into_iter().map(|(client, _)| format!("http://{client}")).collect();
        Ok(EtcdCluster { nodes, endpoints, _dir: dir })
    }

    /// The node that leads; waits until one does.
    pub(in crate::bench) fn leader(&self, runtime: &Runtime) -> anyhow::Result<usize> {
        let until = boottime_ns() + DEADLINE.as_nanos() as u64;
        while boottime_ns() < until {
            for node in 0..self.nodes.len() {
                let Ok(mut client) = self.client(runtime, node) else { continue };
                let Ok(status) = runtime.block_on(client.status()) else { continue };
                if status.leader != 0 && status.header.is_some_and(|it| it.member == status.leader)
                {
                    return Ok(node);
                }
            }
        }
        anyhow::bail!("no etcd leads")
    }

    pub(in crate::bench) fn client(
        &self,
        runtime: &Runtime,
        node: usize,
    ) -> anyhow::Result<EtcdClient> {
        let endpoint = Endpoint::from_shared(self.endpoints[node].clone())?.timeout(ANSWER_MAX);
        Ok(EtcdClient(Grpc::new(runtime.block_on(endpoint.connect())?)))
    }

    /// SIGKILL.
    pub(in crate::bench) fn kill(&mut self, node: usize) {
        self.nodes[node].signal(nix::sys::signal::Signal::SIGKILL);
        self.nodes[node].wait();
    }
}

#[derive(Clone)]
pub(in crate::bench) struct EtcdClient(Grpc<Channel>);

impl EtcdClient {
    async fn call<Q: Message + 'static, A: Message + Default + 'static>(
        &mut self,
        question: Q,
        path: &'static str,
    ) -> anyhow::Result<A> {
        self.0.ready().await?;
        let (path, codec) = (path.parse()?, ProstCodec::<Q, A>::default());
        Ok(self.0.unary(tonic::Request::new(question), path, codec).await?.into_inner())
    }

    async fn status(&mut self) -> anyhow::Result<Status> {
        self.call(Empty {}, "/etcdserverpb.Maintenance/Status").await
    }

    /// A lease, with which keys end.
    pub(in crate::bench) async fn lease(&mut self, ttl_s: i64) -> anyhow::Result<i64> {
        let granted: Granted =
            self.call(Lease { ttl: ttl_s }, "/etcdserverpb.Lease/LeaseGrant").await?;
        Ok(granted.id)
    }

    /// Takes a key that nobody has.
    pub(in crate::bench) async fn claim(&mut self, key: &str, lease: i64) -> anyhow::Result<bool> {
        let key = key.as_bytes().to_vec();
        let free =
            Compare { result: EQUAL, target: CREATE, key: key.clone(), create_revision: Some(0) };
        let put = Do { put: Some(Put { key, lease }) };
        let transaction = Transaction { compare: vec![free], success: vec![put] };
        let decided: Decided = self.call(transaction, "/etcdserverpb.KV/Txn").await?;
        Ok(decided.succeeded)
    }

    pub(in crate::bench) async fn release(&mut self, key: &str) -> anyhow::Result<()> {
        let key = OfKey { key: key.as_bytes().to_vec() };
        self.call::<_, Empty>(key, "/etcdserverpb.KV/DeleteRange").await.map(drop)
    }

    pub(in crate::bench) async fn is_taken(&mut self, key: &str) -> anyhow::Result<bool> {
        let key = OfKey { key: key.as_bytes().to_vec() };
        let found: Found = self.call(key, "/etcdserverpb.KV/Range").await?;
        Ok(found.count > 0)
    }
}
