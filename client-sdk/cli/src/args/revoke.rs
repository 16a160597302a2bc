//! `tenure revoke`.

use std::time::Duration;

use clap::Args;
use tenure::wire::Kind;

use super::duration::parse_positive;
use super::{OutputArgs, kind, name};

/// `tenure revoke`.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// master, leader, lease or semaphore
    #[arg(value_parser = kind())]
    pub(crate) kind: Kind,
    /// Its name; for a master the project
    #[arg(value_parser = name::parse)]
    pub(crate) name: String,
    /// Only the grant with this token. Default: every grant of the resource
    #[arg(long, value_name = "TOKEN", value_parser = name::token)]
    pub(crate) token: Option<u64>,
    /// Why, for those who lose it and for the logs of both hosts
    #[arg(long, value_name = "TEXT", value_parser = name::parse)]
    pub(crate) reason: Option<String>,
    /// Keep it from the sessions that lose it for so long, such as 10m; at most 24h
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_positive)]
    pub(crate) barred_for: Option<Duration>,
    /// The tenant in which the name is looked up
    #[arg(long, value_parser = name::tenant)]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
