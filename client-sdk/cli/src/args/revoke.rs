//! `tenure revoke`.

use std::time::Duration;

use clap::Args;

use super::duration::parse_positive;
use super::{ResourceWords, name};

/// `tenure revoke`.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    pub(crate) resource: ResourceWords,
    /// Only the grant with this token. Default: every grant of the resource
    #[arg(long, value_name = "TOKEN", value_parser = name::token)]
    pub(crate) token: Option<u64>,
    /// Why, for those who lose it and for the logs of both hosts
    #[arg(long, value_name = "TEXT", value_parser = name::parse)]
    pub(crate) reason: Option<String>,
    /// Keep it from the sessions that lose it for so long, such as 10m; at most 24h
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_positive)]
    pub(crate) barred_for: Option<Duration>,
}
