//! One layer over the other.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::directories::{self, Environment};
use super::error::closest;
use super::keys::{self, KEYS, Key};
use super::redis::RedisSection;
use super::rules::Broken;
use super::value::{self, Shape};
use super::{
    Config, ConfigError, Flags, Limits, Origin, Policy, UpstreamUrl, access, allow, rules, secret,
};
use crate::keeper::Settings;

/// A configuration, and how it came about.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What is in effect.
    pub config: Config,
    /// What should be looked at, though it is no error.
    pub warnings: Vec<String>,
    pub(super) origins: HashMap<&'static str, Origin>,
}

/// Reads every layer.
///
/// # Errors
///
/// See [`ConfigError`]; the first thing that is wrong, in any layer, also when a higher one
/// overrides it.
pub fn load(flags: &Flags, environment: &Environment) -> Result<Loaded, ConfigError> {
    let mut loaded = base(environment)?;
    let named = flags.config.clone().or_else(|| {
        let variable = environment.variables.get("TENURED_CONFIG")?;
        Some(PathBuf::from(variable))
    });
    match named {
        Some(path) => loaded.file(&path, read(&path)?)?,
        None => {
            for path in directories::files(environment) {
                match read(&path) {
                    Ok(text) => loaded.file(&path, text)?,
                    Err(ConfigError::Read { source, .. }) if is_absent(&source) => {}
                    // That of the host's service, seen by an agent of a user.
                    Err(ConfigError::Read { path, source })
                        if source.kind() == io::ErrorKind::PermissionDenied =>
                    {
                        loaded
                            .warnings
                            .push(format!("{} is not readable: skipped", path.display()));
                    }
                    Err(error) => return Err(error),
                }
            }
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

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn read(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

fn base(environment: &Environment) -> Result<Loaded, ConfigError> {
    let directories = directories::defaults(environment);
    let config = Config {
        socket: PathBuf::new(),
        audience: directories.audience,
        upstream: UpstreamUrl::Embedded,
        upstream_secret_file: None,
        redis: None,
        state_dir: directories.state,
        runtime_dir: directories.runtime,
        log: "info".to_owned(),
        settings: Settings { agent_uid: environment.uid, ..Settings::default() },
        limits: Limits::default(),
        policy: Policy::default(),
        allow: Vec::new(),
        redis_section: RedisSection::default(),
    };
    Ok(Loaded { config, warnings: Vec::new(), origins: HashMap::new() })
}

impl Loaded {
    /// Where a key's value comes from.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    fn set(&mut self, key: &'static Key, text: &str, origin: Origin) -> Result<(), ConfigError> {
        (key.set)(&mut self.config, text)
            .map_err(|rule| wrong(key, format!("{text:?}"), &origin, rule))?;
        self.origins.insert(key.name, origin);
        Ok(())
    }

    fn file(&mut self, path: &Path, text: String) -> Result<(), ConfigError> {
        let origin = Origin::File(path.to_owned());
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count();
            let message = error.message().to_owned();
            ConfigError::Syntax { path: path.to_owned(), line, message }
        })?;
        for (name, value) in table {
            match value {
                toml::Value::Table(section) => {
                    for (key, value) in section {
                        self.entry(&format!("{name}.{key}"), &value, &origin)?;
                    }
                }
                value if name == "allow" => {
                    let tables = allow::tables(value, &origin)?;
                    self.config.policy.extend(allow::rules(&tables, &origin)?);
                    self.config.allow.extend(tables);
                }
                value => self.entry(&name, &value, &origin)?,
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        name: &str,
        value: &toml::Value,
        origin: &Origin,
    ) -> Result<(), ConfigError> {
        let Some(key) = keys::find(name) else {
            return Err(ConfigError::UnknownKey {
                key: name.to_owned(),
                origin: origin.clone(),
                nearest: closest(name, KEYS.iter().map(|key| key.name)),
            });
        };
        let text = value::text(value, key.shape)
            .map_err(|rule| wrong(key, value.to_string(), origin, rule))?;
        self.set(key, &text, origin.clone())
    }

    fn environment(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        // What clients use; an agent started in the same shell should meet them.
        let shared = ("TENURE_SOCKET".to_owned(), "socket");
        let own = KEYS.iter().map(|key| (key.variable(), key.name));
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
            if ours && !known.iter().any(|(name, _)| name == variable) {
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
            let name = crate::host::machine::host_name().map_err(ConfigError::HostName)?;
            self.config.settings.host = name.into();
        }
        rules::check(&self.config).map_err(|broken| self.broken(broken))?;
        if matches!(self.config.upstream, UpstreamUrl::Redis(_)) {
            // Hints of a Redis can be lost.
            self.config.settings.poll = Some(self.config.redis_section.poll);
            if self.config.upstream_secret_file.is_none() {
                self.config.upstream_secret_file = secret::credential(environment);
            }
        }
        let redis = access::resolve(&self.config, environment);
        self.config.redis = redis.map_err(|broken| self.broken(broken))?;
        Ok(self)
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
