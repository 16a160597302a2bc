//! `tenure limit`.

use clap::Args;

use super::OutputArgs;

/// `tenure limit`.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// The semaphore
    pub(crate) name: String,
    /// Permits in all, from now on and for everybody. Without, the limit in force is shown
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    /// The tenant in which the name is looked up
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
