//! `tenure can`.

use clap::Args;

use super::ResourceWords;

/// `tenure can`.
#[derive(Debug, Args)]
pub(crate) struct CanArgs {
    /// The user, by number or name; without, you
    #[arg(long, value_name = "USER")]
    pub(crate) uid: Option<String>,
    /// The primary group of the user's processes, by number or name; without, that of the user on this host
    #[arg(long, value_name = "GROUP", requires = "uid")]
    pub(crate) gid: Option<String>,
    /// Master only: the priority to be asked for
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    #[command(flatten)]
    pub(crate) resource: ResourceWords,
}
