//! PURE. Which rights an ACL user lacks, and what grants them.

use std::collections::BTreeSet;

use tenure_wire::Check;

use super::names;
use super::rights::{CHANNELS, EVERY, Family, Need, RECORDS, grant, pattern, pattern_rule};
use crate::redis::layout::Layout;

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
    /// Reads a server's error, or the answer to `ACL DRYRUN`; `None` when it is about something
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

/// The missing rights, and those that matter only for other tenants.
#[derive(Debug, Default)]
struct Lack {
    commands: BTreeSet<String>,
    patterns: BTreeSet<Family>,
}

/// The meaning of the denials; each stands where its need does.
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
    if lack.patterns.contains(&Family::Own) {
        lack.patterns.retain(|family| !RECORDS.contains(family));
    }
    let (tenants, default): (Vec<Family>, Vec<Family>) =
        lack.patterns.iter().partition(|family| family.is_tenants());
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
        let of = patterns.iter().filter(|family| family.is_channel() == channels);
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
    use tenure_wire::Verdict;

    use super::super::rights::needs;
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

    #[test]
    fn what_is_only_for_other_tenants_is_no_failure() {
        let layout = Layout::default();
        let needs = needs(&layout);
        let of =
            |need: &Need| need.family.is_some_and(Family::is_tenants).then_some(Denial::Pattern);
        let denials: Vec<_> = needs.iter().map(of).collect();
        let checks = judge(&layout, "agent", &needs, &denials);
        assert_eq!((&*checks[0].name, checks[0].verdict), (names::RIGHTS, Verdict::Ok));
        assert_eq!((&*checks[1].name, checks[1].verdict), (names::TENANT_RIGHTS, Verdict::Warning));
        let remedy = checks[1].remedy.as_deref().unwrap();
        assert!(remedy.starts_with("ACL SETUSER agent ~tenant:* &tenant:*, "), "{remedy}");
    }
}
