//! The command line.

mod can;
pub(crate) mod duration;
mod held;
mod kept;
mod limit;
mod lock;
pub(crate) mod name;
mod resource;
mod revoke;
mod run;
mod wish;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use tenure::wire::Kind;
use uuid::Uuid;

pub(crate) use can::CanArgs;
pub(crate) use held::HeldArgs;
pub(crate) use kept::{AcquireArgs, ReleaseArgs};
pub(crate) use limit::LimitArgs;
pub(crate) use resource::{ResourceName, ResourceWords, kind_of};
pub(crate) use revoke::RevokeArgs;
pub(crate) use run::{OnLost, RunArgs, Tether};
pub(crate) use wish::WishArgs;

const MORE: &str = "\
Examples:
  tenure lock cleanup -- ./cleanup.sh             one at a time in the whole fleet
  tenure run --semaphore gpu --limit 4 -- ./job   four at a time
  tenure status                                   the agent, its upstream, your holds
  tenure standing leader cleanup                  who holds it, and who waits
  tenure doctor                                   what is wrong, and the way out

The agent's socket is --socket, else TENURE_SOCKET, else the first that there is of
$XDG_RUNTIME_DIR/tenured/api.sock, /run/user/UID/tenured/api.sock, /tmp/tenured-UID/api.sock and the
system's. An error is one line on stderr. NO_COLOR=1 switches colours off.";

/// Leadership, leases and permits that hold across a fleet, from the command line.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version,
    after_help = MORE,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// The agent's socket: a path or a unix: URI
    #[arg(
        long,
        global = true,
        env = "TENURE_SOCKET",
        value_name = "PATH",
        hide_env_values = true,
        display_order = 900
    )]
    pub(crate) socket: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Checks combinations of arguments before the agent is asked: the name of a master is a project's.
    ///
    /// # Errors
    ///
    /// With the rule that is broken.
    pub(crate) fn check(&self) -> Result<(), String> {
        let resource = match &self.command {
            Command::Standing(StandingArgs { resource, .. })
            | Command::Can(CanArgs { resource, .. })
            | Command::Why(resource)
            | Command::History(resource)
            | Command::Observe(resource)
            | Command::Revoke(RevokeArgs { resource, .. }) => resource,
            _ => return Ok(()),
        };
        resource.kind_and_name().map(|_| ())
    }
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    /// Runs a command while holding a lock: `tenure run --leader NAME`
    #[command(mut_args(lock::arg), mut_group("ResourceArgs", lock::group), override_usage = lock::USAGE,
        after_long_help = lock::MORE, after_help = lock::LESS)]
    Lock(Box<RunArgs>),
    Acquire(Box<AcquireArgs>),
    Release(ReleaseArgs),
    Held(HeldArgs),
    /// Says that the work goes on
    ///
    /// For commands that `tenure run --progress` has started, and for holds of `tenure acquire --for`, which are kept
    /// for that long again. Exit status 74 when the hold is lost.
    #[command(after_help = "\
Examples:
  tenure run --leader import --progress 1m -- sh -c '
    for file in *.csv; do load \"$file\"; tenure beat || exit; done'")]
    Beat,
    /// Prints the path of the agent's socket
    ///
    /// Exit status 69 when there is none, and where it was looked for.
    #[command(after_help = "\
Examples:
  curl --unix-socket \"$(tenure socket)\" http://localhost/v1/status")]
    Socket,
    /// Shows the agent, its upstream, and your sessions and holds
    ///
    /// Root and the agent's own user see everybody's. Exit status 1 while the upstream is down, and 69
    /// when the agent cannot be reached.
    #[command(after_help = "\
Examples:
  tenure status
  tenure status 'leader/*'
  tenure status --watch
  tenure status --json | jq .upstream.state
  tenure status --quiet || echo down")]
    Status(StatusArgs),
    /// Shows who holds a resource and who waits for it, across the fleet
    ///
    /// With --quiet the exit status tells: 0 when somebody holds it, 1 when it is free.
    #[command(after_help = "\
