//! One layer over the other.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tenure_core::keeper::Settings;
use tenure_stores::settings::secret::{self, Credentials};
use tenure_stores::settings::{Broken, Shape, Stores};

use super::directories::{self, Environment, is_absent};
use super::error::closest;
use super::file::ConfigFile;
use super::keys::{self, Key};
use super::{Config, ConfigError, Flags, Limits, Origin, allow, rules, value};
use crate::policy::Policy;
use crate::telemetry::LogFormat;

/// Anybody may read it.
const FOR_OTHERS: u32 = 0o004;

/// How to treat a file that the agent may not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    /// That of the host's service, seen by an agent of a user.
    Skipped,
    /// Somebody named it.
    Refused,
}

/// A configuration, and how it came about.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// Things that deserve a look, though they are no errors.
    pub warnings: Vec<String>,
    /// The files that were read, in the order in which they count.
    pub files: Vec<PathBuf>,
    pub(super) origins: HashMap<&'static str, Origin>,
    /// The places of the policy's rules.
    pub(super) allow_origins: Vec<Origin>,
}

/// Reads every layer.
///
/// # Errors
///
/// See [`ConfigError`]; the first thing that is wrong, in any layer, also when a higher one
/// overrides it.
pub fn load(flags: &Flags, environment: &Environment) -> Result<Loaded, ConfigError> {
    let mut loaded = Loaded {
        config: defaults(environment),
        warnings: Vec::new(),
        files: Vec::new(),
        origins: HashMap::new(),
        allow_origins: Vec::new(),
    };
    let named = flags.config.clone().or_else(|| {
        let variable = environment.variables.get("TENURED_CONFIG")?;
        Some(PathBuf::from(variable))
    });
    match named {
        Some(path) if path.is_dir() => {
            let (files, warnings) = directories::files_in(&path);
            loaded.warnings.extend(warnings);
            loaded.those_there(&files, Unreadable::Refused)?;
            if loaded.files.is_empty() {
                // Named, so something is expected there.
                loaded.file(&ConfigFile::read(&path.join(directories::MAIN))?)?;
            }
        }
        Some(path) => loaded.file(&ConfigFile::read(&path)?)?,
        None => {
            let (files, warnings) = directories::files(environment);
            loaded.warnings.extend(warnings);
            loaded.those_there(&files, Unreadable::Skipped)?;
        }
    }
    loaded.environment(environment)?;
    for (flag, key, text) in flags.values() {
        #[expect(clippy::expect_used, reason = "a test finds every flag among the keys")]
        let key = keys::find(key).expect("a key for every flag");
        loaded.set(key, text, Origin::Flag(flag))?;
    }
    loaded.finish(environment)
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
        log: "info".to_owned(),
        log_format: LogFormat::default(),
        metrics_listen: None,
        settings: Settings { agent_uid: environment.uid, ..Settings::default() },
        limits: Limits::default(),
        policy: Policy::default(),
        allow: Vec::new(),
    }
}

