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
mod shell;
mod show;
mod usage;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use tenure::client::{Client, SOCKET_VARIABLE};

use self::args::{Cli, Command};
use self::exit::End;
use self::failure::Failure;

/// How long an agent that hangs may keep somebody: a person looks at the terminal, or a script was told
/// not to wait.
const ANSWER_MAX: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let words = command_line();
    let end = match Cli::try_parse() {
        Ok(cli) => start(cli),
        Err(error) => help(&error, &words).map(End::Exit),
    };
    let end = end.unwrap_or_else(|failure| {
        let as_json = words.iter().any(|word| word == "--json");
        if !failure.line.is_empty() && as_json {
            output::say_json(&failure.to_json());
        } else if !failure.line.is_empty() {
            output::say(&failure.line);
        }
        End::Exit(failure.code)
    });
    ExitCode::from(match end {
        End::Exit(status) => status,
        End::Signal(signal) => {
            run::kernel::die_by(signal);
            exit::by_signal(signal)
        }
    })
}

/// The words that are this command's own: those of a guarded command follow two dashes.
fn command_line() -> Vec<String> {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    words.take_while(|word| word != "--").collect()
}

fn start(cli: Cli) -> Result<End, Failure> {
    cli.check().map_err(|line| Failure::new(exit::USAGE, line))?;
    match &cli.command {
        Command::Completions { shell } => {
            return manual::completions(*shell).map(|()| End::Exit(0));
        }
        Command::Man { dir } => return manual::man(dir.as_deref()).map(|()| End::Exit(0)),
        _ => {}
    }
    // One thread: a command that guards another one starts fast, and may fork.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::REFUSED, format!("runtime: {error}")))?;
    runtime.block_on(dispatch(&cli))
}

async fn dispatch(cli: &Cli) -> Result<End, Failure> {
    // An empty variable counts as none, as for every client; an empty option was meant to name one.
    let is_unset = |socket: &&str| {
        socket.is_empty() && std::env::var_os(SOCKET_VARIABLE).is_some_and(|it| it.is_empty())
    };
    let socket = cli.socket.as_deref().filter(|socket| !is_unset(socket));
    let client = Client::connect(socket.map(Path::new))
        .map_err(|error| Failure::of_call("--socket", &error))?;
    let done = match &cli.command {
        Command::Run(args) | Command::Lock(args) => return run::run(args, client).await,
        Command::Standing(args) => return show::standing(args, &client).await.map(End::Exit),
        Command::Doctor(args) => return show::doctor(args, &client).await.map(End::Exit),
        Command::Can(args) => return show::can(args, &client).await.map(End::Exit),
        Command::Log(args) => show::log(args, &client).await,
        Command::Status(args) => show::status(args, &client).await,
        Command::Acquire(args) => return run::acquire_and_keep(args, client).await,
        Command::Release(args) => run::release(args, &client).await,
        Command::Held(args) => return inside::held(args, &client).await.map(End::Exit),
        Command::Beat => inside::beat(&client).await,
        Command::Socket => show::socket(&client),
        Command::Ls(args) => return show::list(args, &client).await.map(End::Exit),
        Command::Agents(args) => show::agents(args, &client).await,
        Command::Why(args) => show::why(args, &client).await,
        Command::History(args) => show::history(args, &client).await,
        Command::Events(args) => show::events(args, &client).await,
        Command::Observe(args) => show::observe(args, &client).await,
        Command::Routes(args) => show::routes(args, &client).await,
        Command::Revoke(args) => show::revoke(args, &client).await,
        Command::Limit(args) => show::limit(args, &client).await,
        Command::Completions { .. } | Command::Man { .. } => Ok(()),
    };
    done.map(|()| End::Exit(0))
}

/// Prints the help that was asked for, or fails with what is wrong with the command line. The status of
/// clap for that is 2, which a guarded command may use as well.
fn help(error: &clap::Error, words: &[String]) -> Result<u8, Failure> {
    let shows_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.use_stderr() && !shows_help {
        return Err(Failure::new(exit::USAGE, usage::line(error, words)));
    }
    let printed = output::print_help(error);
    // The help of an empty command line goes to stderr, and stderr takes no word of its own failure.
    if shows_help { Ok(exit::USAGE) } else { printed.map(|()| 0) }
}