Examples:
  tenure standing leader cleanup
  tenure standing master my-project
  tenure standing leader cleanup --quiet || echo free
  tenure standing semaphore encode --json | jq '.holders | length'")]
    Standing(StandingArgs),
    /// Lists what is held or waited for, across the fleet
    ///
    /// Root and the agent's own user see all tenants, others the default one unless --tenant is given. With
    /// --held-longer-than or --waits-longer-than exit status 1 says that something is listed, for alerts.
    #[command(after_help = "\
Examples:
  tenure ls                                  everything
  tenure ls nightly --held-longer-than 2h || mail -s 'nightly hangs' ops
  tenure ls 'leader/nightly-*'               leaders whose name begins so
  tenure ls --json | jq -r '.[] | select(.waiting > 0) | .name'")]
    Ls(ListArgs),
    /// Lists the agents of the fleet: hosts, versions, when each was seen last
    ///
    /// Each agent that has the same store makes itself known there every 30 s. One that missed two times is
    /// "not seen": down, or cut off from the store; after 10 minutes it is forgotten. One that is stopped takes
    /// its leave. Behind a gateway those of your key's tenants are listed.
    #[command(after_help = "\
Examples:
  tenure agents
  tenure agents --json | jq -r '.agents[] | select(.seen | not) | .host'")]
    Agents(AgentsArgs),
    /// Says who holds a resource, what it does, how it came to that, and what to type next
    ///
    /// At most 14 lines: the holder with host, user, process and command, on this host with the state
    /// of the process; who waits, and for how long; the last changes with their reasons; two commands.
    #[command(after_help = "\
Examples:
  tenure why nightly
  tenure why leader/nightly
  tenure why semaphore encode --json | jq '.standing.holders[].command'")]
    Why(ResourceWords),
    /// Shows who held a resource, and why it moved on, across the fleet
    ///
    /// The last 50 changes of the last 7 days, newest first, in local time: who was granted it, from which
    /// process, when and why it ended, and the exit status of what held it.
    #[command(after_help = "\
Examples:
  tenure history leader nightly
  tenure history semaphore encode --json | jq -r '.changes[] | select(.what == \"lost\") | .host'")]
    History(ResourceWords),
    /// Prints the events of your sessions as they happen
    ///
    /// Without --session those of every session that you have now; ends when their streams end.
    #[command(after_help = "\
Examples:
  tenure events
  tenure events --session 0192f6c8-4c1e-7d0a-9b1f-0a8f4f1f7c11 --json

A stream opened here counts like any other: a session with a connection tether does not end while
one of its streams is open. At most 4 streams a session.")]
    Events(EventsArgs),
    /// Prints who holds a resource, and again at every change
    #[command(after_help = "\
Examples:
  tenure observe leader cleanup
  tenure observe semaphore encode --json | jq -c '[.holders[].host]'")]
    Observe(ResourceWords),
    /// Shows the routing table: which lease is held where
    #[command(after_help = "\
Examples:
  tenure routes
  tenure routes web-7 --json | jq -r '.routes[0].address'")]
    Routes(RoutesArgs),
    /// Takes a resource away from its holder
    ///
    /// For root and the agent's own user. The holder is told `lost: revoked`, by whom and why, and
    /// `tenure run` ends its command at once. Revoked on its own host, the next one waits for that end;
    /// revoked from another, it may start meanwhile: only the token tells the two apart. Both hosts log it.
    #[command(after_help = "\
Examples:
  sudo tenure revoke leader cleanup --reason 'upgrade of the database' --for 10m
  sudo tenure revoke semaphore encode --token 1763450000000000")]
    Revoke(RevokeArgs),
    /// Shows how many permits a semaphore has, or changes it for everybody
    ///
    /// Whoever may have a permit may change the limit. Nobody loses a permit: a lower limit holds as
    /// permits come back. A limit lasts as long as somebody holds or waits.
    #[command(after_help = "\
Examples:
  tenure limit encode
  tenure limit encode 8")]
    Limit(LimitArgs),
    /// Checks the socket, your rights, the agent, its upstream, the page and the clock
    ///
    /// Has the agent examine its upstream, which only root and the agent's own user may ask for. Every
    /// check is ok, warning, failure or unknown, and says what to do. Exit status 0 when nothing
    /// failed, 1 when something did, 69 when the agent cannot be reached.
    #[command(after_help = "\
