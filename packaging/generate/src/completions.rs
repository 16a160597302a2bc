//! Completions of the daemons.

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};

/// Names of files as each shell looks for them, with their contents.
pub(crate) fn scripts() -> [(&'static str, String); 4] {
    let agent = tenured::config::Cli::command;
    [
        ("tenured.bash", script(Shell::Bash, agent())),
        ("_tenured", script(Shell::Zsh, agent())),
        ("tenured.fish", script(Shell::Fish, agent())),
        ("tenured-gateway.bash", script(Shell::Bash, tenure_gateway::settings::Cli::command())),
    ]
}

fn script(shell: Shell, mut command: Command) -> String {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
