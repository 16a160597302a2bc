//! The command line of a daemon: arguments, help and errors.

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
/// The exit status of the daemon, once its help or the error of the command line is printed.
pub fn parse<Cli: Parser>(daemon: &str) -> Result<Cli, ExitCode> {
    let asked = match Cli::try_parse() {
        Ok(cli) => return Ok(cli),
        Err(asked) => asked,
    };
    if asked.use_stderr() {
        // Writing fails without a reader; the exit status says the same.
        let _ = match asked.kind() {
            clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => asked.print(),
            _ => writeln!(io::stderr(), "{}", line(daemon, &asked.render().to_string())),
        };
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

/// An error of clap in one line, with where to read on. It repeats an argument, which a terminal may obey.
fn line(daemon: &str, text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let end = ["\n\nUsage:", "\n\nFor more information"].into_iter().filter_map(|it| text.find(it));
    let text = &text[..end.min().unwrap_or(text.len())];
    let parts = text.lines().map(str::trim).filter(|part| !part.is_empty());
    let parts: Vec<_> = parts.map(|part| rules::escape(part.chars())).collect();
    format!("{daemon}: {}; see `{daemon} --help`", parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_word_costs_one_line() {
        let said = "error: unrecognized subcommand 'fo\u{1b}o'\n\n  tip: try this\n\nUsage: tenured [OPTIONS]\n\n\
                    For more information, try '--help'.\n";
        assert_eq!(
            line("tenured", said),
            "tenured: unrecognized subcommand 'fo\\u{1b}o' tip: try this; see `tenured --help`"
        );
    }
}
