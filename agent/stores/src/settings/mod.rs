//! Settings of stores, as a configuration gives them: a URL, a section of keys, and a file with a password.
//!
//! [`Stores`] has those of every kind of store in `KINDS`, which is all that others know of a kind. A new
//! one writes [`Settings`] and [`Opener`], and adds itself to `KINDS`.

pub mod from_files;
mod opener;
pub mod secret;
pub mod tls;
pub mod url;
pub mod value;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use self::opener::{OpenError, Opened, Opener, Place};
use self::secret::Credentials;
use crate::{embedded, gateway, postgres, redis};

/// Default settings of every kind of store. The first one is the upstream if no URL is given.
const KINDS: [fn() -> Box<dyn Settings>; 4] =
    [embedded::settings, redis::settings, postgres::settings, gateway::settings];

/// The rule that a value broke.
pub type Refusal = String;

/// A key whose value breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {rule}")]
pub struct Broken {
    pub key: String,
    pub rule: Refusal,
}

impl Broken {
    pub fn new(key: &str, rule: impl Into<Refusal>) -> Broken {
        Broken { key: key.to_owned(), rule: rule.into() }
    }
}

/// The form of a key's value in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Text,
    /// May contain a password.
    Secret,
    Duration,
    Count,
    /// True or false.
    Switch,
}

/// A value as a file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Count(i64),
    Switch(bool),
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

/// A key of the settings `S`.
#[derive(Debug)]
pub struct Key<S> {
    /// As in a file: `section.key`.
    pub name: &'static str,
    pub shape: Shape,
    /// True if a reload puts it into effect.
    pub reloads: bool,
    pub set: fn(&mut S, &str) -> Result<(), Refusal>,
    /// `None` when it is not set and has no default.
    pub get: fn(&S) -> Option<Value>,
    pub doc: Doc,
}

impl<S> Key<S> {
    /// The same with this text in its documentation; see [`Doc::about`].
    #[must_use]
    pub const fn about(mut self, about: &'static str) -> Key<S> {
        self.doc.about = about;
        self
    }

    /// The same with this example in its documentation; see [`Doc::example`].
    #[must_use]
    pub const fn example(mut self, example: &'static str) -> Key<S> {
        self.doc.example = Some(example);
        self
    }

    /// The key as one of a section.
    pub fn of_section(&self) -> SectionKey {
        SectionKey { name: self.name, shape: self.shape, doc: self.doc }
    }
}

/// The documentation of a key. The sample file and the manual page are made of it.
#[derive(Debug, Clone, Copy)]
pub struct Doc {
    /// Each line is a paragraph, and is filled when it is printed. Those that begin with two blanks
    /// belong together and are printed as they are. Empty where the key says enough.
    pub about: &'static str,
    /// A value as a file has it, for a key without a default that holds everywhere.
    pub example: Option<&'static str>,
}

impl Doc {
    pub const NONE: Doc = Doc { about: "", example: None };
}

/// A key of a store's section.
#[derive(Debug, Clone, Copy)]
pub struct SectionKey {
    pub name: &'static str,
    pub shape: Shape,
    pub doc: Doc,
}

/// Settings of one kind of store.
pub trait Settings: Debug + Send + Sync {
    /// The name of the kind, which is that of its section too.
    fn kind(&self) -> &'static str;

    /// The guarantee of such a store, in one sentence.
    fn guarantee(&self) -> &'static str;

    /// True if it depends on the settings of the store; then its health tells what was found.
    fn finds_guarantee(&self) -> bool {
        false
    }

    /// An example of a URL, as part of a sentence.
    fn example(&self) -> &'static str;

    /// Reads a URL, split at its first colon, with its scheme in lower case; `None` if the scheme is none of this
    /// kind. A refusal never quotes the URL: it may have a password in it.
    fn set_url(&mut self, scheme: &str, rest: &str) -> Option<Result<(), Refusal>>;

    /// The URL with *** in place of every password.
    fn url(&self) -> String;

    /// The address for everybody, without users and passwords; `None` if the store is in this process.
    fn address(&self) -> Option<String> {
        None
    }

