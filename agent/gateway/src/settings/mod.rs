//! Flags, environment and files → one validated [`Settings`].
//!
//! Keys are documented beside their definition; `packaging/gateway.toml` is made of that.

mod flags;
mod keys;
mod limits;
mod manual;
mod mode;
mod namespaces;
mod people;
mod proxies;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::http::HeaderName;
pub use flags::{Cli, Command, Flags};
pub use manual::manual;
pub use mode::Mode;
use nix::unistd::{AccessFlags, access};
use tenure_service::browsers::HostList;
pub use tenure_service::config::{Change, ConfigError, Environment, changes};
use tenure_service::config::{Configuration, Key, List, Origin, files_in};
use tenure_service::telemetry::LogFormat;
use tenure_stores::settings::secret::{self, Credentials, Secret};
use tenure_stores::settings::{Broken, Opener, Stores, Value};

use crate::access::{Keys, People, Rights};
use crate::delivery::{Network, Registration};
use crate::face::Limits;
use crate::mailbox::Policies;
use crate::{tls, trail};

/// The directory of the configuration of this host's gateway.
const SYSTEM: &str = "/etc/tenured-gateway";
const NAME: &str = "tenured-gateway";
const RUNTIME: &str = "/run/tenured-gateway";
const STATE: &str = "/var/lib/tenured-gateway";
/// The folder of this node of a cluster; by default one in the state directory.
const CLUSTER_FOLDER: &str = "cluster.folder";
const CLUSTER_LISTEN: &str = "cluster.listen";
/// The file in the state directory with the keys beside an embedded store.
const OWN_KEYS: &str = "keys.toml";

/// Lists of sections, as they were written.
#[derive(Debug, Clone, Default)]
struct Written {
    namespaces: Vec<toml::Table>,
    people: Vec<toml::Table>,
    proxies: Vec<toml::Table>,
}

/// Everything that can be set, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    pub mode: Mode,
    pub listen: SocketAddr,
    /// The names by which browsers and programs may call it, besides its addresses.
    pub hosts: HostList,
    /// The settings of all kinds of stores; one of them is the store of all holds.
    pub stores: Stores,
    /// A file with the store's password.
    pub upstream_secret_file: Option<PathBuf>,
    /// The means to open the store.
    pub opener: Arc<dyn Opener>,
    pub keys_file: Option<PathBuf>,
    /// The keys are in the store, with the holds.
    pub keys_in_store: bool,
    /// A key is asked for also where none is configured.
    pub require_keys: bool,
    /// The audit trail; `-` is the standard output.
    pub audit: Option<PathBuf>,
    pub audit_limits: trail::Limits,
    /// Files with certificates.
    pub tls: TlsPaths,
    /// Those of callers that show a certificate and no key.
    pub certificate_rights: Rights,
    pub limits: Limits,
    /// Other hosts are served without TLS.
    pub insecure: bool,
    pub state_dir: PathBuf,
    pub runtime_dir: PathBuf,
    /// The filter of the log.
    pub log: String,
    pub log_format: LogFormat,
    /// How long a session of the session plane outlives its last heartbeat.
    pub session_ttl: Duration,
    /// The leases of the control plane.
    pub policies: Policies,
    /// The networks of proxies that register; `None` for the default.
    pub proxy_networks: Option<Vec<Network>>,
    /// Proxies that do not register.
    pub proxies: Vec<Registration>,
    /// Reverse proxies that sign people in, their header with the identity, and the bounds of people.
    pub trusted_proxies: Vec<Network>,
    pub identity_header: Option<HeaderName>,
    pub people: Vec<People>,
    written: Written,
    /// From the wish to stop to the end of the process.
    pub stop_deadline: Duration,
}

/// Files with certificates, as they are named.
#[derive(Debug, Clone, Default)]
pub struct TlsPaths {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub clients: Option<PathBuf>,
}

/// A file with keys.
#[derive(Debug, Clone)]
pub struct FileOfKeys {
    pub path: PathBuf,
    /// It is that of a store of one gateway, and made with the first key.
    is_own: bool,
}

impl FileOfKeys {
    /// Its keys.
    ///
    /// # Errors
    ///
    /// With the file.
    pub fn read(&self) -> anyhow::Result<Keys> {
        let FileOfKeys { path, is_own } = self;
        match is_own {
            true => Keys::read_if_there(path).with_context(|| format!("{}", path.display())),
            false => Keys::read(path).with_context(|| format!("keys_file {}", path.display())),
        }
    }
}

impl Settings {
    /// True if callers are asked for a key.
    pub fn asks_for_keys(&self) -> bool {
        self.keys_file.is_some() || self.keys_in_store || self.require_keys
    }

