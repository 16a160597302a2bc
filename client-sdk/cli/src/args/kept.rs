//! `tenure acquire` and `tenure release`.

use std::time::Duration;

use clap::Args;
use uuid::Uuid;

use super::{WishArgs, duration, name};

/// Acquires a resource, and keeps it when this command has ended
///
/// For scripts and CI jobs whose steps are processes of their own; where one command can be around the work, `tenure run` is
/// better: it stops the work when the hold is lost. Prints NAME=VALUE lines: TENURE_SESSION, by which `tenure release` gives back and
/// `tenure beat` keeps alive, TENURE_TOKEN, and what `tenure held` reads.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Three steps of a job of GitHub Actions. If the job dies, others wait for half an hour at most:
  tenure acquire --leader deploy --for 30m >>\"$GITHUB_ENV\"
  ./deploy.sh --fence \"$TENURE_TOKEN\" && tenure beat    # half an hour more
  tenure release

  # A shell script that holds it until the script ends, however that is:
  hold=$(tenure acquire --leader import --for-pid $$ --export) || exit
  eval \"$hold\"

Nothing stops the work when the hold is lost: ask `tenure held` before each part of it, and send TENURE_TOKEN with every write.

Exit status:
  0    held
  1    the agent refuses: no process has the number of --for-pid, for example
  64   the command line is wrong
  69   the agent or its upstream cannot be reached, or did not answer during the wait
  74   the hold was lost before this command could tell of it
  75   not acquired within the wait (-E sets another)
  77   the policy forbids it, or --for-pid names a process of another user")]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) wish: WishArgs,
    #[command(flatten)]
    pub(crate) tie: Tie,

    /// How long it may be held in all. Default: no limit
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    pub(crate) max_hold: Option<Duration>,
    /// Name of the holder as others see it. Default: this command's
    #[arg(long = "name", value_name = "NAME", value_parser = name::parse)]
    pub(crate) session_name: Option<String>,
    /// Print the lines for the eval of a shell
    #[arg(long)]
    pub(crate) export: bool,
}

/// How long the hold is kept.
#[derive(Debug, Clone, Copy, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Tie {
    /// Keep it for this long after the acquire or the last `tenure beat`, or until it is given back
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse_positive)]
    pub(crate) keepalive: Option<Duration>,
    /// Keep it until this process of yours has ended, or until it is given back (Linux)
    #[arg(long = "for-pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
}

/// Gives back what `tenure acquire` has acquired
///
/// Exit status 0; 1 when it was not held any more, 64 when the session is that of a `tenure run`, 69 when the agent cannot be reached.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure release                                   by TENURE_SESSION
  tenure release --session \"$SESSION\" --status $?   with the exit status for `tenure history`")]
pub(crate) struct ReleaseArgs {
    /// The session that holds it. Default: TENURE_SESSION
    #[arg(long, value_name = "UUID", value_parser = name::session)]
    pub(crate) session: Option<Uuid>,
    /// The exit status of the work, for the history
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<i32>,
}
