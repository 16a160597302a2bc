//! What a daemon says when it is told nothing that it can do, or is asked for help.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use tenure_wire::rules;

/// Wrong usage, as sysexits(3) has it.
pub const USAGE: u8 = 64;

/// The command line of this process.
///
/// # Errors
///
/// With the exit status of the daemon, when that is all: it has printed its help, or what is wrong.
pub fn parse<Cli: Parser>(daemon: &str) -> Result<Cli, ExitCode> {
    let asked = match Cli::try_parse() {
        Ok(cli) => return Ok(cli),
        Err(asked) => asked,
    };
    if asked.use_stderr() {
        // It repeats an argument, which a terminal may obey.
        let text = asked.render().to_string();
        let lines: Vec<_> = text.lines().map(|line| rules::escape(line.chars())).collect();
        // Writing fails without a reader; the exit status says the same.
        let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
        return Err(ExitCode::from(USAGE));
    }
    let Err(error) = asked.print().and_then(|()| io::stdout().flush()) else {
        return Err(ExitCode::SUCCESS);
    };
    // A reader that has enough is told nothing.
    if error.kind() != ErrorKind::BrokenPipe {
        let _ = writeln!(io::stderr(), "{daemon}: standard output: {error}");
    }
    Err(ExitCode::FAILURE)
}
