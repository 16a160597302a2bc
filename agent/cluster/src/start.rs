//! Starts a node with checked settings, as the store of its gateway.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_stores::keyring::Keyring;
use tenure_stores::remote;
use tenure_stores::settings::{Broken, OpenError, Opened, Opener, Place};
use tokio::net::TcpListener;

use crate::control::Client;
use crate::disk::{Folder, Unusable};
use crate::host;
use crate::keyring::ClusterKeyring;
use crate::machine::VERSION;
use crate::net::{Network, Trust};
use crate::node::{IMAGE_EVERY, Node, Setup};
use crate::store::{Cluster, Feed, feed};

/// The exit status of a process whose node has halted.
const HALTED: i32 = 70;
/// The threads of a node. Consensus has little to compute.
const THREADS: usize = 2;

/// Checked settings of a node.
#[derive(Debug, Clone)]
pub(crate) struct NodeSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) address: String,
    pub(crate) join: Vec<String>,
    pub(crate) begin: bool,
    pub(crate) folder: PathBuf,
    pub(crate) trust: Trust,
    pub(crate) bytes_max: u64,
}

impl NodeSettings {
    /// Starts the node, on threads of its own.
    fn start(&self) -> io::Result<Cluster> {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("node")
            .enable_all()
            .build()?;
        let (settings, (feed, hearer)) = (self.clone(), feed());
        let (listens, (started, is_started)) =
            (Arc::new(feed.clone()), std::sync::mpsc::sync_channel(1));
        threads.spawn(async move {
            // The thread that opens the store waits for this.
            let _ = started.send(settings.start_here(listens).await);
        });
        let ended = |_| io::Error::other("the node ended while it started");
        let node = is_started.recv().map_err(ended).and_then(|node| node);
        match node {
            Ok(node) => Ok(Cluster::new(node, threads, (feed, hearer))),
            Err(error) => {
                // This thread runs a runtime of its own.
                threads.shutdown_background();
                Err(error)
            }
        }
    }

    async fn start_here(self, listens: Arc<Feed>) -> io::Result<Node> {
        let NodeSettings { listen, address, join, begin, folder, trust, bytes_max } = self;
        let taken = |error| {
            let rule = "must be an address of this host with a port that is free";
            io::Error::other(format!("cluster.listen = \"{listen}\": {rule}: {error}"))
        };
        let listener = TcpListener::bind(listen).await.map_err(taken)?;
        let disk = Box::new(Folder::open(&folder)?);
        let (network, clock, timers) =
            (Network::tcp(listener, trust), host::clock(), host::timers());
        let (all_timers, image_every) = (timers.clone(), IMAGE_EVERY);
        let setup = Setup {
            disk,
            network,
            address,
            clock,
            timers: all_timers,
            listens,
            image_every,
            known: VERSION,
            bytes_max,
        };
        let node = Node::start(setup).await?;
        tokio::spawn(end_with(node.clone()));
        tokio::spawn(node.clone().catch_up());
        if !join.is_empty() {
            tokio::spawn(node.clone().join(join, begin, timers()?));
        }
        Ok(node)
    }
}

/// Ends the process when its node halts: one that serves nobody would look well to whoever starts again what has ended.
#[expect(
    clippy::disallowed_methods,
    reason = "all that the node said to be kept is on its disk, and its gateway keeps nothing"
)]
async fn end_with(node: Node) {
    node.until_halted().await;
    std::process::exit(HALTED);
}

impl Opener for NodeSettings {
    fn open(&self, place: Place<'_>) -> Result<Opened, OpenError> {
        let store = self.start().map_err(|error| {
            let is_lasting = error.get_ref().is_some_and(|cause| cause.is::<Unusable>());
            if is_lasting { OpenError::Refused(error) } else { OpenError::Start(error) }
        })?;
        remote::open(place, || Box::new(store))
    }

    fn reload(&self) -> Result<(), Broken> {
        let Trust::Certificates(tls) = &self.trust else { return Ok(()) };
        tls.reload()
    }

    fn keyring(&self) -> Option<Arc<dyn Keyring>> {
        Some(Arc::new(ClusterKeyring::new(Client::new(&self.address, self.trust.clone()))))
    }
}
