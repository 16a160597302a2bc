//! PURE. Which rights an ACL user needs, and the rules that grant them.
//!
//! Rules are written as in <https://redis.io/docs/latest/operate/oss_and_stack/management/security/acl/>.

use std::collections::BTreeSet;

use tenure_wire::DEFAULT_TENANT;

use crate::redis::layout::{Layout, SemaphoreKey};

/// Keys, or channels, that one pattern covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// Keys of the session plane.
    Sessions,
    /// Keys of leaders.
    Leaders,
    /// Keys of semaphores.
    Semaphores,
    /// Keys that only Tenure uses.
    Own,
    /// Keys of the history of each resource.
    History,
    /// The key that lists all histories.
    Histories,
    /// The key that lists sets to sweep.
    Sets,
    /// The keys of the epoch.
    Epoch,
    /// Keys of tenants other than the default one.
    Tenants,
    /// Channels of the session plane, to projects.
    ToProjects,
    /// Channels of the session plane, to sessions.
    ToSessions,
    /// Channels that only Tenure uses.
    News,
    /// Channels of tenants other than the default one.
    TenantNews,
    /// Channels on which the server tells of expired keys, if it is set to.
    Expiries,
}

use Family::{
    Epoch, Expiries, Histories, History, Leaders, News, Own, Semaphores, Sessions, Sets,
    TenantNews, Tenants, ToProjects, ToSessions,
};

pub(super) const EVERY: &[Family] = &[Sessions, Leaders, Semaphores, Own, Tenants];
/// Families that the pattern of [`Own`] covers, too: they came later, and a user may have narrower patterns.
pub(super) const RECORDS: &[Family] = &[History, Histories, Sets, Epoch];
/// The sorted sets among [`RECORDS`].
const LATER_SETS: &[Family] = &[History, Histories, Sets];
/// Families of hashes and sets.
const HASHES: &[Family] = &[Sessions, Own, Tenants];
/// Families of sorted sets and lists that other programs share.
const QUEUES: &[Family] = &[Semaphores, Tenants];
/// Families of sorted sets.
const SETS: &[Family] = &[Semaphores, Own, Tenants];
/// Families of sorted sets that only Tenure uses.
const LINES: &[Family] = &[Own, Tenants];
pub(super) const CHANNELS: &[Family] = &[ToProjects, ToSessions, News, TenantNews, Expiries];
const SPOKEN: &[Family] = &[ToProjects, ToSessions, News, TenantNews];

/// A command with arguments that the server takes and that would change nothing, `{}` being a key or a
/// channel, and the families it is used on.
type Use = (&'static str, &'static [Family]);

/// Commands of scripts; the server checks each command of a script as if it were sent alone.
const SCRIPTS: &[Use] = &[
    ("TIME", &[]),
    ("EVALSHA 0000000000000000000000000000000000000000 1 {}", EVERY),
    ("DEL {}", EVERY),
    ("EXISTS {}", EVERY),
    ("PTTL {}", EVERY),
    ("PEXPIREAT {} 1", EVERY),
    ("EXPIRE {} 1", QUEUES),
    ("GET {}", EVERY),
    ("MGET {}", &[Leaders, Semaphores, Tenants]),
    ("SET {} x XX", EVERY),
    ("INCR {}", &[Own, Tenants]),
    ("HGET {} a", HASHES),
    ("HMGET {} a", HASHES),
    ("HMGET {} a", &[Epoch]),
    ("GET {}", &[Epoch]),
    ("INCR {}", &[Epoch]),
    ("DEL {}", &[Epoch]),
    ("HSET {} a x", HASHES),
    ("HSET {} a x", &[Epoch]),
    ("HSETNX {} a x", &[Sessions]),
    ("HDEL {} a", &[Sessions, Own, Tenants]),
    ("SADD {} a", HASHES),
    ("SREM {} a", HASHES),
    ("SMEMBERS {}", &[Sessions, Own]),
    ("SRANDMEMBER {}", &[Sessions, Own, Tenants]),
    ("SCARD {}", &[Sessions, Own]),
    ("SCAN 0", &[]),
    ("SSCAN {} 0", &[Sessions, Own, Tenants]),
    ("ZADD {} XX 1 a", SETS),
    ("ZADD {} XX 1 a", LATER_SETS),
    ("ZREM {} a", SETS),
    ("ZPOPMIN {}", QUEUES),
    ("ZCARD {}", SETS),
    ("ZCOUNT {} 0 0", LINES),
    ("ZRANK {} a", SETS),
    ("ZSCORE {} a", SETS),
    ("ZRANGE {} 0 0", SETS),
    ("ZREVRANGE {} 0 0", SETS),
    ("ZRANGEBYSCORE {} 0 0", SETS),
    ("ZRANGEBYLEX {} - +", LINES),
    ("ZREVRANGEBYLEX {} + -", LINES),
    ("RPUSH {} 1", QUEUES),
    ("PUBLISH {} x", SPOKEN),
];

