//! Completions of the `tenured` command.

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use tenured::config::Cli;

/// Names of files as each shell looks for them, with their contents.
pub(crate) fn scripts() -> [(&'static str, String); 3] {
    [("tenured.bash", Shell::Bash), ("_tenured", Shell::Zsh), ("tenured.fish", Shell::Fish)].map(
        |(name, shell)| {
            let mut script = Vec::new();
            generate(shell, &mut Cli::command(), "tenured", &mut script);
            (name, String::from_utf8_lossy(&script).into_owned())
        },
    )
}
