//! What the agent is asked for.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use tenure::wire::rules::{NAME_MAX, is_hidden, normal, visible};
use tenure::wire::{self, Acquire, Attributes, Kind, Register, Wait};
use uuid::Uuid;

use super::decide::max_hold_to_ask;
use super::reaction;
use crate::args::duration::millis;
use crate::args::{RunArgs, WishArgs};

/// The session that is to hold.
pub(super) fn register(args: &RunArgs) -> Register {
    let name = args.session_name.clone().unwrap_or_else(|| command_name(&args.command));
    Register {
        name: Some(name),
        surface: Some("cli".to_owned()),
        tenant: args.wish.tenant.clone(),
        project: args.wish.project.clone(),
        tether: Some(wire::Tether::Connection),
        guarded: Some(true),
        progress_ms: args.progress.map(millis),
        ..Register::default()
    }
}

/// Its hold.
pub(super) fn acquire(args: &RunArgs, kind: Kind, name: Option<String>) -> Acquire {
    let max_hold_ms = args.max_hold.map(|max_hold| {
        let reaction = reaction(&args.on_lost);
        millis(max_hold_to_ask(max_hold, reaction, args.kill_after, args.wish.ttl))
    });
    Acquire { max_hold_ms, ..wished(&args.wish, kind, name) }
}

/// The hold that is wished for.
pub(super) fn wished(args: &WishArgs, kind: Kind, name: Option<String>) -> Acquire {
    let attributes = args
        .address
        .as_ref()
        .map(|address| Attributes { address: Some(address.clone()), ..Attributes::default() });
    Acquire {
        // Set when there is one.
        session: Uuid::nil(),
        kind,
        name,
        wait: if args.no_wait { Wait::None } else { Wait::Block },
        behind_own: false,
        fleet: args.fleet,
        timeout_ms: args.wait.map(millis),
        request: Some(Uuid::new_v4().to_string()),
        ttl_ms: args.ttl.map(millis),
        hold_at_least_ms: args.at_least.map(millis),
        max_hold_ms: None,
        limit: args.limit,
        priority: args.priority,
        grace_ms: args.grace.map(millis),
        attributes,
    }
}

/// The command's base name, as far as a name may go.
fn command_name(command: &[OsString]) -> String {
    let base = command.first().and_then(|program| Path::new(program).file_name());
    let base = base.unwrap_or(OsStr::new("")).to_string_lossy();
    let seen: String = base.chars().filter(|it| !is_hidden(*it) && *it != ' ').collect();
    let mut name = String::new();
    for letter in normal(&seen).chars() {
        if name.len() + letter.len_utf8() > NAME_MAX {
            break;
        }
        name.push(letter);
    }
    // None is left, or one that joins nothing.
    if visible("name", &name).is_err() { "tenure-run".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_named_after_the_command() {
        let check = |program: &str, name: &str| {
            assert_eq!(command_name(&[OsString::from(program)]), name);
        };
        check("/usr/bin/backup", "backup");
        check("backup.sh", "backup.sh");
        check("a b\u{7}", "ab");
        check("/", "tenure-run");
        // As macOS names files.
        check("cafe\u{301}", "café");
        check(&"ü".repeat(300), &"ü".repeat(100));
    }
}