    /// Where else the passwords of this URL could be kept; `None` if it has none.
    fn passwords_elsewhere(&self) -> Option<&'static str> {
        None
    }

    /// The keys of the section.
    fn keys(&self) -> Vec<SectionKey> {
        Vec::new()
    }

    /// The documentation of the section; see [`Doc::about`].
    fn about(&self) -> &'static str {
        ""
    }

    /// Sets one of [`Settings::keys`].
    fn set(&mut self, _key: &str, _text: &str) -> Result<(), Refusal> {
        Ok(())
    }

    /// One of [`Settings::keys`]; `None` if it is not set and has no default.
    fn get(&self, _key: &str) -> Option<Value> {
        None
    }

    /// Rules between the keys, which hold also if another store is the upstream.
    fn check(&self) -> Result<(), Broken> {
        Ok(())
    }

    /// Longest time between two questions about a contended resource, where hints can be lost.
    fn poll(&self) -> Option<Duration> {
        None
    }

    /// True if a password from a file is of use.
    fn takes_secret(&self) -> bool {
        false
    }

    /// Settings with which the store can be opened. Reads the files that they name.
    fn resolve(
        &self,
        secret_file: Option<&Path>,
        credentials: &Credentials,
    ) -> Result<Arc<dyn Opener>, Broken>;

    /// A copy.
    fn boxed(&self) -> Box<dyn Settings>;
}

/// The settings of all kinds of stores, one of which is the upstream.
#[derive(Debug)]
pub struct Stores {
    all: Vec<Box<dyn Settings>>,
    upstream: usize,
}

impl Clone for Stores {
    fn clone(&self) -> Stores {
        let all = self.all.iter().map(|settings| settings.boxed()).collect();
        Stores { all, upstream: self.upstream }
    }
}

impl Default for Stores {
    fn default() -> Stores {
        Stores { all: KINDS.iter().map(|settings| settings()).collect(), upstream: 0 }
    }
}

impl Stores {
    /// The same, with a kind that this crate does not have.
    #[must_use]
    pub fn with(mut self, settings: Box<dyn Settings>) -> Stores {
        self.all.push(settings);
        self
    }

    /// Makes the store with that URL the upstream. A scheme is read without regard to case (RFC 3986), and white
    /// space at the end is not part of the URL: `$(cat FILE)` leaves a line break out, other ways to give a value
    /// do not.
    ///
    /// # Errors
    ///
    /// With the rule that the URL breaks. It never contains the URL: there may be a password in it.
    pub fn set_url(&mut self, url: &str) -> Result<(), Refusal> {
        let known = self.all.iter().map(|settings| settings.example()).collect::<Vec<_>>();
        let known = format!("use {}", known.join(", or "));
        let Some((scheme, rest)) = url.trim_ascii_end().split_once(':') else {
            return Err(format!("not the URL of an upstream; {known}"));
        };
        let scheme = scheme.to_ascii_lowercase();
        for (at, settings) in self.all.iter_mut().enumerate() {
            if let Some(read) = settings.set_url(&scheme, rest) {
                read?;
                self.upstream = at;
                return Ok(());
            }
        }
        Err(format!("not the URL of an upstream; {known}"))
    }

    /// The settings of the upstream.
    #[expect(clippy::indexing_slicing, reason = "an index of `all`")]
    pub fn upstream(&self) -> &dyn Settings {
        &*self.all[self.upstream]
    }

    /// The keys of all sections.
    pub fn keys(&self) -> impl Iterator<Item = SectionKey> {
        self.all.iter().flat_map(|settings| settings.keys())
    }

    /// The documentation of a kind's section; `None` if there is no such kind.
    pub fn about(&self, kind: &str) -> Option<&'static str> {
        self.all.iter().find(|settings| settings.kind() == kind).map(|settings| settings.about())
    }

    fn of_key(name: &str) -> impl Fn(&Box<dyn Settings>) -> bool {
        let section = name.split_once('.').map(|(section, _)| section.to_owned());
        move |settings| Some(settings.kind()) == section.as_deref()
    }

    /// Sets a key of a section.
    ///
    /// # Errors
    ///
    /// With the rule that the value breaks.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), Refusal> {
        let is_of_key = Stores::of_key(key);
        match self.all.iter_mut().find(|settings| is_of_key(settings)) {
            Some(settings) => settings.set(key, text),
            None => Ok(()),
        }
    }

    /// The value of a key of a section.
    pub fn get(&self, key: &str) -> Option<Value> {
        let is_of_key = Stores::of_key(key);
        self.all.iter().find(|settings| is_of_key(settings))?.get(key)
    }

    /// Checks all settings, and gives the means to open the upstream.
    ///
    /// # Errors
    ///
    /// With the first key that breaks a rule.
    pub fn resolve(
        &self,
        secret_file: Option<&Path>,
        credentials: &Credentials,
    ) -> Result<Arc<dyn Opener>, Broken> {
        self.all.iter().try_for_each(|settings| settings.check())?;
        self.upstream().resolve(secret_file, credentials)
    }
}

