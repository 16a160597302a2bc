//! `[[allow]]` rules as they are written.

use nix::unistd::{Group, User};
use tenure_bounds::{Bounds, Globs};
use tenure_service::config::{List, closest};
use tenure_wire::{Kind, rules};
use toml::Value;

use super::{ConfigError, Origin};
use crate::policy::{Rule, Who};

/// Most rules: every request is judged by all of them.
const RULES_MAX: usize = 1000;
pub(super) const KEYS: [&str; 9] = [
    "uid",
    "gid",
    "tenants",
    "projects",
    "kinds",
    "names",
    "priority_max",
    "sessions_max",
    "holds_max",
];

/// The documentation of the rules.
pub(super) const ABOUT: &str =
    "Who may do what. Without any rule, everybody who can open the socket may do everything. With rules, a \
     request needs one that allows all of it, and a user is told only of resources that it may have; root \
     and the agent's own user are told of all. Can be changed by a reload (SIGHUP).
uid and gid: a number, a name, \"*\" for everybody, or a list; at least one of them. gid is the primary \
     group of the calling process. tenants, projects, names: lists of globs, in which * also covers \
     slashes; left out they allow all. kinds: master, leader, lease, semaphore. sessions_max and holds_max \
     are per user; the most generous of a user's rules counts. sessions_max takes the place of \
     limits.sessions_per_uid_max.";

/// A rule for the documentation.
pub(super) const EXAMPLE: [(&str, &str); 8] = [
    ("uid", "[\"alice\", 1001]"),
    ("tenants", "[\"default\"]"),
    ("projects", "[\"web-*\"]"),
    ("kinds", "[\"leader\", \"semaphore\"]"),
    ("names", "[\"ci/*\"]"),
    ("priority_max", "50"),
    ("sessions_max", "100"),
    ("holds_max", "1000"),
];

/// The list of rules.
pub(crate) const ALLOW: List = List { name: "allow", reloads: true };

/// The rules that those tables mean on this host, each with where it stands. `earlier` have been read
/// from other files.
pub(crate) fn rules(
    tables: &[toml::Table],
    origins: &[Origin],
    earlier: usize,
) -> Result<Vec<Rule>, ConfigError> {
    let count = earlier + tables.len();
    if count > RULES_MAX {
        return Err(ConfigError::Value {
            key: "allow".to_owned(),
            value: format!("{count} rules"),
            origin: origins.last().cloned().unwrap_or(Origin::Default),
            rule: format!("must be at most {RULES_MAX} in all files; use globs"),
        });
    }
    let each = tables.iter().zip(origins).enumerate();
    each.map(|(index, (table, origin))| Reader { index, table, origin }.rule()).collect()
}

struct Reader<'a> {
    index: usize,
    table: &'a toml::Table,
    origin: &'a Origin,
}

