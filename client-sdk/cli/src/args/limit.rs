//! `tenure limit`.

use clap::Args;
use tenure::wire::rules::PERMITS_MAX;

use super::{OutputArgs, name};

/// Reads the name of a semaphore, with its kind or without.
fn semaphore(text: &str) -> Result<String, String> {
    name::parse(text.strip_prefix("semaphore/").unwrap_or(text))
}

/// `tenure limit`.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// The semaphore: NAME, or semaphore/NAME
    #[arg(value_parser = semaphore)]
    pub(crate) name: String,
    /// Permits in all, from now on and for everybody. Without, the limit in force is shown
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(PERMITS_MAX)))]
    pub(crate) limit: Option<u32>,
    /// The tenant in which the name is looked up
    #[arg(long, value_parser = name::tenant)]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
