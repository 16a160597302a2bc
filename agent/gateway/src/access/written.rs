//! Keys as the file has them.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use tenure_bounds::{Bounds, Globs};
use tenure_stores::settings::value::duration;
use tenure_wire::Kind;

use super::bounds::KeyBounds;
use super::now;
use super::rights::Rights;
use tenure_stores::gateway::key::New;

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default, rename = "key")]
    pub(super) keys: Vec<WrittenKey>,
}

/// A key of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenKey {
    pub(super) id: String,
    pub(super) principal: String,
    pub(super) sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) created_at: Option<u64>,
    /// As the store has it, which notes uses; a file has none.
    #[serde(skip)]
    pub(super) used_at: Option<u64>,
    /// The id of the key that a join key was exchanged for, as the store has it.
    #[serde(skip)]
    pub(super) joined: Option<String>,
    // A table of its own, after all else: serde cannot refuse unknown words in one that is flattened.
    #[serde(default, skip_serializing_if = "WrittenBounds::is_empty")]
    pub(super) bounds: WrittenBounds,
}

impl WrittenKey {
    /// That of a key that was just made.
    pub(super) fn of(
        new: &New,
        principal: &str,
        expires_at: Option<u64>,
        bounds: &WrittenBounds,
    ) -> WrittenKey {
        WrittenKey {
            id: new.id.to_string(),
            principal: principal.to_owned(),
            sha256: new.hash.to_string(),
            expires_at,
            created_at: Some(now()),
            used_at: None,
            joined: None,
            bounds: bounds.clone(),
        }
    }
}

/// The bounds of a key: the words of the agent's `[[allow]]` rules, and some more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct WrittenBounds {
    /// Make a join key: one agent exchanges it for a key of its own, with the same principal and bounds, and no other end.
    ///
    /// Put it into upstream_secret_file of the agent, which makes its own key, and keeps that in its state directory
    /// (mode 0600). Whoever shows the join key afterwards is refused. Takes keys in the store, and --expires.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[arg(long)]
    pub once: bool,
    /// Glob of tenants; in globs * also covers slashes. May be repeated, as those that follow; left out, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long = "tenant", value_name = "GLOB", help_heading = BOUNDS)]
    pub tenants: Option<Vec<String>>,
    /// Glob of projects: of sessions and masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long = "project", value_name = "GLOB", help_heading = BOUNDS)]
    pub projects: Option<Vec<String>>,
    /// Kind: master, leader, lease or semaphore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long = "kind", value_name = "KIND", help_heading = BOUNDS)]
    pub kinds: Option<Vec<String>>,
    /// Glob of names: of leaders, leases and semaphores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long = "name", value_name = "GLOB", help_heading = BOUNDS)]
    pub names: Option<Vec<String>>,
    /// Most sessions of the principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NUMBER", help_heading = BOUNDS)]
    pub sessions_max: Option<u32>,
    /// Most holds of the principal, waiting ones counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NUMBER", help_heading = BOUNDS)]
    pub holds_max: Option<u32>,
    /// Most waiting holds of the principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NUMBER", help_heading = BOUNDS)]
    pub waiters_max: Option<u32>,
    /// Most calls of the principal at a time; as many with beats come on top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NUMBER", help_heading = BOUNDS)]
    pub calls_max: Option<u32>,
    /// Most open streams of the principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NUMBER", help_heading = BOUNDS)]
    pub streams_max: Option<u32>,
    /// Most proxies that the principal registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NUMBER", help_heading = BOUNDS)]
    pub proxies_max: Option<u32>,
    /// Most bytes that the principal keeps in the store: 256 for each session and hold, and its names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "BYTES", help_heading = BOUNDS)]
    pub bytes_max: Option<u32>,
    /// Longest ttl of a session or a hold, such as 2m. The agent's own are 90s at most, unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "DURATION", help_heading = BOUNDS)]
    pub ttl_max: Option<String>,
    /// Highest priority of a master; a higher one preempts. 0 is that of all surfaces but claude_desktop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true, help_heading = BOUNDS)]
    pub priority_max: Option<i32>,
    /// Calls per second of the principal; as many beats, of up to 512 holds each, come on top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NUMBER", help_heading = BOUNDS)]
    pub requests_per_second: Option<u32>,
    /// Rows that the principal reads in a second, in the long run: members, holders, waiters, routes, names and history. Five
    /// times as many come at once; beyond that reads wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NUMBER", help_heading = BOUNDS)]
    pub rows_per_second: Option<NonZeroU32>,
    /// Right to a deed that concerns others: revoke, limit, proxy, history, agents, examine, metrics, audit or owners;
    /// all for all of them. May be repeated.
    ///
    /// revoke: take what others hold. limit: change the limit of a semaphore that others use. proxy: register a proxy, and
    /// follow routes as one. history: read who held what. agents: list the agents of others. examine: examine the store.
    /// metrics: read /metrics. audit: follow the changes of others. owners: see session, host and name of other holders,
    /// waiters and members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long = "right", value_name = "RIGHT", help_heading = RIGHTS)]
    pub rights: Option<Vec<String>>,
}

/// The heading of bounds in help.
const BOUNDS: &str =
    "Bounds (left out, there is none, or that of the settings limits.*_per_principal)";
/// That of rights.
const RIGHTS: &str = "Rights (left out, there is none)";

impl WrittenBounds {
    /// True if they say nothing: everything of its own is within them, and it has no rights.
    pub fn is_empty(&self) -> bool {
        *self == WrittenBounds::default()
    }

    /// The bounds that these words mean.
    ///
    /// # Errors
    ///
    /// With the word, its value and the rule.
    pub fn read(&self) -> Result<KeyBounds, String> {
        let kinds = match &self.kinds {
            None => Kind::ALL.to_vec(),
            Some(kinds) => kinds.iter().map(|kind| read_kind(kind)).collect::<Result<_, _>>()?,
        };
        let ttl_max = self
            .ttl_max
            .as_deref()
            .map(|text| duration(text).map_err(|rule| format!("ttl_max = {text:?}: {rule}")));
        let count = |number: Option<u32>| number.and_then(|number| usize::try_from(number).ok());
        Ok(KeyBounds {
            is_once: self.once,
            scope: Bounds {
                tenants: globs("tenants", self.tenants.as_deref())?,
                projects: globs("projects", self.projects.as_deref())?,
                kinds,
                names: globs("names", self.names.as_deref())?,
                priority_max: self.priority_max,
                sessions_max: count(self.sessions_max),
                holds_max: count(self.holds_max),
            },
            waiters_max: count(self.waiters_max),
            calls_max: count(self.calls_max),
            streams_max: count(self.streams_max),
            proxies_max: count(self.proxies_max),
            bytes_max: count(self.bytes_max),
            ttl_max: ttl_max.transpose()?,
            requests_per_second: self.requests_per_second,
            rows_per_second: self.rows_per_second,
            rights: rights(self.rights.as_deref())?,
        })
    }
}

fn read_kind(text: &str) -> Result<Kind, String> {
    let rule = || format!("kinds = {text:?}: must be master, leader, lease or semaphore");
    text.parse().map_err(|_| rule())
}

fn rights(words: Option<&[String]>) -> Result<Rights, String> {
    let words = words.unwrap_or_default().iter().map(String::as_str);
    Rights::read(words).map_err(|(word, rule)| format!("rights = {word:?}: {rule}"))
}

fn globs(bound: &str, texts: Option<&[String]>) -> Result<Option<Globs>, String> {
    let globs = texts.map(|texts| Globs::new(texts.iter().cloned()));
    globs.transpose().map_err(|bad| format!("{bound} = {bad}"))
}
