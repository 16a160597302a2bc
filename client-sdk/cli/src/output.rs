//! Output: stdout for what was asked, stderr for what went wrong.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use tenure::wire::steers_terminal;

use crate::exit;
use crate::failure::Failure;
use crate::show::visible;

/// Prints what was asked for.
///
/// # Errors
///
/// When stdout cannot be written to; a reader that went away (`| head`) is a silent one.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(unwritten)
}

/// Prints the help that was asked for, with the styles of a terminal.
///
/// # Errors
///
/// Those of [`print()`].
pub(crate) fn print_help(help: &clap::Error) -> Result<(), Failure> {
    help.print().and_then(|()| io::stdout().flush()).map_err(unwritten)
}

fn unwritten(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(exit::by_signal(13), ""),
        _ => Failure::new(exit::REFUSED, format!("standard output: {error}")),
    }
}

/// Prints a value as JSON, indented.
///
/// # Errors
///
/// Those of [`print()`].
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(exit::REFUSED, format!("JSON: {error}")))?;
    print(&(inert(&text) + "\n"))
}

/// JSON without what a terminal interprets: within its strings such a character can be written as an escape, and it stands nowhere else.
fn inert(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter == '\n' || !steers_terminal(letter) {
            text.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _infallible = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

/// Says what went wrong, unless stderr would block: whoever guards a command must not wait for a
/// reader that sleeps. Parts of it may come from other programs.
pub(crate) fn say(line: &str) {
    write_error(&spoken(line));
}

fn spoken(line: &str) -> String {
    format!("tenure: {}\n", visible(line))
}

/// The same for programs: a line of JSON.
pub(crate) fn say_json(line: &str) {
    write_error(&format!("{}\n", inert(line)));
}

fn write_error(text: &str) {
    let mut err = io::stderr().lock();
    let shared = io::stderr();
    let mut ready = [PollFd::new(shared.as_fd(), PollFlags::POLLOUT)];
    let writable = poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0)
        && ready[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT));
    if writable {
        // There is nowhere left to say that this failed.
        let _lost = err.write_all(text.as_bytes());
    }
}

/// True if stdout is a terminal that may be coloured (<https://no-color.org>).
pub(crate) fn coloured() -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !forbidden && !dumb && io::stdout().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_moves_no_cursor_and_means_the_same() {
        let value = serde_json::json!({"a": "\u{9b}2J\u{7f}\u{202e}\u{2066}\u{e0041}ö\n"});
        for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let text = inert(&json);
            assert!(!text.contains(|letter| letter != '\n' && steers_terminal(letter)), "{text:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn what_is_said_moves_no_cursor() {
        assert_eq!(spoken("lost by \u{1b}[2Jx\n"), "tenure: lost by \u{fffd}[2Jx\u{fffd}\n");
    }
}