    /// True if the gateway makes the one key by which programs of its own user get in.
    pub fn makes_local_key(&self) -> bool {
        self.require_keys && self.keys_file.is_none() && !self.keys_in_store
    }

    /// The file with the keys; `None` if they are in a store that others share, or nobody is asked for one.
    pub fn file_of_keys(&self) -> Option<FileOfKeys> {
        let is_own = self.keys_in_store && self.stores.upstream().kind() == "embedded";
        let own = || is_own.then(|| self.state_dir.join(OWN_KEYS));
        let path = self.keys_file.clone().or_else(own)?;
        Some(FileOfKeys { path, is_own })
    }

    /// The address at which the node of this gateway listens, if it has one.
    pub fn cluster_listen(&self) -> Option<SocketAddr> {
        let is_node = self.stores.upstream().kind() == "cluster";
        match self.stores.get(CLUSTER_LISTEN).filter(|_| is_node) {
            Some(Value::Text(listen)) => listen.parse().ok(),
            _ => None,
        }
    }

    /// The files of TLS, if it is to be spoken.
    ///
    /// # Errors
    ///
    /// When one is named without another that it needs.
    pub fn tls_files(&self) -> Result<Option<tls::Files>, Broken> {
        let TlsPaths { certificate, key, clients } = self.tls.clone();
        let is_optional = self.asks_for_keys();
        match (certificate, key, clients) {
            (None, None, None) => Ok(None),
            (Some(certificate), Some(key), clients) => {
                let clients = clients.map(|ca| tls::Clients { ca, is_optional });
                Ok(Some(tls::Files { certificate, key, clients }))
            }
            (Some(_), None, _) => {
                Err(Broken::new(tls::CERTIFICATE, "must have its key in tls.key_file"))
            }
            (None, Some(_), _) => {
                Err(Broken::new(tls::KEY, "must have its certificate in tls.cert_file"))
            }
            (None, None, Some(_)) => {
                let rule = "is for TLS: name the gateway's certificate in tls.cert_file, too";
                Err(Broken::new(tls::CLIENT_CA, rule))
            }
        }
    }
}

/// The gateway's settings, and how they came about.
pub type Loaded = tenure_service::config::Loaded<Settings>;

/// Reads every layer.
///
/// # Errors
///
/// See [`Loaded::read`].
pub fn load(flags: &Flags, environment: &Environment) -> Result<Loaded, ConfigError> {
    let named = flags.config.as_deref();
    let mut loaded = Loaded::read(defaults(environment), named, environment, flags.values())?;
    let credentials = environment.credentials();
    let is_named = loaded.is_set("upstream");
    let completed = complete(&mut loaded.config, is_named, environment, &credentials);
    completed.and_then(|()| check(&loaded.config)).map_err(|broken| loaded.broken(broken))?;
    Ok(loaded)
}

fn complete(
    settings: &mut Settings,
    is_named: bool,
    environment: &Environment,
    credentials: &Credentials,
) -> Result<(), Broken> {
    if settings.upstream_secret_file.is_none() {
        settings.upstream_secret_file = secret::credential(credentials);
    }
    mode::complete(settings, is_named, environment)?;
    if settings.stores.get(CLUSTER_FOLDER).is_none() {
        let folder = settings.state_dir.join("cluster").display().to_string();
        let set = settings.stores.set(CLUSTER_FOLDER, &folder);
        set.map_err(|rule| Broken::new(CLUSTER_FOLDER, rule))?;
    }
    if !settings.stores.upstream().takes_secret() {
        settings.upstream_secret_file = None;
    }
    let secret_file = settings.upstream_secret_file.as_deref();
    settings.opener = settings.stores.resolve(secret_file, credentials)?;
    Ok(())
}

/// Rules between settings.
fn check(settings: &Settings) -> Result<(), Broken> {
    if settings.stores.upstream().kind() == "gateway" {
        return Err(Broken::new("upstream", "is another gateway: name the store behind it"));
    }
    if settings.keys_in_store && settings.keys_file.is_some() {
        let rule = "is given beside keys_in_store: keys are in one place; leave one of the two out";
        return Err(Broken::new("keys_file", rule));
    }
    mode::check(settings)?;
    people::check(settings)?;
    let tls = settings.tls_files()?;
    if settings.listen.ip().is_loopback() {
        return Ok(());
    }
    let open = |rule: &str| {
        let rule = format!("can be reached from other hosts, and {rule}");
        Err(Broken::new("listen", rule))
    };
    if !settings.asks_for_keys() && settings.tls.clients.is_none() {
        return open(
            "nobody is asked for a key: use a loopback address, or keys_in_store, keys_file or tls.client_ca_file",
        );
    }
    if tls.is_none() && !settings.insecure {
        return open(
            "there is no TLS: use a loopback address, give tls.cert_file and tls.key_file, or accept it with \
             insecure",
        );
    }
    Ok(())
}

