//! Where a Redis is, and as whom to sign in, as configured.

use std::fmt;
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};

/// A password. Printed as `***`, and wiped from memory when it is dropped.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Takes a password.
    pub fn new(password: impl Into<String>) -> Secret {
        Secret(SecretString::from(password.into()))
    }

    /// The password itself, for the server alone.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// To notice that a password was changed; nobody is let in by this comparison.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}

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
        /// Whom to ask.
        sentinels: Vec<Place>,
        /// What they call the master.
        master: String,
        /// As whom to ask.
        login: Login,
    },
}

/// Which Redis, and how to get in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// Where it is.
    pub server: RedisServer,
    /// Whether to speak TLS, with Sentinels too.
    pub tls: bool,
    /// As whom to sign in.
    pub login: Login,
    /// The number of the database.
    pub db: u32,
}
