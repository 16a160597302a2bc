//! The way to a Postgres, as configured.

mod section;
mod url;

use std::path::PathBuf;
use std::time::Duration;

pub use section::{PostgresUpstream, Section, settings};

use crate::settings::secret::SecretSource;
use crate::settings::tls::Trust;

/// How to find the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostgresServer {
    Tcp {
        host: String,
        port: u16,
    },
    /// The directory of its sockets, and the port that is part of the socket's name.
    Unix {
        directory: PathBuf,
        port: u16,
    },
}

/// Everything that it takes to get in.
#[derive(Debug, Clone)]
pub struct PostgresAccess {
    pub server: PostgresServer,
    /// `None` for plain TCP and Unix sockets.
    pub tls: Option<Trust>,
    pub user: String,
    pub password: Option<SecretSource>,
    pub database: String,
    /// From the wish to connect to a server that has let us in.
    pub connect_timeout: Duration,
    /// From a call to its answer.
    pub timeout: Duration,
}
