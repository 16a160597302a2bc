//! How to get to a Redis, and what to call things there, as configured.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::secret::Secret;
use super::trust::Trust;
use crate::upstream::redis::layout::{Layout, Prefixes};

/// As whom to sign in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The ACL user; `None` for the default user.
    pub user: Option<String>,
    /// Its password; `None` for a server that wants none.
    pub password: Option<Secret>,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A name or an IP address, IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// How to find the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisServer {
    /// It is there.
    Tcp(Place),
    /// It is on this host.
    Unix(PathBuf),
    /// These know which one is the master.
    Sentinel {
        /// Whom to ask; at least one.
        sentinels: Vec<Place>,
        /// The master's name among the Sentinels.
        master: String,
        /// As whom to ask.
        login: Login,
    },
}

/// Everything that it takes to get in.
#[derive(Debug, Clone)]
pub struct RedisAccess {
    pub server: RedisServer,
    /// Settings of TLS, which Sentinels then speak too; `None` for plain TCP and Unix sockets.
    pub tls: Option<Trust>,
    /// As whom to sign in.
    pub login: Login,
    /// The number of the database.
    pub db: u32,
    /// From the wish to connect to a server that has let us in.
    pub connect_timeout: Duration,
    /// From a call to its answer.
    pub timeout: Duration,
}

/// Default of [`RedisAccess::connect_timeout`] and [`RedisAccess::timeout`].
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time between two questions about a contended resource: what a lost hint costs at most.
pub(super) const POLL_MAX: Duration = Duration::from_secs(1);

impl RedisAccess {
    /// Without a login, TLS or any other setting.
    pub fn plain(server: RedisServer) -> RedisAccess {
        RedisAccess {
            server,
            tls: None,
            login: Login::default(),
            db: 0,
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
        }
    }
}

/// A Redis as the upstream.
#[derive(Debug, Clone)]
pub struct RedisUpstream {
    /// How to get in.
    pub access: RedisAccess,
    /// Names of keys and channels.
    pub layout: Layout,
}

/// The section `[redis]`, which is checked also where it is not needed.
#[derive(Debug, Clone)]
pub(super) struct RedisSection {
    pub(super) prefixes: Prefixes,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) poll: Duration,
    pub(super) tls_ca_file: Option<PathBuf>,
    pub(super) tls_cert_file: Option<PathBuf>,
    pub(super) tls_key_file: Option<PathBuf>,
    pub(super) sentinel_secret_file: Option<PathBuf>,
}

impl Default for RedisSection {
    fn default() -> RedisSection {
        RedisSection {
            prefixes: Prefixes::default(),
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
            poll: POLL_MAX,
            tls_ca_file: None,
            tls_cert_file: None,
            tls_key_file: None,
            sentinel_secret_file: None,
        }
    }
}