/// A key of the settings `$settings` with a duration, both bounds included.
#[macro_export]
macro_rules! duration_key {
    ($settings:ty, $name:literal, $($field:ident).+, $min:expr, $max:expr) => {
        $crate::settings::Key::<$settings> {
            name: $name,
            shape: $crate::settings::Shape::Duration,
            reloads: false,
            set: |settings, text| {
                settings.$($field).+ = $crate::settings::value::duration_in(text, $min, $max)?;
                Ok(())
            },
            get: |settings| Some($crate::settings::value::show(settings.$($field).+).into()),
            doc: $crate::settings::Doc::NONE,
        }
    };
}

/// A key of the settings `$settings` with a path that has no default.
#[macro_export]
macro_rules! optional_path_key {
    ($settings:ty, $name:expr, $($field:ident).+, $parse:path) => {
        $crate::settings::Key::<$settings> {
            name: $name,
            shape: $crate::settings::Shape::Text,
            reloads: false,
            set: |settings, text| {
                settings.$($field).+ = Some($parse(text)?);
                Ok(())
            },
            get: |settings| Some(settings.$($field).+.as_ref()?.display().to_string().into()),
            doc: $crate::settings::Doc::NONE,
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_it_does_not_know_without_quoting_it() {
        let mut stores = Stores::default();
        assert_eq!(
            (stores.upstream().kind(), stores.upstream().url().as_str()),
            ("embedded", "embedded:")
        );
        assert_eq!(stores.upstream().address(), None);
        for url in ["hunter2", "hunter2://x", "embedded:hunter2"] {
            let refusal = stores.set_url(url).unwrap_err();
            assert!(!refusal.contains("hunter2") && refusal.contains("embedded:"), "{refusal}");
        }
        stores.set_url("redis://:hunter2@h/3").unwrap();
        let url = stores.upstream().url();
        assert_eq!((stores.upstream().kind(), url.as_str()), ("redis", "redis://:***@h:6379/3"));
        assert!(!format!("{stores:?}").contains("hunter2"));
        stores.set_url("embedded:").unwrap();
        assert_eq!(stores.upstream().kind(), "embedded");
    }

    #[test]
    fn neither_the_case_of_a_scheme_nor_white_space_at_the_end_matters() {
        for (url, shown) in [
            ("REDIS://h", "redis://h:6379/0"),
            ("Rediss://me:Hunter2@H", "rediss://me:***@H:6379/0"),
            ("Redis+Sentinel://h/M\n", "redis+sentinel://h:26379/M/0"),
            ("Redis+UNIX:///Run/s \t", "redis+unix:///Run/s?db=0"),
            ("Postgres://Me@h/App\r\n", "postgres://Me@h:5432/App"),
            ("PostgreSQL://me@h", "postgres://me@h:5432/me"),
            ("HTTPS://h\n\n", "https://h:443"),
            ("Http://localhost:1", "http://localhost:1"),
            ("EMBEDDED:\n", "embedded:"),
        ] {
            let mut stores = Stores::default();
            stores.set_url(url).unwrap();
            assert_eq!(stores.upstream().url(), shown, "{url:?}");
        }
        let mut stores = Stores::default();
        for url in ["", " ", "\n", "HUNTER2://x", " redis://:hunter2@h", "REDIS://:hunter2@h:x\n"] {
            let refusal = stores.set_url(url).unwrap_err();
            assert!(!refusal.to_lowercase().contains("hunter2"), "{refusal}");
        }
    }
}
