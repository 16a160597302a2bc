//! PURE. Which rights an ACL user needs, which it lacks, and the rules that grant them.
//!
//! Rules are written as in <https://redis.io/docs/latest/operate/oss_and_stack/management/security/acl/>.

use std::collections::BTreeSet;

use tenure::wire::Check;

use super::names;
use crate::upstream::redis::layout::{DEFAULT_TENANT, Layout, SemaphoreKey};

/// Keys, or channels, that one pattern covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    /// Keys of the session plane.
    Sessions,
    /// Keys of leaders.
    Leaders,
    /// Keys of semaphores.
    Semaphores,
    /// Keys that only Tenure uses.
    Own,
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
    Expiries, Leaders, News, Own, Semaphores, Sessions, TenantNews, Tenants, ToProjects, ToSessions,
};

const EVERY: &[Family] = &[Sessions, Leaders, Semaphores, Own, Tenants];
const STRINGS: &[Family] = EVERY;
const HASHES: &[Family] = &[Sessions, Own, Tenants];
const SETS: &[Family] = HASHES;
const QUEUES: &[Family] = &[Semaphores, Tenants];
const CHANNELS: &[Family] = &[ToProjects, ToSessions, News, TenantNews, Expiries];
const SPOKEN: &[Family] = &[ToProjects, ToSessions, News, TenantNews];

/// A command with arguments that the server takes and that would change nothing, `{}` being a key or a
/// channel, and the families it is used on.
type Use = (&'static str, &'static [Family]);

/// What scripts do; the server checks each command of a script as if it were sent alone.
const SCRIPTS: &[Use] = &[
    ("TIME", &[]),
    ("EVALSHA 0000000000000000000000000000000000000000 1 {}", EVERY),
    ("EXISTS {}", EVERY),
    ("DEL {}", EVERY),
    ("PTTL {}", EVERY),
    ("PEXPIRE {} 1", EVERY),
    ("PEXPIREAT {} 1", EVERY),
    ("GET {}", STRINGS),
    ("SET {} x XX", STRINGS),
    ("INCR {}", &[Own, Tenants]),
    ("HSET {} a x", HASHES),
    ("HGET {} a", HASHES),
    ("HMGET {} a", HASHES),
    ("SADD {} a", SETS),
    ("SREM {} a", SETS),
    ("SMEMBERS {}", SETS),
    ("SSCAN {} 0", SETS),
    ("ZADD {} XX 1 a", QUEUES),
    ("ZREM {} a", QUEUES),
    ("ZSCORE {} a", QUEUES),
    ("ZRANK {} a", QUEUES),
    ("ZCARD {}", QUEUES),
    ("ZRANGE {} 0 0", QUEUES),
    ("ZRANGEBYSCORE {} 0 0", QUEUES),
    ("ZREMRANGEBYSCORE {} 0 0", QUEUES),
    ("ZPOPMIN {}", QUEUES),
    ("RPUSH {} 1", QUEUES),
    ("PUBLISH {} x", SPOKEN),
];

/// What connections do by themselves.
const CONNECTIONS: &[Use] = &[
    ("PING", &[]),
    ("SELECT 0", &[]),
    ("SCRIPT|LOAD return", &[]),
    ("CLIENT|SETNAME tenured", &[]),
    ("CLIENT|TRACKING ON BCAST", &[]),
    ("SCAN 0", &[]),
    // A pattern is only allowed if a rule has the very same one.
    ("PSUBSCRIBE {pattern}", &[ToProjects, ToSessions]),
    ("SUBSCRIBE {}", &[News, Expiries]),
];

/// What nothing but an examination needs: rules that are worth to have.
const EXAMINATION: &[&str] = &["info", "multi", "discard", "client|info", "acl|whoami"];

/// Something that the user must be allowed to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    /// What to say to the server to see whether it is allowed.
    pub(super) words: Vec<String>,
    command: String,
    family: Option<Family>,
}

/// Why something is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denial {
    /// The command.
    Command,
    /// The key or channel.
    Pattern,
    /// The server does not have the command.
    Missing,
}

impl Denial {
    /// What a server's error says, or the answer to `ACL DRYRUN`; `None` when it is about something
    /// else: rights are looked at first.
    pub(super) fn read(text: &str) -> Option<Denial> {
        let text = text.to_ascii_lowercase();
        let is_missing = text.contains("unknown command") || text.contains("unknown subcommand");
        if is_missing || text.ends_with("not found") {
            return Some(Denial::Missing);
        }
        if !text.contains("no permissions") {
            return None;
        }
        Some(if text.contains("to run the") { Denial::Command } else { Denial::Pattern })
    }
}