impl Loaded {
    /// The origin of a key's value.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    fn set(&mut self, key: &'static Key, text: &str, origin: Origin) -> Result<(), ConfigError> {
        key.set(&mut self.config, text)
            .map_err(|rule| wrong(key, format!("{text:?}"), &origin, rule))?;
        self.origins.insert(key.name, origin);
        Ok(())
    }

    /// Reads those of the files that there are.
    fn those_there(
        &mut self,
        files: &[PathBuf],
        unreadable: Unreadable,
    ) -> Result<(), ConfigError> {
        for path in files {
            match ConfigFile::read(path) {
                Ok(file) => self.file(&file)?,
                Err(ConfigError::Read { source, .. }) if is_absent(&source) => {}
                Err(ConfigError::Read { path, source })
                    if source.kind() == io::ErrorKind::PermissionDenied
                        && unreadable == Unreadable::Skipped =>
                {
                    self.warnings.push(format!("{} is not readable: skipped", path.display()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn file(&mut self, file: &ConfigFile) -> Result<(), ConfigError> {
        for (name, value) in &file.table {
            match value {
                toml::Value::Table(section) => {
                    for (key, value) in section {
                        self.entry(file, &format!("{name}.{key}"), value)?;
                    }
                }
                value if name == "allow" => {
                    let tables = allow::tables(value.clone(), &file.origin(name))?;
                    let origins: Vec<_> =
                        (0..tables.len()).map(|index| file.origin_of_rule(index)).collect();
                    let earlier = self.config.allow.len();
                    self.config.policy.extend(allow::rules(&tables, &origins, earlier)?);
                    self.config.allow.extend(tables);
                    self.allow_origins.extend(origins);
                }
                value => self.entry(file, name, value)?,
            }
        }
        self.files.push(file.path.clone());
        Ok(())
    }

    fn entry(
        &mut self,
        file: &ConfigFile,
        name: &str,
        value: &toml::Value,
    ) -> Result<(), ConfigError> {
        let origin = file.origin(name);
        let key = keys::find(name).ok_or_else(|| ConfigError::UnknownKey {
            key: name.to_owned(),
            origin: origin.clone(),
            nearest: closest(name, keys::all().iter().map(|key| key.name)),
        })?;
        let text = value::text(value, key.shape)
            .map_err(|rule| wrong(key, value.to_string(), &origin, rule))?;
        self.set(key, &text, origin)
    }

    fn environment(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        // Clients use it; an agent started in the same shell should meet them.
        let shared = ("TENURE_SOCKET".to_owned(), "socket");
        let own = keys::all().iter().map(|key| (key.variable(), key.name));
        let known: Vec<_> = std::iter::once(shared).chain(own).collect();
        for (variable, key) in &known {
            let (Some(value), Some(key)) = (environment.variables.get(variable), keys::find(key))
            else {
                continue;
            };
            let origin = Origin::Environment(variable.clone());
            let Some(text) = value.to_str() else {
                return Err(wrong(key, format!("{value:?}"), &origin, "must be UTF-8".to_owned()));
            };
            self.set(key, text, origin)?;
        }
        // Only a warning: Kubernetes makes such variables of its own for a service of this name.
        for variable in environment.variables.keys() {
            let ours = variable.starts_with("TENURED_") && variable != "TENURED_CONFIG";
            let is_known = known.iter().any(|(name, _)| name == variable);
            if ours && !is_known {
                self.warnings.push(format!("environment variable {variable} is no key: ignored"));
            }
        }
        Ok(())
    }

    fn finish(mut self, environment: &Environment) -> Result<Loaded, ConfigError> {
        if !self.origins.contains_key("socket") {
            self.config.socket = self.config.runtime_dir.join("api.sock");
        }
        if !self.origins.contains_key("host_name") {
            let name = tenure_host::machine::host_name().map_err(ConfigError::HostName)?;
            self.config.settings.host = name.into();
        }
        self.warn_of_open_passwords();
        rules::check(&self.config).map_err(|broken| self.broken(broken))?;
        let credentials = Credentials {
            directory: environment.directory(Credentials::VARIABLE),
            uid: environment.uid,
        };
        let upstream = self.config.stores.upstream();
        self.config.settings.poll = upstream.poll();
        if upstream.takes_secret() && self.config.upstream_secret_file.is_none() {
            self.config.upstream_secret_file = secret::credential(&credentials);
        }
        let opener =
            self.config.stores.resolve(self.config.upstream_secret_file.as_deref(), &credentials);
        self.config.opener = opener.map_err(|broken| self.broken(broken))?;
        Ok(self)
    }

    /// A password that others can see is one no more, but that is no reason not to serve.
    fn warn_of_open_passwords(&mut self) {
        let Some(elsewhere) = self.config.stores.upstream().passwords_elsewhere() else { return };
        let way_out = format!(
            "put it into a file that only the agent can read, name that in {elsewhere}, and change the password"
        );
        let warning = match self.origin("upstream") {
            Origin::Flag(flag) => format!(
                "{flag} has a password, which every user of this host sees in the list of processes \
                 (ps): {way_out}"
            ),
            Origin::File { path, .. }
                if fs::metadata(path).is_ok_and(|found| found.mode() & FOR_OTHERS != 0) =>
            {
                let path = path.display();
                format!("{path} has a password, and every user of this host can read it: {way_out}")
            }
            _ => return,
        };
        self.warnings.push(warning);
    }

    fn broken(&self, Broken { key, rule }: Broken) -> ConfigError {
        let found = keys::find(&key);
        let value = found.map(|key| key.show(&self.config)).unwrap_or_default();
        let origin = self.origin(&key);
        match found {
            Some(found) => wrong(found, value, origin, rule),
            None => ConfigError::Value { key, value, origin: origin.clone(), rule },
        }
    }
}

fn wrong(key: &Key, value: String, origin: &Origin, rule: String) -> ConfigError {
    let value = if key.shape == Shape::Secret { "***".to_owned() } else { value };
    ConfigError::Value { key: key.name.to_owned(), value, origin: origin.clone(), rule }
}
