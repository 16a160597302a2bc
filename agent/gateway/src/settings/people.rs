//! `[[people]]`: the bounds of people whom a reverse proxy signs in, as they are written.

use std::sync::Arc;

use tenure_bounds::{Bounds, Globs};
use tenure_service::config::{ConfigError, List, Origin, closest};
use tenure_stores::settings::Broken;
use tenure_wire::rules;
use toml::{Table, Value};

use super::Settings;
use super::keys::rights;
use crate::access::{KeyBounds, People, SignIn};

pub(super) const LIST: List = List { name: "people", reloads: false };

/// Most sections: each request of a person searches them.
const PEOPLE_MAX: usize = 1000;
const KEYS: [&str; 3] = ["who", "tenant", "rights"];

/// The documentation of the people.
pub(super) const ABOUT: &str = "People on the page, whom a proxy of trusted_proxies names in identity_header. who is a glob of their names: the first \
     section that matches counts, and a person without one is refused. tenant is a glob of the tenants that they see, by \
     default all; rights are as those of keys, by default none.";

/// People for the documentation.
pub(super) const EXAMPLE: [(&str, &str); 3] = [
    ("who", "\"*@ops.example\""),
    ("tenant", "\"*\""),
    ("rights", "\"owners, history, audit, agents, revoke\""),
];

/// The people of a table; `earlier` sections have been read.
pub(super) fn people(
    table: &Table,
    index: usize,
    origin: &Origin,
    earlier: usize,
) -> Result<People, ConfigError> {
    let number = index + 1;
    let refuse = |key: &str, value: String, rule: String| ConfigError::Value {
        key: format!("people[{number}].{key}"),
        value,
        origin: origin.clone(),
        rule,
    };
    if earlier >= PEOPLE_MAX {
        let rule = format!("must be one of {PEOPLE_MAX} in all files at most; use globs");
        return Err(refuse("who", "…".to_owned(), rule));
    }
    if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(ConfigError::UnknownKey {
            key: format!("{unknown} in [[people]] number {number}"),
            origin: origin.clone(),
            nearest: closest(unknown, KEYS.into_iter()),
        });
    }
    let text = |key: &str| match table.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => Err(refuse(key, other.to_string(), "must be a text in quotes".to_owned())),
    };
    let globs = |key: &str, text: &str| -> Result<Globs, ConfigError> {
        rules::glob(key, text)
            .map_err(|invalid| refuse(key, rules::quote(text), invalid.why().to_owned()))?;
        Globs::new([text]).map_err(|bad| refuse(key, format!("{:?}", bad.text), bad.rule))
    };
    let who = text("who")?.ok_or_else(|| {
        let rule =
            "must be given: a name as the proxy sends it, or a glob such as \"*@ops.example\"";
        refuse("who", "unset".to_owned(), rule.to_owned())
    })?;
    let tenants = text("tenant")?.map(|tenant| globs("tenant", tenant)).transpose()?;
    let given = text("rights")?.unwrap_or_default();
    let rights = rights(given).map_err(|rule| refuse("rights", format!("{given:?}"), rule))?;
    let scope = Bounds { tenants, ..Bounds::default() };
    let bounds = Arc::new(KeyBounds { scope, rights, ..KeyBounds::default() });
    Ok(People { who: globs("who", who)?, bounds })
}

impl Settings {
    /// The way in which proxies sign people in, if they do.
    pub fn sign_in(&self) -> Option<SignIn> {
        let header = self.identity_header.clone()?;
        let (proxies, people) = (self.trusted_proxies.clone(), self.people.clone());
        Some(SignIn { header, proxies, people })
    }
}

/// Rules between the settings of people who are signed in.
pub(super) fn check(settings: &Settings) -> Result<(), Broken> {
    let wrong = |key: &str, rule: &str| Err(Broken::new(key, rule));
    let has_proxies = !settings.trusted_proxies.is_empty();
    if settings.identity_header.is_none() {
        return match has_proxies {
            true => wrong("trusted_proxies", "has no meaning without identity_header: give both"),
            false => Ok(()),
        };
    }
    if !has_proxies {
        let rule = "needs trusted_proxies: without it any client could claim to be any person";
        return wrong("identity_header", rule);
    }
    if !settings.asks_for_keys() && settings.tls.clients.is_none() {
        let rule = "needs keys_in_store, keys_file, require_keys or tls.client_ca_file: without one \
             of them every caller has all rights anyway";
        return wrong("identity_header", rule);
    }
    if settings.people.is_empty() {
        return wrong(
            "identity_header",
            "needs a section [[people]]: without one it admits no person",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Right;

    fn read(text: &str) -> Result<People, String> {
        let table: Table = text.parse().unwrap();
        people(&table, 0, &Origin::Flag("/f"), 0).map_err(|error| error.to_string())
    }

    #[test]
    fn people_have_a_name_and_no_right_unless_it_is_named() {
        let plain = read("who = \"*@a.example\"").unwrap();
        assert!(plain.who.is_match("zoe@a.example") && !plain.who.is_match("zoe@b.example"));
        assert!(!plain.bounds.rights.has(Right::Revoke) && plain.bounds.scope.names_all());
        let some = read("who = \"a\"\ntenant = \"t-*\"\nrights = \"revoke, owners\"").unwrap();
        assert!(some.bounds.rights.has(Right::Revoke) && !some.bounds.rights.has(Right::Audit));
        assert!(!some.bounds.scope.names_all());
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, words) in [
            ("rights = \"all\"", "/f: people[1].who = unset: must be given"),
            ("who = 3", "/f: people[1].who = 3: must be a text in quotes"),
            ("who = \"a\"\nrights = \"root\"", "/f: people[1].rights = \"root\": must be revoke"),
            ("who = \"a\"\nright = \"all\"", "there is no key right in [[people]] number 1"),
        ] {
            let error = read(text).map(|people| people.who).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
