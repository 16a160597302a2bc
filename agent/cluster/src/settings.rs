//! A node of a cluster as the store of its gateway: the URL `cluster:`, and the section `[cluster]`.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_stores::keyring::Keyring;
use tenure_stores::settings::secret::Credentials;
use tenure_stores::settings::{
    Broken, Doc, Key, OpenError, Opened, Opener, Place, Refusal, SectionKey, Settings, Shape,
    Stores, Value, tls, value,
};
use tenure_stores::{optional_path_key, remote, tls_keys};
use tokio::net::TcpListener;
use tracing::info;

use crate::control::Client;
use crate::disk::{Folder, Unusable};
use crate::host;
use crate::keyring::ClusterKeyring;
use crate::machine::VERSION;
use crate::net::{Network, Tls};
use crate::node::{IMAGE_EVERY, Node, Setup};
use crate::store::{Cluster, Feed, GUARANTEE, feed};

const LISTEN: &str = "cluster.listen";
const ADDRESS: &str = "cluster.address";
const JOIN: &str = "cluster.join";
const BEGIN: &str = "cluster.begin";
const FOLDER: &str = "cluster.folder";
const INSECURE: &str = "cluster.insecure";
/// The exit status of a process whose node has halted.
const HALTED: i32 = 70;
/// The threads of a node. Consensus has little to compute.
const THREADS: usize = 2;

/// The settings of a node.
#[derive(Debug, Clone)]
struct Section {
    listen: SocketAddr,
    /// The other nodes find it there; where it listens, if it is not given.
    address: Option<String>,
    join: Vec<String>,
    begin: bool,
    folder: Option<PathBuf>,
    tls: tls::Files,
    insecure: bool,
}

impl Default for Section {
    fn default() -> Section {
        let listen = SocketAddr::from(([127, 0, 0, 1], 8741));
        Section {
            listen,
            address: None,
            join: Vec::new(),
            begin: false,
            folder: None,
            tls: tls::Files::default(),
            insecure: false,
        }
    }
}

/// The settings of a node of a cluster, before anything is configured.
pub fn settings() -> Box<dyn Settings> {
    Box::<Section>::default()
}

static KEYS: [Key<Section>; 6] = [
    Key::<Section> {
        name: LISTEN,
        shape: Shape::Text,
        reloads: false,
        set: |section, text| {
            section.listen = text.parse().map_err(|_| {
                "must be an address with a port, such as \"127.0.0.1:8741\" or \"0.0.0.0:8741\"".to_owned()
            })?;
            Ok(())
        },
        get: |section| Some(section.listen.to_string().into()),
        doc: Doc::NONE,
    }
    .about(
        "Where this node listens to the other nodes, and to `tenured-gateway cluster`. Other hosts reach only what has \
         certificates, below.",
    ),
    Key::<Section> {
        name: ADDRESS,
        shape: Shape::Text,
        reloads: false,
        set: |section, text| {
            section.address = Some(address(text)?);
            Ok(())
        },
        get: |section| section.address.clone().map(Value::Text),
        doc: Doc::NONE,
    }
    .about("Where the other nodes find this one. Default: cluster.listen.")
    .example("\"node-1.example:8741\""),
    Key::<Section> {
        name: JOIN,
        shape: Shape::Text,
        reloads: false,
        set: |section, text| {
            section.join = text.split(',').map(|one| address(one.trim())).collect::<Result<_, _>>()?;
            Ok(())
        },
        get: |section| (!section.join.is_empty()).then(|| section.join.join(",").into()),
        doc: Doc::NONE,
    }
    .about(
        "Nodes of the cluster, HOST:PORT with commas between: a node that belongs to none asks them to add it, until one \
         does.",
    )
    .example("\"node-1.example:8741,node-2.example:8741\""),
    Key::<Section> {
        name: BEGIN,
        shape: Shape::Switch,
        reloads: false,
        set: |section, text| {
            section.begin = value::switch(text)?;
            Ok(())
        },
        get: |section| Some(Value::Switch(section.begin)),
        doc: Doc::NONE,
    }
    .about(
        "Begin a cluster without `tenured-gateway cluster init`, as soon as all nodes of cluster.join answer and none of \
         them belongs to one; the same list at each of them, which has all of them. Where one does, or is silent, nothing \
         begins.",
    ),
    optional_path_key!(Section, "cluster.folder", folder, value::path)
        .about(
            "What this node keeps; a disk of its own is best. A folder that was wiped is another node. Default: cluster in \
             state_dir.",
        )
        .example("\"/var/lib/tenured-gateway/cluster\""),
    Key::<Section> {
        name: INSECURE,
        shape: Shape::Switch,
        reloads: false,
        set: |section, text| {
            section.insecure = value::switch(text)?;
            Ok(())
        },
        get: |section| Some(Value::Switch(section.insecure)),
        doc: Doc::NONE,
    }
    .about("Talk to nodes on other hosts without certificates: whoever reaches cluster.listen could change everything."),
];

static TLS_KEYS: [Key<Section>; 3] = tls_keys!(Section, "cluster", "nodes on several hosts", tls);

fn all_keys() -> impl Iterator<Item = &'static Key<Section>> {
    KEYS.iter().chain(&TLS_KEYS)
}

/// A host and a port.
fn address(text: &str) -> Result<String, Refusal> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match parts.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(port) if port != 0 => Ok(text.to_owned()),
        _ => Err("must be a host with a port, such as \"node-1.example:8741\"".to_owned()),
    }
}

