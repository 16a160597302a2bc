//! File, environment and flags → one validated configuration of a daemon.
//!
//! Flags win over the environment, the environment over files, files over defaults. The key
//! `leader.ttl` is `ttl` in the section `[leader]` of a file, and `LEADER_TTL` after the daemon's prefix in
//! the environment. Those of a store are the store's own.

mod effective;
mod environment;
mod error;
mod file;
mod key;
mod layers;
mod manual;
mod masked;

use std::path::PathBuf;

pub use environment::{Environment, files_in};
pub use error::{ConfigError, Origin, closest};
pub use file::ConfigFile;
pub use key::Key;
pub use layers::Loaded;
pub use manual::{Entry, Section, sections};
use tenure_stores::settings::secret::Secret;
use tenure_stores::settings::{Shape, Stores};

/// Everything that a daemon can be told.
pub trait Configuration: Sized + 'static {
    /// What people call the daemon.
    const DAEMON: &'static str;
    /// The start of its environment variables.
    const PREFIX: &'static str;
    /// The file in a directory that is read before the drop-ins.
    const MAIN: &'static str;
    /// Environment variables that give a key besides its own, and count less: name and key.
    const SHARED: &'static [(&'static str, &'static str)] = &[];
    /// The lists of sections that a file may have.
    const LISTS: &'static [List] = &[];

    /// All keys, in the order in which they are printed.
    fn keys() -> &'static [Key<Self>];

    /// The files that are read when none is named, those first that others override, and what should be
    /// looked at.
    fn files(environment: &Environment) -> (Vec<PathBuf>, Vec<String>);

    fn stores(&self) -> &Stores;

    fn stores_mut(&mut self) -> &mut Stores;

    /// Passwords by the key that gave them, so that a change can be noticed.
    fn secrets(&self) -> Vec<(&'static str, Secret)>;

    /// Takes sections of a list, each with where it stands.
    ///
    /// # Errors
    ///
    /// With the first one that is wrong.
    fn add_sections(
        &mut self,
        _list: &List,
        _sections: Vec<(toml::Table, Origin)>,
    ) -> Result<(), ConfigError> {
        Ok(())
    }

    /// The sections of a list as they were written.
    fn sections(&self, _list: &List) -> &[toml::Table] {
        &[]
    }

    /// The key of that name.
    fn find(name: &str) -> Option<&'static Key<Self>> {
        Self::keys().iter().find(|key| key.name == name)
    }
}

/// A list of sections, `[[name]]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    pub name: &'static str,
    /// True if a reload puts changed ones into effect.
    pub reloads: bool,
}

impl List {
    /// The tables of such a list.
    ///
    /// # Errors
    ///
    /// When it is something else.
    pub fn tables(
        &self,
        value: &toml::Value,
        origin: &Origin,
    ) -> Result<Vec<toml::Table>, ConfigError> {
        let tables = value.as_array().map(|all| all.iter().map(|it| it.as_table().cloned()));
        tables.and_then(Iterator::collect).ok_or_else(|| ConfigError::Value {
            key: self.name.to_owned(),
            value: value.to_string(),
            origin: origin.clone(),
            rule: format!("must be sections that begin with [[{}]]", self.name),
        })
    }
}

/// A setting that differs between two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: &'static str,
    /// The old value as in a file; `unset` if it had none. Never a secret.
    pub old: String,
    /// The new value.
    pub new: String,
    /// True if a reload puts it into effect.
    pub reloads: bool,
}

/// The differences of `new` to `old`, in the order of [`Configuration::keys`], and lists of sections last.
pub fn changes<C: Configuration>(old: &C, new: &C) -> Vec<Change> {
    let mut changes: Vec<_> = C::keys()
        .iter()
        .filter_map(|key| {
            let (before, mut after) = (key.show(old), key.show(new));
            let mut reloads = key.reloads;
            if before == after {
                if !hides_change(key.name, old, new) {
                    return None;
                }
                after = format!("{before} with another password");
                // The password is part of a secret value, or else in the file that the value names. Such a file
                // is read at each sign-in.
                reloads |= key.shape != Shape::Secret;
            }
            let shown = |text: String| if text.is_empty() { "unset".to_owned() } else { text };
            let (old, new) = (shown(before), shown(after));
            Some(Change { key: key.name, old, new, reloads })
        })
        .collect();
    for list in C::LISTS {
        if old.sections(list) != new.sections(list) {
            let count = |config: &C| match config.sections(list).len() {
                1 => "1 rule".to_owned(),
                count => format!("{count} rules"),
            };
            let (old, new) = (count(old), count(new));
            changes.push(Change { key: list.name, old, new, reloads: list.reloads });
        }
    }
    changes
}

/// True if a password differs that belongs to a key whose shown value is the same.
fn hides_change<C: Configuration>(key: &str, old: &C, new: &C) -> bool {
    let of = |config: &C| {
        let secrets = config.secrets().into_iter();
        secrets.filter(|(given_by, _)| *given_by == key).collect::<Vec<_>>()
    };
    of(old) != of(new)
}