/// Everything that is needed.
pub(super) fn needs(layout: &Layout) -> Vec<Need> {
    let mut needs = Vec::new();
    for (words, families) in SCRIPTS.iter().chain(CONNECTIONS) {
        let command = command(words);
        let mut add = |family: Option<Family>| {
            let fill = |word: &str| match (word, family) {
                ("{}", Some(family)) => sample(layout, family),
                ("{pattern}", Some(family)) => pattern(layout, family),
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
        Tenants => layout.leader(NAME, NAME),
        ToProjects => layout.project_channel(NAME, NAME),
        ToSessions => layout.session_channel(NAME),
        News => layout.lost_channel(),
        TenantNews => layout.routes_channel(NAME),
        Expiries => "__keyevent@0__:expired".to_owned(),
    }
}

/// The pattern that covers a family.
fn pattern(layout: &Layout, family: Family) -> String {
    let prefixes = layout.prefixes();
    match family {
        Sessions => format!("{}:*", glob(&prefixes.session_prefix)),
        Leaders => format!("{}*", glob(&prefixes.leader_prefix)),
        Semaphores => format!("{}:*", glob(&prefixes.semaphore_namespace)),
        Own | News => format!("{}:*", glob(&prefixes.tenure_prefix)),
        Tenants | TenantNews => "tenant:*".to_owned(),
        // As they are subscribed to.
        ToProjects => layout.channel_patterns().swap_remove(0),
        ToSessions => layout.channel_patterns().swap_remove(1),
        Expiries => "__keyevent@*__:expired".to_owned(),
    }
}

fn is_channel(family: Family) -> bool {
    family >= ToProjects
}

fn is_tenants(family: Family) -> bool {
    matches!(family, Tenants | TenantNews)
}

fn pattern_rule(layout: &Layout, family: Family) -> String {
    let sigil = if is_channel(family) { '&' } else { '~' };
    format!("{sigil}{}", pattern(layout, family))
}

/// The text as a glob pattern that matches nothing else.
fn glob(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
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

/// What is missing, and what of it matters only for other tenants.
#[derive(Debug, Default)]
struct Lack {
    commands: BTreeSet<String>,
    patterns: BTreeSet<Family>,
}

/// What the denials mean; each stands where its need does.
pub(super) fn judge(
    layout: &Layout,
    user: &str,
    needs: &[Need],
    denials: &[Option<Denial>],
) -> Vec<Check> {
    let mut missing = BTreeSet::new();
    let mut lack = Lack::default();
    let mut reached = BTreeSet::new();
    for (need, denial) in needs.iter().zip(denials) {
        match (denial, need.family) {
            (None, Some(family)) => drop(reached.insert(family)),
            (None, None) => {}
            (Some(Denial::Missing), _) => drop(missing.insert(need.command.clone())),
            (Some(Denial::Pattern), Some(family)) => drop(lack.patterns.insert(family)),
            // Without a key it can only be the command.
            (Some(Denial::Command | Denial::Pattern), _) => {
                lack.commands.insert(need.command.clone());
            }
        }
    }
    // A command that is denied hides whether its keys are. To grant a pattern again does no harm.
    if !lack.commands.is_empty() {
        let hidden = EVERY.iter().chain(CHANNELS).filter(|family| !reached.contains(family));
        lack.patterns.extend(hidden);
    }
    let (tenants, default): (Vec<Family>, Vec<Family>) =
        lack.patterns.iter().partition(|family| is_tenants(**family));
    vec![
        rights(layout, user, &missing, &lack.commands, &default),
        tenant_rights(layout, user, &tenants),
    ]
}

fn rights(
    layout: &Layout,
    user: &str,
    missing: &BTreeSet<String>,
    commands: &BTreeSet<String>,
    patterns: &[Family],
) -> Check {
    const NAME: &str = names::RIGHTS;
    if !missing.is_empty() {
        let missing = list(missing);
        return Check::failure(
            NAME,
            format!("the server does not know {missing}, which the agent needs"),
            format!("undo the rename-command of {missing} in redis.conf, and restart the server"),
        );
    }
    let mut lacks = Vec::new();
    if !commands.is_empty() {
        lacks.push(format!("run {}", list(commands)));
    }
    for (channels, what) in [(false, "keys"), (true, "channels")] {
        let of = patterns.iter().filter(|family| is_channel(**family) == channels);
        let of: BTreeSet<String> = of.map(|family| pattern(layout, *family)).collect();
        if !of.is_empty() {
            lacks.push(format!("use {what} {}", list(&of)));
        }
    }
    if lacks.is_empty() {
        return Check::ok(NAME, format!("user {user} may do all that is needed"));
    }
    let commands = commands.iter().map(|command| format!("+{command}"));
    let patterns = patterns.iter().map(|family| pattern_rule(layout, *family));
    let rules = commands.chain(patterns).collect::<Vec<_>>().join(" ");
    Check::failure(
        NAME,
        format!("user {user} may not {}", lacks.join(", nor ")),
        grant(user, &rules),
    )
}

fn tenant_rights(layout: &Layout, user: &str, patterns: &[Family]) -> Check {
    const NAME: &str = names::TENANT_RIGHTS;
    if patterns.is_empty() {
        return Check::ok(NAME, format!("user {user} may use the keys of every tenant"));
    }
    let rules: Vec<String> = patterns.iter().map(|family| pattern_rule(layout, *family)).collect();
    Check::warning(
        NAME,
        format!("user {user} may not use keys of other tenants than default: it serves no other"),
        grant(user, &rules.join(" ")),
    )
}

fn list(words: &BTreeSet<String>) -> String {
    words.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use tenure::wire::Verdict;

    use super::*;

    #[test]
    fn every_server_words_a_denial_its_own_way() {
        for (text, expected) in [
            ("OK", None),
            ("ERR wrong number of arguments for 'set' command", None),
            ("READONLY You can't write against a read only replica.", None),
            ("User agent has no permissions to run the 'del' command", Some(Denial::Command)),
            ("This user has no permissions to access the 'to run' key", Some(Denial::Pattern)),
            ("User agent has no permissions to access the 'a' channel", Some(Denial::Pattern)),
            ("NOPERM No permissions to access a key", Some(Denial::Pattern)),
            (
                "NOPERM this user has no permissions to run the 'set' command or its subcommand",
                Some(Denial::Command),
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                Some(Denial::Pattern),
            ),
            (
                "ERR unknown command 'CONFIG', with args beginning with: 'GET'",
                Some(Denial::Missing),
            ),
            ("ERR Command 'ZPOPMIN' not found", Some(Denial::Missing)),
        ] {
            assert_eq!(Denial::read(text), expected, "{text}");
        }
    }

    /// Commands that the scripts call.
    fn called() -> BTreeSet<String> {
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/src/upstream/redis/scripts");
        let mut called = BTreeSet::new();
        for entry in std::fs::read_dir(scripts).unwrap() {
            let path = entry.unwrap().path();
            let source = std::fs::read_to_string(&path).unwrap();
            let calls = source.split("redis.call(").chain(source.split("redis.pcall(")).skip(1);
            for call in calls.filter(|call| !call.starts_with("--")) {
                let Some(name) = call.strip_prefix(['\'', '"']) else { continue };
                let name = name.split(['\'', '"']).next().unwrap();
                called.insert(name.to_ascii_lowercase());
            }
        }
        called
    }

    #[test]
    fn whatever_a_script_calls_is_needed() {
        let needed: BTreeSet<String> = SCRIPTS.iter().map(|(words, _)| command(words)).collect();
        let called = called();
        assert!(called.contains("get") && called.len() > 5, "{called:?}");
        let forgotten: Vec<_> = called.difference(&needed).collect();
        assert!(forgotten.is_empty(), "not in the table of rights: {forgotten:?}");
    }

    #[test]
    fn prefixes_are_taken_by_the_letter() {
        assert_eq!(glob(r"a*b?c[d]\e:"), r"a\*b\?c\[d\]\\e:");
        let layout = Layout::default();
        for family in EVERY.iter().chain(CHANNELS) {
            let pattern = pattern(&layout, *family);
            let start = pattern.split('*').next().unwrap();
            assert!(sample(&layout, *family).starts_with(start), "{pattern}");
        }
    }

    #[test]
    fn what_is_only_for_other_tenants_is_no_failure() {
        let layout = Layout::default();
        let needs = needs(&layout);
        let of = |need: &Need| need.family.is_some_and(is_tenants).then_some(Denial::Pattern);
        let denials: Vec<_> = needs.iter().map(of).collect();
        let checks = judge(&layout, "agent", &needs, &denials);
        assert_eq!((&*checks[0].name, checks[0].verdict), (names::RIGHTS, Verdict::Ok));
        assert_eq!((&*checks[1].name, checks[1].verdict), (names::TENANT_RIGHTS, Verdict::Warning));
        let remedy = checks[1].remedy.as_deref().unwrap();
        assert!(remedy.starts_with("ACL SETUSER agent ~tenant:* &tenant:*, "), "{remedy}");
    }
}