Examples:
  tenure doctor
  tenure --socket /run/tenured/api.sock doctor
  tenure doctor --json | jq -r '.checks[] | select(.verdict != \"ok\") | .name, .remedy'")]
    Doctor(DoctorArgs),
    /// Says whether the policy of the agent lets a user hold a resource, without asking for it
    ///
    /// For tests of a policy: exit status 0 when it does, 77 when it does not, with the words that the user would
    /// get. Root and the agent's own user may ask about others.
    #[command(after_help = "\
Examples:
  tenure can leader nightly
  sudo tenure can --uid 1001 leader nightly
  sudo tenure can --uid ci --gid docker --priority 50 master my-project")]
    Can(CanArgs),
    /// Shows what the agent logs, or changes it for the time being
    ///
    /// For root and the agent's own user. FILTER is a level: error, warn, info, debug, trace or off; or
    /// levels for parts of the agent: info,tenured::api=debug. It lasts until it is set again or reset,
    /// until the agent restarts, or until a reload finds another `log` in the configuration, which it
    /// does not change.
    #[command(after_help = "\
Examples:
  sudo tenure log                              what is logged, and what is configured
  sudo tenure log debug                        everything that happens
  sudo tenure log info,tenure_stores=trace     one part of the agent in detail
  sudo tenure log --reset                      what is configured again")]
    Log(LogArgs),
    /// Prints a completion script for a shell
    #[command(after_help = "\
Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure
  tenure completions zsh > \"${fpath[1]}/_tenure\"
  tenure completions fish > ~/.config/fish/completions/tenure.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints the manual page, or writes the pages of all subcommands into a directory
    #[command(after_help = "\
Examples:
  tenure man | man -l -
  tenure man /usr/local/share/man/man1")]
    Man {
        /// Directory for tenure.1, tenure-run.1 and so on
        dir: Option<PathBuf>,
    },
}

/// `tenure status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Only holds of resources with this name: `leader/nightly`, `nightly`, or with * and ?
    #[arg(value_name = "NAME")]
    pub(crate) filter: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Show it again every second, until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
    /// Show sessions, ids and tokens as well
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Say nothing, and cost little: the exit status tells whether the agent serves, whatever its
    /// upstream does. For health checks
    #[arg(long, short, conflicts_with_all = ["json", "watch", "verbose", "filter"])]
    pub(crate) quiet: bool,
}

/// How to print.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tenure standing`.
#[derive(Debug, Args)]
pub(crate) struct StandingArgs {
    #[command(flatten)]
    pub(crate) resource: ResourceWords,
    /// Print nothing: exit status 0 when somebody holds it, 1 when it is free
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

/// `tenure ls`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only names that this matches: 'nightly-*', or with the kind 'leader/nightly-*'
    #[arg(value_parser = name::parse)]
    pub(crate) glob: Option<String>,
    /// Only resources of this kind: master, leader, lease or semaphore
    #[arg(long, value_parser = kind())]
    pub(crate) kind: Option<Kind>,
    /// Only this tenant
    #[arg(long, value_parser = name::tenant)]
    pub(crate) tenant: Option<String>,
    /// Only resources that a holder has had for longer; exit status 1 if there are any, for alerts
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) held_longer_than: Option<Duration>,
    /// Only resources with a waiter that has waited for longer; exit status 1 if there are any, for alerts
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) waits_longer_than: Option<Duration>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenure agents`.
#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenure events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Only those of this session
    #[arg(long, value_name = "UUID", value_parser = name::session)]
    pub(crate) session: Option<Uuid>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenure routes`.
#[derive(Debug, Args)]
pub(crate) struct RoutesArgs {
    /// Only the lease of this name
    #[arg(value_parser = name::parse)]
    pub(crate) name: Option<String>,
    /// The tenant in which the name is looked up
    #[arg(long, value_parser = name::tenant)]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenure doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `tenure log`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Filter of the log from now on
    pub(crate) filter: Option<String>,
    /// Log what the configuration says again
    #[arg(long, conflicts_with = "filter")]
    pub(crate) reset: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Kinds with their words as possible values, so that completions and errors list them.
fn kind() -> impl clap::builder::TypedValueParser<Value = Kind> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(Kind::ALL.map(Kind::as_str)).try_map(|word| word.parse::<Kind>())
}

#[cfg(test)]
mod tests;
