//! The agent's configuration out of its layers.

use std::path::PathBuf;

use tenure_core::keeper::Settings;
use tenure_service::browsers::HostList;
use tenure_service::config::{ConfigError, Configuration, Environment, Key, List, Loaded, Origin};
use tenure_stores::settings::Stores;
use tenure_stores::settings::secret::{self, Credentials, Secret};
use tenure_wire::rules::visible;

use super::{Config, Flags, Limits, allow, directories, keys, rules};
use crate::policy::Policy;
use crate::telemetry::LogFormat;

/// Reads every layer.
///
/// # Errors
///
/// See [`Loaded::read`].
pub fn load(flags: &Flags, environment: &Environment) -> Result<Loaded<Config>, ConfigError> {
    let named = flags.config.as_deref();
    let mut loaded = Loaded::read(defaults(environment), named, environment, flags.values())?;
    if !loaded.is_set("socket") {
        loaded.config.socket = loaded.config.runtime_dir.join("api.sock");
    }
    if !loaded.is_set("host_name") {
        let name = tenure_host::machine::host_name().map_err(ConfigError::HostName)?;
        // Each store refuses what is asked for in a name that nobody can see.
        let checked = visible("host_name", &name).map_err(std::io::Error::other);
        checked.map_err(ConfigError::HostName)?;
        loaded.config.settings.host = name.into();
    }
    let limits = Config::keys().iter().map(|key| key.name);
    let limits = limits.filter(|key| key.starts_with("limits.") && loaded.is_set(key));
    loaded.config.limits_set = limits.collect();
    rules::check(&loaded.config).map_err(|broken| loaded.broken(broken))?;
    let credentials = environment.credentials();
    let config = &mut loaded.config;
    let upstream = config.stores.upstream();
    config.settings.poll = upstream.poll();
    if upstream.takes_secret() && config.upstream_secret_file.is_none() {
        config.upstream_secret_file = secret::credential(&credentials);
    }
    let opener = config.stores.resolve(config.upstream_secret_file.as_deref(), &credentials);
    loaded.config.opener = opener.map_err(|broken| loaded.broken(broken))?;
    Ok(loaded)
}

/// Without what follows from other keys or from the host: the socket, and the host's name.
pub(super) fn defaults(environment: &Environment) -> Config {
    let directories = directories::defaults(environment);
    let stores = Stores::default();
    #[expect(clippy::expect_used, reason = "without a URL the store takes no settings")]
    let opener = stores.resolve(None, &Credentials::default()).expect("a store by default");
    Config {
        socket: PathBuf::new(),
        audience: directories.audience,
        upstream_secret_file: None,
        opener,
        stores,
        state_dir: directories.state,
        runtime_dir: directories.runtime,
        requires_fleet: false,
        log: "info".to_owned(),
        log_format: LogFormat::default(),
        metrics_listen: None,
        metrics_listen_public: false,
        metrics_hosts: HostList::default(),
        settings: Settings { agent_uid: environment.uid, ..Settings::default() },
        limits: Limits::default(),
        limits_set: Vec::new(),
        policy: Policy::default(),
        allow: Vec::new(),
    }
}

impl Configuration for Config {
    const DAEMON: &'static str = "agent";
    const PREFIX: &'static str = "TENURED_";
    const MAIN: &'static str = directories::MAIN;
    // Clients use it; an agent started in the same shell should meet them.
    const SHARED: &'static [(&'static str, &'static str)] = &[("TENURE_SOCKET", "socket")];

    const LISTS: &'static [List] = &[allow::ALLOW];

    fn keys() -> &'static [Key<Config>] {
        keys::all()
    }

    fn files(environment: &Environment) -> (Vec<PathBuf>, Vec<String>) {
        directories::files(environment)
    }

    fn stores(&self) -> &Stores {
        &self.stores
    }

    fn stores_mut(&mut self) -> &mut Stores {
        &mut self.stores
    }

    fn secrets(&self) -> Vec<(&'static str, Secret)> {
        self.opener.secrets()
    }

    fn add_sections(
        &mut self,
        _: &List,
        sections: Vec<(toml::Table, Origin)>,
    ) -> Result<(), ConfigError> {
        let (tables, origins): (Vec<_>, Vec<_>) = sections.into_iter().unzip();
        self.policy.extend(allow::rules(&tables, &origins, self.allow.len())?);
        self.allow.extend(tables);
        Ok(())
    }

    fn sections(&self, _: &List) -> &[toml::Table] {
        &self.allow
    }
}
