//! File, environment and flags → one validated [`Config`].
//!
//! Flags win over the environment, the environment over files, files over defaults. The key
//! `leader.ttl` is `ttl` in the section `[leader]` of a file, and TENURED_LEADER_TTL in the
//! environment. Keys are documented beside their definition; `packaging/tenured.toml` is made of that.
//! Those of a store are the store's own.

pub(crate) mod allow;
mod directories;
mod flags;
mod keys;
mod load;
mod manual;
mod rules;
mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use flags::{Cli, Command, Flags, Quarantine};
pub use load::load;
pub use manual::manual;
use tenure_core::keeper::Settings;
use tenure_core::model::Share;
use tenure_host::socket::Audience;
use tenure_service::browsers::HostList;
use tenure_service::config::Configuration as _;
pub use tenure_service::config::{
    Change, ConfigError, Entry, Environment, Origin, Section, changes,
};
use tenure_stores::settings::{Opener, Stores};

use crate::policy::Policy;
use crate::telemetry::LogFormat;

/// Everything that can be set, checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub socket: PathBuf,
    /// Whom the agent serves.
    pub audience: Audience,
    /// The settings of all kinds of stores; one of them is the store of all holds.
    pub stores: Stores,
    /// A file with the upstream's password.
    pub upstream_secret_file: Option<PathBuf>,
    /// The means to open the upstream.
    pub opener: Arc<dyn Opener>,
    /// Directory for what must survive a reboot.
    pub state_dir: PathBuf,
    /// Socket, pages and journal.
    pub runtime_dir: PathBuf,
    /// True if holds have to be those of the whole fleet.
    pub requires_fleet: bool,
    /// The filter of the log.
    pub log: String,
    /// How it is written.
    pub log_format: LogFormat,
    /// Where metrics are served besides the socket; a loopback address unless they are public.
    pub metrics_listen: Option<SocketAddr>,
    pub metrics_listen_public: bool,
    /// Names by which a scraper calls that address.
    pub metrics_hosts: HostList,
    /// Settings of the keeper.
    pub settings: Settings,
    /// Limits of the API.
    pub limits: Limits,
    /// The keys of the limits that the configuration sets.
    pub limits_set: Vec<&'static str>,
    /// The `[[allow]]` rules.
    pub policy: Policy,
    /// The rules of the policy as they were written.
    allow: Vec<toml::Table>,
}

/// The most that the API accepts; everything beyond is refused or closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open connections in all.
    pub connections_max: usize,
    /// Open connections of one user; see [`Share::of`].
    pub connections_per_uid_max: Option<usize>,
    /// Open event streams in all.
    pub streams_max: usize,
    /// Open event streams of one user; see [`Share::of`].
    pub streams_per_uid_max: Option<usize>,
    /// From the first byte of a request, or from the start of its connection, to the end of the headers.
    pub header_timeout: Duration,
    /// From the wish to stop to the end of the process.
    pub stop_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 16_384,
            connections_per_uid_max: None,
            streams_max: 12_288,
            streams_per_uid_max: None,
            header_timeout: Duration::from_secs(5),
            stop_deadline: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// How many connections there may be.
    pub fn connections(&self) -> Share {
        Share::of(self.connections_max, self.connections_per_uid_max)
    }

    /// How many event streams there may be.
    pub fn streams(&self) -> Share {
        Share::of(self.streams_max, self.streams_per_uid_max)
    }
}

/// The agent's configuration, and how it came about.
pub type Loaded = tenure_service::config::Loaded<Config>;

impl Config {
    /// The number of settings.
    pub fn count() -> usize {
        Config::keys().len() + 1
    }

    /// Takes over what a reload puts into effect, and only that.
    pub fn take_reloadable(&mut self, new: Config) {
        self.log = new.log;
        self.policy = new.policy;
        self.allow = new.allow;
    }
}

#[cfg(test)]
mod tests;
