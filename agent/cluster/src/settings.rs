//! A node of a cluster as the store of its gateway: the URL `cluster:`, and the section `[cluster]`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_host::tcp;
use tenure_stores::settings::secret::Credentials;
use tenure_stores::settings::{
    Broken, Doc, Key, Opener, Refusal, SectionKey, Settings, Shape, Stores, Value, tls, value,
};
use tenure_stores::{optional_path_key, tls_keys};

use crate::control::Client;
use crate::net::{Tls, Trust, Users};
use crate::node::BYTES_MAX;
use crate::start::NodeSettings;
use crate::store::GUARANTEE;

const LISTEN: &str = "cluster.listen";
const ADDRESS: &str = "cluster.address";
const JOIN: &str = "cluster.join";
const BEGIN: &str = "cluster.begin";
const FOLDER: &str = "cluster.folder";
const INSECURE: &str = "cluster.insecure";
const UIDS: &str = "cluster.uids";
const BYTES: &str = "cluster.bytes_max";
/// Its range: an image of the most of it is still taken by other nodes, and a backup restored, with all that comes
/// between two looks.
const BYTES_RANGE: [u64; 2] = [1 << 20, 512 << 20];
/// Most users that may be named.
const UIDS_MAX: usize = 64;

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
    /// Users of this host whose processes may talk with this node, where it has no certificates.
    uids: Vec<u32>,
    bytes_max: u64,
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
            uids: Vec::new(),
            bytes_max: BYTES_MAX,
        }
    }
}

/// The settings of a node of a cluster, before anything is configured.
pub fn settings() -> Box<dyn Settings> {
    Box::<Section>::default()
}

static KEYS: [Key<Section>; 8] = [
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
    .about(
        "Talk to nodes without certificates, on other hosts as well, and ask nobody on this host of which user it is: \
         whoever reaches cluster.listen could change everything.",
    ),
    Key::<Section> {
        name: UIDS,
        shape: Shape::Text,
        reloads: false,
        set: |section, text| {
            section.uids = uids(text)?;
            Ok(())
        },
        get: |section| {
            let uids: Vec<_> = section.uids.iter().map(u32::to_string).collect();
            (!uids.is_empty()).then(|| uids.join(",").into())
        },
        doc: Doc::NONE,
    }
    .about(
        "More users of this host, by their numbers with commas between, whose processes may talk with this node where it has \
         no certificates. Its own user and root always may: each can change everything.",
    )
    .example("\"998,1001\""),
    Key::<Section> {
        name: BYTES,
        shape: Shape::Count,
        reloads: false,
        set: |section, text| {
            let [min, max] = BYTES_RANGE;
            section.bytes_max = value::count(text, min, max)?;
            Ok(())
        },
        get: |section| Some(Value::Count(i64::try_from(section.bytes_max).unwrap_or(i64::MAX))),
        doc: Doc::NONE,
    }
    .about(
        "Bytes that the cluster may keep, as the node that leads counts them; the same at each node. Beyond, claims, sessions \
         and keys are refused that are not there yet. An image, a backup and a node that is added take up to four times as \
         much memory for a moment.",
    ),
];

static TLS_KEYS: [Key<Section>; 3] = tls_keys!(Section, "cluster", "nodes on several hosts", tls);

fn all_keys() -> impl Iterator<Item = &'static Key<Section>> {
    KEYS.iter().chain(&TLS_KEYS)
}

/// Numbers of users.
fn uids(text: &str) -> Result<Vec<u32>, Refusal> {
    let parts: Vec<_> = text.split(',').map(|one| one.trim().parse().ok()).collect();
    let uids: Option<Vec<u32>> = parts.into_iter().collect();
    uids.filter(|uids| uids.len() <= UIDS_MAX).ok_or_else(|| {
        format!(
            "must be numbers of users with commas between, {UIDS_MAX} at most, such as \"998,1001\""
        )
    })
}

/// The host and the port of a node.
///
/// # Errors
///
/// With the rule that the text breaks.
pub fn address(text: &str) -> Result<String, Refusal> {
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
    let more = text(UIDS).map(|text| uids(&text)).transpose();
    let more = more.map_err(|rule| Broken::new(UIDS, rule))?.unwrap_or_default();
    let is_root = tcp::own_user() == 0;
    let trust = match certificates(&files)? {
        Some(tls) => Trust::Certificates(tls),
        // Root cannot tell of which user the node is to be. The others are on this host, or let everybody in.
        None if is_root || !tcp::IS_TOLD => Trust::Everybody,
        None => Trust::Users(Users::for_commands(&more)),
    };
    Ok(Client::new(&node.map_or_else(own, str::to_owned), trust))
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
        let trust = match certificates(&self.tls)? {
            Some(tls) => Trust::Certificates(tls),
            None if self.insecure => Trust::Everybody,
            None => Trust::Users(Users::with(&self.uids)),
        };
        let asks_users = matches!(trust, Trust::Users(_));
        if asks_users && !listen.ip().is_loopback() {
            let rule = format!(
                "can be reached from other hosts, and whoever reaches it could change everything: use a loopback \
                 address, give cluster.tls_ca_file, cluster.tls_cert_file and cluster.tls_key_file, or accept it with \
                 {INSECURE}"
            );
            return Err(Broken::new(LISTEN, rule));
        }
        if asks_users && !tcp::IS_TOLD {
            let rule = format!(
                "can be reached by every user of this host, whom this system does not tell apart: give cluster.tls_ca_file, \
                 cluster.tls_cert_file and cluster.tls_key_file, or accept it with {INSECURE}"
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
        let (join, begin, bytes_max) = (self.join.clone(), self.begin, self.bytes_max);
        Ok(NodeSettings { listen: *listen, address, join, begin, folder, trust, bytes_max })
    }
}
