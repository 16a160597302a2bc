//! `tenure lock`: `tenure run` for those who look for a lock.

use clap::builder::Resettable;
use clap::{Arg, ArgGroup};

pub(super) const LESS: &str = "More, with examples: --help, and `tenure run --help`";

pub(super) const USAGE: &str = "tenure lock [OPTIONS] <NAME> -- <CMD>...";

pub(super) const MORE: &str = "\
Examples:
  # One at a time on all hosts; the others wait for their turn:
  tenure lock nightly -- backup.sh

  # With the letters of flock(1): one attempt, 5 seconds, another exit status, nothing said:
  tenure lock nightly -n -- backup.sh
  tenure lock nightly -w 5 -E 7 -q -- backup.sh

  # From cron on many hosts, once on one of them, and on none whose agent has a store of its own:
  tenure lock nightly --fleet -n -q -E 0 --at-least 10m -- backup.sh

It is `tenure run --leader NAME`: see there for the environment of the command, for what happens
when the lock is lost, and for the exit status. `tenure standing leader NAME` shows who has it.";

/// An argument of `tenure run` as one of `tenure lock`, which has one kind of resource.
pub(super) fn arg(arg: Arg) -> Arg {
    const OTHER_KINDS: [&str; 8] =
        ["semaphore", "lease", "master", "limit", "priority", "grace", "address", "project"];
    match arg.get_id().as_str() {
        "leader" => arg.long(Resettable::Reset).help("The lock's name").required(true),
        id if OTHER_KINDS.contains(&id) => arg.hide(true),
        _ => arg,
    }
}

/// The name alone must be there.
pub(super) fn group(resource: ArgGroup) -> ArgGroup {
    resource.required(false)
}
