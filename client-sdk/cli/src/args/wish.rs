//! The wish to hold something: what, for whom, and how long to wait for it.

use std::time::Duration;

use clap::Args;
use tenure::wire::Kind;
use tenure::wire::rules::PERMITS_MAX;

use super::{duration, name};
use crate::exit;

/// A wish to hold a resource.
#[derive(Debug, Args)]
pub(crate) struct WishArgs {
    #[command(flatten)]
    pub(crate) resource: ResourceArgs,

    /// Permits in all, from now on and for everybody; with --semaphore. Default: the limit in force
    #[arg(long, value_name = "N", conflicts_with_all = ["leader", "lease", "master"],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(PERMITS_MAX)))]
    pub(crate) limit: Option<u32>,
    /// A higher priority preempts a lower one; with --master
    #[arg(long, value_name = "N", conflicts_with_all = ["leader", "lease", "semaphore"], allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// How long after its expiry only the former holder may have the lease; with --lease
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["leader", "semaphore", "master"], value_parser = duration::parse)]
    pub(crate) grace: Option<Duration>,
    /// Address of the holder for the routing table; with --lease
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["leader", "semaphore", "master"], value_parser = name::address)]
    pub(crate) address: Option<String>,

    /// Refuse with status 77 where the agent's store is this host's alone, and other hosts could hold it, too
    #[arg(long)]
    pub(crate) fleet: bool,
    /// Wait at most this long. Default: for ever
    #[arg(long, short, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for the hold of another session to end
    #[arg(long, short, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// With --no-wait: how long to wait for a store that does not answer
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse, requires = "no_wait")]
    pub(crate) store_wait: Duration,
    /// Exit status when somebody else has it, or had it for all of --wait
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = exit::NOT_ACQUIRED)]
    pub(crate) conflict_exit_code: u8,
    /// Do not say who has it, neither while waiting nor at the end
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// How long the hold outlives its last renewal by the agent. Default: by kind
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    pub(crate) ttl: Option<Duration>,
    /// Keep it from others for so long after its grant, whatever becomes of the command, of tenure,
    /// the agent and the host; at most 24h. Default: not at all
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    pub(crate) at_least: Option<Duration>,

    /// The project, for --master
    #[arg(long, value_parser = name::project)]
    pub(crate) project: Option<String>,
    /// The tenant in which the name is looked up
    #[arg(long, value_parser = name::tenant)]
    pub(crate) tenant: Option<String>,
}

/// The resource; exactly one.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ResourceArgs {
    /// Be the one leader of this role
    #[arg(long, value_name = "NAME", value_parser = name::parse)]
    leader: Option<String>,
    /// Have one of the permits of this semaphore; see --limit
    #[arg(long, value_name = "NAME", value_parser = name::parse)]
    semaphore: Option<String>,
    /// Have this lease, listed in the routing table
    #[arg(long, value_name = "NAME", value_parser = name::parse)]
    lease: Option<String>,
    /// Be the master of the --project
    #[arg(long)]
    master: bool,
}

impl ResourceArgs {
    /// Kind and name; a master has no name.
    pub(crate) fn resource(&self) -> (Kind, Option<String>) {
        let named = [
            (Kind::Leader, &self.leader),
            (Kind::Semaphore, &self.semaphore),
            (Kind::Lease, &self.lease),
        ];
        named
            .into_iter()
            .find_map(|(kind, name)| name.clone().map(|name| (kind, Some(name))))
            .unwrap_or((Kind::Master, None))
    }
}