impl Reader<'_> {
    fn rule(&self) -> Result<Rule, ConfigError> {
        if let Some(unknown) = self.table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(ConfigError::UnknownKey {
                key: format!("{unknown} in [[allow]] number {}", self.index + 1),
                origin: self.origin.clone(),
                nearest: closest(unknown, KEYS.into_iter()),
            });
        }
        if !self.table.contains_key("uid") && !self.table.contains_key("gid") {
            let rule = "must name a uid or a gid; uid = \"*\" is everybody";
            return Err(self.refuse("", "{…}".to_owned(), rule));
        }
        Ok(Rule {
            uid: self.who("uid", user)?,
            gid: self.who("gid", group)?,
            bounds: Bounds {
                tenants: self.globs("tenants")?,
                projects: self.globs("projects")?,
                kinds: self.kinds()?,
                names: self.globs("names")?,
                priority_max: self.number(
                    "priority_max",
                    i64::from(i32::MIN),
                    i64::from(i32::MAX),
                )?,
                sessions_max: self.number("sessions_max", 0, i64::from(u32::MAX))?,
                holds_max: self.number("holds_max", 0, i64::from(u32::MAX))?,
            },
        })
    }

    fn refuse(&self, key: &str, value: String, rule: &str) -> ConfigError {
        let dot = if key.is_empty() { "" } else { "." };
        ConfigError::Value {
            key: format!("allow[{}]{dot}{key}", self.index + 1),
            value,
            origin: self.origin.clone(),
            rule: rule.to_owned(),
        }
    }

    fn who(&self, key: &str, id: fn(&str) -> Option<u32>) -> Result<Who, ConfigError> {
        let entries = match self.table.get(key) {
            None => return Ok(Who::Any),
            Some(Value::Array(entries)) => entries.as_slice(),
            Some(entry) => std::slice::from_ref(entry),
        };
        let mut ids = Vec::new();
        for entry in entries {
            ids.push(match entry {
                Value::String(name) if name == "*" => return Ok(Who::Any),
                Value::Integer(number) => u32::try_from(*number).ok(),
                Value::String(name) => id(name),
                _ => None,
            });
            if ids.last() == Some(&None) {
                let rule = "must be a number, a name that this host knows, or \"*\"";
                return Err(self.refuse(key, entry.to_string(), rule));
            }
        }
        Ok(Who::Ids(ids.into_iter().flatten().collect()))
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, ConfigError> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let refuse = || self.refuse(key, value.to_string(), "must be a list of texts in quotes");
        let entries = value.as_array().ok_or_else(refuse)?;
        entries
            .iter()
            .map(|entry| entry.as_str().ok_or_else(refuse))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    fn globs(&self, key: &str) -> Result<Option<Globs>, ConfigError> {
        let Some(texts) = self.texts(key)? else {
            return Ok(None);
        };
        for text in &texts {
            rules::glob(key, text)
                .map_err(|invalid| self.refuse(key, rules::quote(text), invalid.why()))?;
        }
        let globs = Globs::new(texts);
        globs.map(Some).map_err(|bad| self.refuse(key, format!("{:?}", bad.text), &bad.rule))
    }

    fn kinds(&self) -> Result<Vec<Kind>, ConfigError> {
        let Some(texts) = self.texts("kinds")? else {
            return Ok(Kind::ALL.to_vec());
        };
        if texts.contains(&"*") {
            return Ok(Kind::ALL.to_vec());
        }
        let rule = "must be master, leader, lease, semaphore or \"*\"";
        let kind =
            |text: &&str| text.parse().map_err(|_| self.refuse("kinds", format!("{text:?}"), rule));
        texts.iter().map(kind).collect()
    }

    fn number<N: TryFrom<i64>>(
        &self,
        key: &str,
        min: i64,
        max: i64,
    ) -> Result<Option<N>, ConfigError> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let number = value.as_integer().filter(|number| (min..=max).contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        let rule = format!("must be a number from {min} to {max}");
        number.map(Some).ok_or_else(|| self.refuse(key, value.to_string(), &rule))
    }
}

fn user(name: &str) -> Option<u32> {
    let found = User::from_name(name).ok().flatten()?;
    Some(found.uid.as_raw())
}

fn group(name: &str) -> Option<u32> {
    let found = Group::from_name(name).ok().flatten()?;
    Some(found.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let mut table: toml::Table = text.parse().unwrap();
        let origin = Origin::Flag("/f");
        let result = ALLOW
            .tables(&table.remove("allow").unwrap(), &origin)
            .and_then(|tables| rules(&tables, &vec![origin; tables.len()], 0));
        assert_eq!(result.unwrap_err().to_string(), expected);
    }

    #[test]
    fn says_what_is_wrong() {
        refused(
            "[[allow]]\nuid = 1\n[[allow]]\nuid = 1\ntenant = []",
            "/f: there is no key tenant in [[allow]] number 2; did you mean tenants?",
        );
        refused(
            "[[allow]]\ntenants = []",
            "/f: allow[1] = {…}: must name a uid or a gid; uid = \"*\" is everybody",
        );
        refused(
            "[[allow]]\nuid = \"no such user\"",
            "/f: allow[1].uid = \"no such user\": must be a number, a name that this host knows, or \"*\"",
        );
        refused(
            "[[allow]]\nuid = 1\nkinds = [\"lock\"]",
            "/f: allow[1].kinds = \"lock\": must be master, leader, lease, semaphore or \"*\"",
        );
        refused(
            "[[allow]]\nuid = 1\nnames = [\"a[\"]",
            "/f: allow[1].names = \"a[\": unclosed character class; missing ']'",
        );
        refused(
            "[[allow]]\nuid = 1\nsessions_max = -1",
            "/f: allow[1].sessions_max = -1: must be a number from 0 to 4294967295",
        );
        refused("allow = 3", "/f: allow = 3: must be sections that begin with [[allow]]");
    }

    #[test]
    fn names_are_those_of_this_host() {
        assert_eq!(user("root"), Some(0));
        assert_eq!(group("no such group"), None);
    }
}
