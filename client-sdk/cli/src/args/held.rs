//! `tenure held`.

use clap::Args;

/// Tells whether the hold around this command is still valid
///
/// For commands that `tenure run` has started, or after `tenure acquire`. Exit status 0 when it is held, 1 when it is not held
/// any more. Reads the page in TENURE_PAGE, so that it is right even when the agent is stopped; where the
/// page is gone it asks the agent.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure run --leader import -- sh -c '
    for file in *.csv; do tenure held || exit 1; load \"$file\"; done'
  tenure held --verbose                           held, and for how long unless renewed")]
pub(crate) struct HeldArgs {
    /// Print how long it is valid for unless it is renewed
    #[arg(long, short)]
    pub(crate) verbose: bool,
}
