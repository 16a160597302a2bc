//! A key of a configuration: how it is written, where it goes, how it is shown.

use tenure_stores::settings::{self, Doc, Refusal, SectionKey, Shape, Stores};

use super::Configuration;

/// A setting.
pub struct Key<C: 'static> {
    /// As in a file: `section.key`.
    pub name: &'static str,
    pub shape: Shape,
    /// True if SIGHUP puts it into effect.
    pub reloads: bool,
    pub doc: Doc,
    /// `None` for a key of a store.
    own: Option<&'static settings::Key<C>>,
}

impl<C: Configuration> Key<C> {
    /// The daemon's own keys, then those of the stores that are wanted.
    pub fn list(
        own: &'static [settings::Key<C>],
        stores: &Stores,
        wanted: fn(&SectionKey) -> bool,
    ) -> Vec<Key<C>> {
        let of_key = |key: SectionKey, reloads, own| {
            let SectionKey { name, shape, doc } = key;
            Key { name, shape, reloads, doc, own }
        };
        let own = own.iter().map(|key| of_key(key.of_section(), key.reloads, Some(key)));
        let of_stores = stores.keys().filter(wanted).map(|key| of_key(key, false, None));
        own.chain(of_stores).collect()
    }

    /// `leader.ttl` is `LEADER_TTL` after the prefix.
    pub fn variable(&self) -> String {
        format!("{}{}", C::PREFIX, self.name.to_uppercase().replace('.', "_"))
    }

    pub fn section(&self) -> Option<&'static str> {
        self.name.split_once('.').map(|(section, _)| section)
    }

    /// The name within its section.
    pub fn short(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, short)| short)
    }

    /// Sets it.
    ///
    /// # Errors
    ///
    /// With the rule that the text breaks.
    pub fn set(&self, config: &mut C, text: &str) -> Result<(), Refusal> {
        match self.own {
            Some(key) => (key.set)(config, text),
            None => config.stores_mut().set(self.name, text),
        }
    }

    /// `None` when it is not set and has no default.
    pub fn get(&self, config: &C) -> Option<toml::Value> {
        let value = match self.own {
            Some(key) => (key.get)(config),
            None => config.stores().get(self.name),
        };
        value.map(|value| match value {
            settings::Value::Text(text) => toml::Value::String(text),
            settings::Value::Count(count) => toml::Value::Integer(count),
            settings::Value::Switch(is_on) => toml::Value::Boolean(is_on),
        })
    }

    /// The value for people, and for error messages: never a secret.
    pub fn show(&self, config: &C) -> String {
        self.get(config).map(|value| value.to_string()).unwrap_or_default()
    }
}
