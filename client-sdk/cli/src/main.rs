//! The `tenure` command.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::expect_used, reason = "a test fails by panicking"))]

mod args;
mod exit;
mod failure;
mod inside;
mod manual;
mod output;
mod run;
mod show;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tenure::client::Client;

use self::args::{Cli, Command};
use self::failure::Failure;

/// How long an agent that hangs may keep somebody: a person looks at the terminal, or a script was told
/// not to wait.
const ANSWER_MAX: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    ExitCode::from(start(cli).unwrap_or_else(|failure| {
        if !failure.line.is_empty() {
            output::say(&failure.line);
        }
        failure.code
    }))
}

fn start(cli: Cli) -> Result<u8, Failure> {
    match &cli.command {
        Command::Completions { shell } => return manual::completions(*shell).map(|()| 0),
        Command::Man { dir } => return manual::man(dir.as_deref()).map(|()| 0),
        Command::Held(args) => return inside::held(args),
        _ => {}
    }
    // One thread: a command that guards another one starts fast, and may fork.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::REFUSED, format!("runtime: {error}")))?;
    runtime.block_on(dispatch(&cli))
}

async fn dispatch(cli: &Cli) -> Result<u8, Failure> {
    let client = Client::connect(cli.socket.as_deref().map(Path::new))
        .map_err(|error| Failure::of_call("--socket", &error))?;
    let done = match &cli.command {
        Command::Run(args) | Command::Lock(args) => return run::run(args, client).await,
        Command::Standing(args) => return show::standing(args, &client).await,
        Command::Doctor(args) => return show::doctor(args, &client).await,
        Command::Log(args) => show::log(args, &client).await,
        Command::Status(args) => show::status(args, &client).await,
        Command::Beat => inside::beat(&client).await,
        Command::Socket => show::socket(&client),
        Command::Events(args) => show::events(args, &client).await,
        Command::Observe(args) => show::observe(args, &client).await,
        Command::Routes(args) => show::routes(args, &client).await,
        Command::Revoke(args) => show::revoke(args, &client).await,
        Command::Completions { .. } | Command::Man { .. } | Command::Held(_) => Ok(()),
    };
    done.map(|()| 0)
}

/// Prints what clap has to say. Its own exit status for a wrong command line is 2, which a guarded
/// command may use as well.
fn usage(error: &clap::Error) -> ExitCode {
    // There is nowhere left to say that this failed.
    let _printed = error.print();
    ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 })
}