/// Commands that connections send by themselves.
const CONNECTIONS: &[Use] = &[
    ("PING", &[]),
    ("SELECT 0", &[]),
    ("SCRIPT|LOAD return", &[]),
    ("CLIENT|SETNAME tenured", &[]),
    ("CLIENT|TRACKING ON BCAST", &[]),
    ("SUBSCRIBE {}", &[ToProjects, ToSessions, News, Expiries]),
    ("UNSUBSCRIBE {}", &[ToProjects]),
];

/// Commands that only an examination needs, or an error that names a key of another program: rules that are worth to have.
const EXAMINATION: &[&str] = &["info", "multi", "discard", "client|info", "acl|whoami", "type"];

/// Something that the user must be allowed to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    /// The command that shows whether it is allowed.
    pub(super) words: Vec<String>,
    /// As rules write it.
    pub(super) command: String,
    /// The family of the key.
    pub(super) family: Option<Family>,
}

/// Everything that is needed.
pub(super) fn needs(layout: &Layout) -> Vec<Need> {
    let mut needs = Vec::new();
    for (words, families) in SCRIPTS.iter().chain(CONNECTIONS) {
        let command = command(words);
        let mut add = |family: Option<Family>| {
            let fill = |word: &str| match (word, family) {
                ("{}", Some(family)) => sample(layout, family),
                _ => word.to_owned(),
            };
            let words = words.split([' ', '|']).map(fill).collect();
            needs.push(Need { words, command: command.clone(), family });
        };
        match families {
            [] => add(None),
            families => families.iter().for_each(|family| add(Some(*family))),
        }
    }
    needs
}

/// As rules write it.
fn command(words: &str) -> String {
    words.split(' ').next().unwrap_or_default().to_ascii_lowercase()
}

/// A name of that family that nobody uses.
fn sample(layout: &Layout, family: Family) -> String {
    const NAME: &str = "tenure-doctor";
    match family {
        Sessions => layout.session(NAME),
        Leaders => layout.leader(DEFAULT_TENANT, NAME),
        Semaphores => layout.semaphore(DEFAULT_TENANT, SemaphoreKey::Waiting, NAME),
        Own => layout.claim(DEFAULT_TENANT, NAME),
        History => format!("{}{NAME}", layout.histories(DEFAULT_TENANT)),
        Histories => layout.tenure(DEFAULT_TENANT, "histories"),
        Sets => layout.sets(),
        Epoch => layout.epoch(),
        Tenants => layout.leader(NAME, NAME),
        ToProjects => layout.project_channel(NAME, NAME),
        ToSessions => layout.session_channel(NAME),
        News => layout.agent_channel(NAME),
        TenantNews => layout.routes_channel(NAME),
        Expiries => "__keyevent@0__:expired".to_owned(),
    }
}

/// The pattern that covers a family. No prefix has a character that patterns give a meaning.
pub(super) fn pattern(layout: &Layout, family: Family) -> String {
    let prefixes = layout.prefixes();
    match family {
        Sessions => format!("{}:*", &prefixes.session_prefix),
        Leaders => format!("{}*", &prefixes.leader_prefix),
        Semaphores => format!("{}:*", &prefixes.semaphore_namespace),
        Own | News => format!("{}:*", &prefixes.tenure_prefix),
        History => format!("{}*", layout.histories(DEFAULT_TENANT)),
        Histories => layout.tenure(DEFAULT_TENANT, "histories"),
        Sets => layout.sets(),
        Epoch => format!("{}*", layout.epoch()),
        Tenants | TenantNews => "tenant:*".to_owned(),
        ToProjects => format!("{}*", layout.project_channels()),
        ToSessions => layout.session_channel("*"),
        Expiries => "__keyevent@*__:expired".to_owned(),
    }
}

