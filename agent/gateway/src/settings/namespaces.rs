//! `[[namespaces]]`: policies of the control plane, as they are written.

use std::time::Duration;

use tenure_bounds::Globs;
use tenure_service::config::{ConfigError, List, Origin, closest};
use tenure_stores::settings::value;
use tenure_wire::rules;
use toml::{Table, Value};

use crate::mailbox::Exception;

pub(super) const LIST: List = List { name: "namespaces", reloads: false };

/// Most policies: every call looks for its own.
const POLICIES_MAX: usize = 1000;
const KEYS: [&str; 5] = ["name", "ttl", "heartbeat_interval", "grace_period", "legacy"];
const S: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The documentation of the policies.
pub(super) const ABOUT: &str = "Leases of the mailboxes of a namespace, which is the part of a mailbox id before its last @. name is a glob; \
     the first section that fits counts, and what it leaves out is as in [mailbox].";

/// A policy for the documentation.
pub(super) const EXAMPLE: [(&str, &str); 4] = [
    ("name", "\"$admin\""),
    ("ttl", "\"60s\""),
    ("heartbeat_interval", "\"10s\""),
    ("grace_period", "\"10s\""),
];

/// The policy of a table; `earlier` have been read.
pub(super) fn policy(
    table: &Table,
    index: usize,
    origin: &Origin,
    earlier: usize,
) -> Result<Exception, ConfigError> {
    let number = index + 1;
    let refuse = |key: &str, value: String, rule: String| ConfigError::Value {
        key: format!("namespaces[{number}].{key}"),
        value,
        origin: origin.clone(),
        rule,
    };
    if earlier >= POLICIES_MAX {
        let rule = format!("must be one of {POLICIES_MAX} in all files at most; use globs");
        return Err(refuse("name", "…".to_owned(), rule));
    }
    if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(ConfigError::UnknownKey {
            key: format!("{unknown} in [[namespaces]] number {number}"),
            origin: origin.clone(),
            nearest: closest(unknown, KEYS.into_iter()),
        });
    }
    let time = |key: &str, min: Duration| -> Result<Option<Duration>, ConfigError> {
        let Some(written) = table.get(key) else { return Ok(None) };
        let read = value::duration_in(written.as_str().unwrap_or_default(), min, DAY);
        read.map(Some).map_err(|rule| refuse(key, written.to_string(), rule))
    };
    let name = table.get("name").and_then(Value::as_str).ok_or_else(|| {
        let rule = "must be given: a namespace, or a glob such as \"audit-*\"";
        refuse("name", "unset".to_owned(), rule.to_owned())
    })?;
    rules::glob("name", name)
        .map_err(|invalid| refuse("name", rules::quote(name), invalid.why().to_owned()))?;
    let namespaces = Globs::new([name]);
    let legacy = match table.get("legacy") {
        None => None,
        Some(Value::Boolean(legacy)) => Some(*legacy),
        Some(other) => {
            let rule = "must be true or false, without quotes".to_owned();
            return Err(refuse("legacy", other.to_string(), rule));
        }
    };
    Ok(Exception {
        namespaces: namespaces
            .map_err(|bad| refuse("name", format!("{:?}", bad.text), bad.rule))?,
        ttl: time("ttl", S)?,
        heartbeat_interval: time("heartbeat_interval", S)?,
        grace_period: time("grace_period", Duration::ZERO)?,
        legacy,
    })
}
