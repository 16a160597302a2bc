//! `tenured-gateway quarantine end`: a store that lost data grants again before its time.

use anyhow::{Context, Error};
use clap::Subcommand;
use tenure_stores::settings::Opener;

use crate::keys::in_runtime;

/// The risk, for people.
const RISK: &str = "To end a quarantine risks two holders at once: a program that was granted something before the \
                    store lost its data goes on until its own valid-until. Only the fencing token tells the two \
                    apart. Stop such programs first, or wait.";

/// Commands about a quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum QuarantineCommand {
    /// End it now, although grants from before the store lost its data may still be valid.
    End {
        /// Do it. Without this the command only names the risk.
        #[arg(long)]
        yes: bool,
    },
}

impl QuarantineCommand {
    /// Carries the command out, and returns its outcome, for people.
    ///
    /// # Errors
    ///
    /// For people.
    pub fn run(&self, opener: &dyn Opener) -> anyhow::Result<&'static str> {
        let QuarantineCommand::End { yes } = self;
        if !yes {
            eprintln!("{RISK}");
            let rule =
                "nothing was changed; say `tenured-gateway quarantine end --yes` if that is meant";
            return Err(Error::msg(rule));
        }
        in_runtime(async {
            let store = opener.keyring().context(
                "this store belongs to one process alone: end its quarantine with `tenured quarantine end`",
            )?;
            let ended = store.end_quarantine().await;
            match ended.map_err(|failure| Error::msg(failure.cause().to_owned()))? {
                true => Ok("ended: the store grants again"),
                false => Ok("there is no quarantine"),
            }
        })
    }
}
