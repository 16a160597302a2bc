//! `tenure run`.

use std::ffi::OsString;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use super::{WishArgs, duration, name};
use clap::builder::UnknownArgumentValueParser;
use clap::{Arg, Args, ValueEnum};
use nix::unistd::{AccessFlags, access};
/// Shown under `tenure run --help`.
const MORE: &str = "\
Examples:
  # Only one host at a time runs the clean-up; the others wait for their turn:
  tenure run --leader cleanup -- /usr/local/bin/cleanup --all

  # From cron on every host: run it on one, and do nothing on the others. The role is kept for at
  # least ten minutes, also when the job is done or its host dies: for longer than the hosts start apart.
  tenure run --leader nightly --at-least 10m --no-wait -- backup.sh || [ $? -eq 75 ]

  # The same with the letters of flock(1): nothing is said, and it is no failure, when another
  # host has it:
  tenure run --leader nightly -nqE 0 -- backup.sh

  # At most 4 encoders in the fleet; give up after ten minutes in the queue:
  tenure run --semaphore encode --limit 4 --wait 10m -- ffmpeg -i in.mov out.mp4

  # A lease that appears in `tenure routes` with an address:
  tenure run --lease web-7 --address 10.0.0.7:8982 -- ./server

The command gets:
  TENURE_HOLD    the hold's id; TENURE_HOLDS those of the commands around it, too
  TENURE_TOKEN   the fencing token: send it with every write, so that a store can refuse
                 a holder that has been overtaken
  TENURE_PAGE    the page on which the hold's valid-until can be read without a call, and
  TENURE_SLOT    the hold's slot on it; `tenure held` does that for a script
  TENURE_SESSION the session that holds; `tenure beat` says to it that the command gets on
  TENURE_SOCKET  the agent's socket

Life and death:
  The command never outlives its hold. When the hold is lost it and all that it has started get
  SIGTERM, and SIGKILL after --kill-after or when the hold stops being valid, whichever is first,
  also what has left its process group (Linux). When the agent is silent and less than
  --kill-after is left: SIGTERM; SIGKILL before the hold stops being valid. When --max-hold is
  over: SIGTERM, and SIGKILL --kill-after later. Its own processes count: the hold is not passed
  on before they ended.
  With --tether tree (default) every process that the command leaves behind keeps the hold,
  as with flock(1), also when this wrapper is killed; a process that closes all inherited
  descriptors does not, and after a restart of the agent the hold hangs on this wrapper alone.
  A wrapper that was killed or stopped (SIGSTOP) enforces nothing: if then the hold is lost, or
  the agent stops as well, the command goes on without it. With --tether child a killed wrapper
  takes the command with it.
  Signals that this wrapper gets are passed on to the command's process group; while it still
  waits they end the wait. On a terminal the command is in the wrapper's process group: keys,
  fg, bg and questions at /dev/tty work as without a wrapper. Without a terminal it has a group
  of its own. docs/wrapper.md has a row for each signal.

Exit status:
  the command's own. When signal n ended the command the wrapper dies by it, too: 128+n to a
  shell, and Ctrl-C ends the loop around it
  1    the agent refuses: too many holds or sessions, for example
  64   the command line is wrong
  69   the agent or its upstream cannot be reached, or did not answer during the wait; an agent
       that hangs costs 5 s at most, and no more than --wait
  74   the command was stopped because its hold was lost, or --max-hold was over; or the hold was
       lost before the command started
  75   the resource was not acquired: somebody else has it, or had it for all of --wait; or the
       --conflict-exit-code
  77   the agent's policy, or its upstream, forbids it
  126  the command cannot be executed
  127  the command was not found";

/// Runs a command while holding a resource.
///
/// Acquires the resource, runs the command without a shell, and gives the resource back when the
/// command has ended.
#[derive(Debug, Args)]
#[command(after_long_help = MORE, after_help = "More, with examples and exit status: --help")]
#[command(arg(shell_string()))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) wish: WishArgs,

    /// How long the command may hold it in all. Default: no limit
    ///
    /// When this is over the command is stopped as --on-lost says, and the hold is given back when it
    /// has ended: after --kill-after at the latest. With --on-lost ignore the hold ends then.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    pub(crate) max_hold: Option<Duration>,
    /// How long the command may go without `tenure beat`. Default: it need not call it
    ///
    /// The command promises to call `tenure beat` at least this often. When it does not, it hangs: the
    /// hold is lost as `stalled`, and the command is stopped as --on-lost says.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    pub(crate) progress: Option<Duration>,
    /// Reaction to the loss of the hold
    ///
    /// term: SIGTERM, SIGKILL after --kill-after or when the hold stops being valid.
    /// kill: SIGKILL at once. ignore: nothing; its writes must be fenced with TENURE_TOKEN.
    /// Anything else is run as a program (split at spaces, no shell) with TENURE_LOST_REASON in
    /// its environment; SIGTERM follows when it ended or half of the time is over.
    #[arg(long, value_name = "term|kill|ignore|CMD", default_value = "term")]
    pub(crate) on_lost: OnLost,
    /// How long after SIGTERM comes SIGKILL
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub(crate) kill_after: Duration,
    /// Tie of the hold to life
    #[arg(long, value_enum, default_value_t = Tether::Tree)]
    pub(crate) tether: Tether,

    /// Name of the holder as others see it. Default: the command's
    #[arg(long = "name", value_name = "NAME", value_parser = name::parse)]
    pub(crate) session_name: Option<String>,

    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// The `-c` of flock(1), which takes a line for a shell. There is none here.
fn shell_string() -> Arg {
    let way_out = "write a shell's command line after two dashes: -- sh -c 'COMMAND'";
    let known = UnknownArgumentValueParser::suggest(way_out);
    Arg::new("shell_string").short('c').value_name("COMMAND").value_parser(known).hide(true)
}

/// The tie of a hold to life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tether {
    /// The command and every process that it leaves behind
    Tree,
    /// The command alone; it is killed when this wrapper is
    Child,
}

/// The reaction to the loss of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OnLost {
    Term,
    Kill,
    Ignore,
    Command(Vec<String>),
}

impl FromStr for OnLost {
    type Err = String;

    /// A program is looked for here: that there is none would be seen at the loss only.
    fn from_str(text: &str) -> Result<OnLost, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Ok(match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["term"] => OnLost::Term,
            ["kill"] => OnLost::Kill,
            ["ignore"] => OnLost::Ignore,
            [program, ..] if is_program(program) => OnLost::Command(words),
            _ => {
                return Err(
                    "write term, kill, ignore, or a program that can be executed".to_owned()
                );
            }
        })
    }
}

/// True if a program of this name, looked for as `execvp` does, can be executed.
fn is_program(name: &str) -> bool {
    let can_be_executed = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if name.contains('/') {
        return can_be_executed(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| can_be_executed(&directory.join(name)))
}