impl Family {
    pub(super) fn is_channel(self) -> bool {
        self >= ToProjects
    }

    /// True if only tenants other than the default one need it.
    pub(super) fn is_tenants(self) -> bool {
        matches!(self, Tenants | TenantNews)
    }
}

pub(super) fn pattern_rule(layout: &Layout, family: Family) -> String {
    let sigil = if family.is_channel() { '&' } else { '~' };
    format!("{sigil}{}", pattern(layout, family))
}

/// The rules for a user that may do what an agent needs, and nothing else: to be written after
/// `ACL SETUSER name on >password`.
pub fn rules(layout: &Layout) -> String {
    let mut rules = vec!["resetkeys".to_owned()];
    rules.extend(EVERY.iter().map(|family| pattern_rule(layout, *family)));
    rules.push("resetchannels".to_owned());
    rules.extend(CHANNELS.iter().map(|family| pattern_rule(layout, *family)));
    rules.push("-@all".to_owned());
    let used = SCRIPTS.iter().chain(CONNECTIONS).map(|(words, _)| command(words));
    let commands: BTreeSet<String> =
        used.chain(EXAMINATION.iter().map(ToString::to_string)).collect();
    rules.extend(commands.iter().map(|command| format!("+{command}")));
    rules.join(" ")
}

/// The rules that let a user do one thing more, as a remedy.
pub(super) fn grant(user: &str, rules: &str) -> String {
    format!("ACL SETUSER {user} {rules}, and ACL SAVE or the same in the server's ACL file")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that the scripts call.
    fn called() -> BTreeSet<String> {
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/scripts");
        let mut called = BTreeSet::new();
        for entry in std::fs::read_dir(scripts).unwrap() {
            let path = entry.unwrap().path();
            let source = std::fs::read_to_string(&path).unwrap();
            // `redis.call`, `redis.pcall` and the scripts' own short names of them.
            for call in source.split("call(").chain(source.split("pcall_of(")).skip(1) {
                let Some(name) = call.strip_prefix(['\'', '"']) else { continue };
                let name = name.split(['\'', '"']).next().unwrap();
                called.insert(name.to_ascii_lowercase());
            }
        }
        called
    }

    #[test]
    fn the_table_has_what_scripts_call_and_no_more() {
        let mut needed: BTreeSet<String> =
            SCRIPTS.iter().map(|(words, _)| command(words)).collect();
        assert!(needed.remove("evalsha"), "they are called by it");
        assert_eq!(called(), needed, "scripts call the left ones, SCRIPTS has the right ones");
    }

    #[test]
    fn patterns_cover_what_they_are_for() {
        let layout = Layout::default();
        for family in EVERY.iter().chain(RECORDS).chain(CHANNELS) {
            let pattern = pattern(&layout, *family);
            let start = pattern.split('*').next().unwrap();
            assert!(sample(&layout, *family).starts_with(start), "{pattern}");
        }
    }

    #[test]
    fn the_documentation_recommends_this_user() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, after) = page.split_once("'>its password' ").unwrap();
        let (block, _) = after.split_once("redis-cli").unwrap();
        let words = block.split_whitespace().filter(|word| *word != "\\");
        let written: Vec<&str> = words.map(|word| word.trim_matches('\'')).collect();
        let rules = rules(&Layout::default());
        let first = |rules: &[&str]| rules.iter().position(|rule| *rule == "-@all").unwrap();
        let rules: Vec<&str> = rules.split(' ').collect();
        assert_eq!(written[..=first(&written)], rules[..=first(&rules)]);
        let commands = |rules: &[&str]| rules.iter().map(ToString::to_string).collect();
        let (written, rules): (BTreeSet<String>, BTreeSet<String>) =
            (commands(&written), commands(&rules));
        assert_eq!(written, rules, "docs/redis.md has the left ones, the table has the right ones");
    }
}