impl Settings for Section {
    fn kind(&self) -> &'static str {
        "cluster"
    }

    fn guarantee(&self) -> &'static str {
        GUARANTEE
    }

    fn example(&self) -> &'static str {
        "\"cluster:\""
    }

    fn set_url(&mut self, scheme: &str, rest: &str) -> Option<Result<(), Refusal>> {
        (scheme == "cluster").then(|| match rest {
            "" => Ok(()),
            _ => Err("cluster: takes nothing after the colon: the keys cluster.listen and cluster.address say where \
                      the nodes are"
                .to_owned()),
        })
    }

    fn url(&self) -> String {
        "cluster:".to_owned()
    }

    fn keys(&self) -> Vec<SectionKey> {
        all_keys().map(Key::of_section).collect()
    }

    fn about(&self) -> &'static str {
        "This node of a cluster, where upstream is cluster: (--cluster). Three or five gateways keep everything themselves, \
         and lose nothing while most of them run. `tenured-gateway cluster init` on the first node begins one, \
         `tenured-gateway cluster add HOST:PORT` adds another."
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), Refusal> {
        let key = all_keys().find(|key| key.name == name);
        key.map_or(Ok(()), |key| (key.set)(self, text))
    }

    fn get(&self, name: &str) -> Option<Value> {
        (all_keys().find(|key| key.name == name)?.get)(self)
    }

    fn resolve(&self, _: Option<&Path>, _: &Credentials) -> Result<Arc<dyn Opener>, Broken> {
        Ok(Arc::new(self.node()?))
    }

    fn boxed(&self) -> Box<dyn Settings> {
        Box::new(self.clone())
    }
}

/// The way to a node for commands: to this one, or to that of this host.
///
/// # Errors
///
/// With the first key that breaks a rule.
pub fn client(stores: &Stores, node: Option<&str>) -> Result<Client, Broken> {
    let text = |key: &str| match stores.get(key) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    let file = |key: &str| text(key).map(PathBuf::from);
    let files = tls::Files {
        ca: file("cluster.tls_ca_file"),
        certificate: file("cluster.tls_cert_file"),
        key: file("cluster.tls_key_file"),
    };
    let own = || text(ADDRESS).or_else(|| text(LISTEN)).unwrap_or_default();
    Ok(Client::new(&node.map_or_else(own, str::to_owned), certificates(&files)?))
}

/// The certificates of nodes, if any is named.
fn certificates(files: &tls::Files) -> Result<Option<Arc<Tls>>, Broken> {
    match (&files.ca, &files.certificate, &files.key) {
        (None, None, None) => Ok(None),
        (Some(ca), Some(certificate), Some(key)) => {
            Ok(Some(Arc::new(Tls::read(ca, certificate, key)?)))
        }
        _ => {
            let rule = "must be given together with cluster.tls_cert_file and cluster.tls_key_file: nodes show each \
                        other certificates of one authority";
            Err(Broken::new("cluster.tls_ca_file", rule))
        }
    }
}

impl Section {
    fn node(&self) -> Result<NodeSettings, Broken> {
        let Section { listen, .. } = self;
        let address = match &self.address {
            Some(address) => address.clone(),
            None if listen.ip().is_unspecified() => {
                let rule = format!(
                    "must be given, since {LISTEN} = \"{listen}\" is no address that others could use"
                );
                return Err(Broken::new(ADDRESS, rule));
            }
            None => listen.to_string(),
        };
        let tls = certificates(&self.tls)?;
        if tls.is_none() && !listen.ip().is_loopback() && !self.insecure {
            let rule = format!(
                "can be reached from other hosts, and whoever reaches it could change everything: use a loopback \
                 address, give cluster.tls_ca_file, cluster.tls_cert_file and cluster.tls_key_file, or accept it with \
                 {INSECURE}"
            );
            return Err(Broken::new(LISTEN, rule));
        }
        if self.begin && self.join.len() < 2 {
            let rule = format!(
                "must name the nodes that begin the cluster, the same ones at each of them, where {BEGIN} is given"
            );
            return Err(Broken::new(JOIN, rule));
        }
        let Some(folder) = self.folder.clone() else {
            return Err(Broken::new(FOLDER, "must be given"));
        };
        let (join, begin) = (self.join.clone(), self.begin);
        Ok(NodeSettings { listen: *listen, address, join, begin, folder, tls })
    }
}

/// Checked settings of a node.
#[derive(Debug, Clone)]
struct NodeSettings {
    listen: SocketAddr,
    address: String,
    join: Vec<String>,
    begin: bool,
    folder: PathBuf,
    tls: Option<Arc<Tls>>,
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
        let NodeSettings { listen, address, join, begin, folder, tls } = self;
        let taken = |error| {
            let rule = "must be an address of this host with a port that is free";
            io::Error::other(format!("{LISTEN} = \"{listen}\": {rule}: {error}"))
        };
        let listener = TcpListener::bind(listen).await.map_err(taken)?;
        let disk = Box::new(Folder::open(&folder)?);
        let (network, clock, timers) = (Network::tcp(listener, tls), host::clock(), host::timers());
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
        };
        let node = Node::start(setup).await?;
        tokio::spawn(end_with(node.clone()));
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
        let Some(tls) = &self.tls else { return Ok(()) };
        tls.reload()?;
        info!("read the certificates of the node again, for new connections");
        Ok(())
    }

    fn keyring(&self) -> Option<Arc<dyn Keyring>> {
        Some(Arc::new(ClusterKeyring::new(Client::new(&self.address, self.tls.clone()))))
    }
}