/// Where the service manager says, or where the file-system hierarchy puts it; of a user who may not write there,
/// below the XDG directories, or in /tmp.
fn directories(environment: &Environment) -> (PathBuf, PathBuf) {
    let system = |variable: &str, path: &str| {
        let is_ours = environment.uid == 0 || access(path, AccessFlags::W_OK).is_ok();
        environment.first_of(variable).or_else(|| is_ours.then(|| PathBuf::from(path)))
    };
    let runtime = system("RUNTIME_DIRECTORY", RUNTIME).unwrap_or_else(|| {
        let own = environment.directory("XDG_RUNTIME_DIR").filter(|path| path.is_dir());
        let shared = || Path::new("/tmp").join(format!("{NAME}-{}", environment.uid));
        own.map_or_else(shared, |own| own.join(NAME))
    });
    let state = system("STATE_DIRECTORY", STATE).unwrap_or_else(|| {
        let home = || Some(environment.directory("HOME")?.join(".local/state"));
        let own = environment.directory("XDG_STATE_HOME").or_else(home);
        own.map_or_else(|| runtime.join("state"), |own| own.join(NAME))
    });
    (runtime, state)
}

/// Every kind of store.
fn stores() -> Stores {
    Stores::default().with(tenure_cluster::settings())
}

fn defaults(environment: &Environment) -> Settings {
    let stores = stores();
    #[expect(clippy::expect_used, reason = "without a URL the store takes no settings")]
    let opener = stores.resolve(None, &Credentials::default()).expect("a store by default");
    let (runtime_dir, state_dir) = directories(environment);
    Settings {
        mode: Mode::default(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8740)),
        hosts: HostList::default(),
        stores,
        upstream_secret_file: None,
        opener,
        keys_file: None,
        keys_in_store: false,
        require_keys: false,
        audit: None,
        audit_limits: trail::Limits::default(),
        tls: TlsPaths::default(),
        certificate_rights: Rights::NONE,
        limits: Limits::default(),
        insecure: false,
        state_dir,
        runtime_dir,
        log: "info".to_owned(),
        log_format: LogFormat::default(),
        session_ttl: Duration::from_secs(90),
        policies: Policies::default(),
        proxy_networks: None,
        proxies: Vec::new(),
        trusted_proxies: Vec::new(),
        identity_header: None,
        people: Vec::new(),
        written: Written::default(),
        stop_deadline: Duration::from_secs(5),
    }
}

impl Configuration for Settings {
    const DAEMON: &'static str = "gateway";
    const PREFIX: &'static str = "TENURED_GATEWAY_";
    const MAIN: &'static str = "gateway.toml";
    const LISTS: &'static [List] = &[namespaces::LIST, people::LIST, proxies::LIST];
    const SHARED: &'static [(&'static str, &'static str)] = &[
        ("PRISM_MODE", "mode"),
        ("PRISM_REDIS_URL", "upstream"),
        ("PRISM_SESSION_TTL_SECONDS", "session.ttl"),
    ];

    fn keys() -> &'static [Key<Settings>] {
        keys::all()
    }

    fn files(_: &Environment) -> (Vec<PathBuf>, Vec<String>) {
        files_in(Path::new(SYSTEM), Settings::MAIN)
    }

    fn stores(&self) -> &Stores {
        &self.stores
    }

    fn stores_mut(&mut self) -> &mut Stores {
        &mut self.stores
    }

    fn add_sections(
        &mut self,
        list: &List,
        sections: Vec<(toml::Table, Origin)>,
    ) -> Result<(), ConfigError> {
        for (index, (table, origin)) in sections.into_iter().enumerate() {
            if *list == proxies::LIST {
                let proxy = proxies::proxy(&table, index, &origin, &self.proxies)?;
                self.proxies.push(proxy);
                self.written.proxies.push(table);
            } else if *list == people::LIST {
                let people = people::people(&table, index, &origin, self.people.len())?;
                self.people.push(people);
                self.written.people.push(table);
            } else {
                let earlier = self.written.namespaces.len();
                let policy = namespaces::policy(&table, index, &origin, earlier)?;
                self.policies.exceptions.push(policy);
                self.written.namespaces.push(table);
            }
        }
        Ok(())
    }

    fn sections(&self, list: &List) -> &[toml::Table] {
        match list.name {
            name if name == proxies::LIST.name => &self.written.proxies,
            name if name == people::LIST.name => &self.written.people,
            _ => &self.written.namespaces,
        }
    }

    fn secrets(&self) -> Vec<(&'static str, Secret)> {
        self.opener.secrets()
    }
}
