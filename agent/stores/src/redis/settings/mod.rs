//! How to get to a Redis, and what to call things there, as configured.

mod section;
mod url;

use std::path::PathBuf;
use std::time::Duration;

pub use section::{Section, settings};

use super::layout::Layout;
use crate::settings::secret::SecretSource;
use crate::settings::tls::Trust;
pub use crate::settings::url::{Login, Place};

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
pub const TIMEOUT: Duration = Duration::from_secs(2);
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
    /// Its passwords, by the keys that gave them.
    pub secrets: Vec<(&'static str, SecretSource)>,
}
