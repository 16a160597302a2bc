//! A program as people know it: the name of its user, and its command line.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use tenure_core::model::{COMMAND_BYTES_MAX, Program};

/// Most bytes of the file of users that are read; a name behind them is not known.
const USERS_BYTES_MAX: u64 = 1 << 20;

/// All there is to know of a process of a user. Asks no directory service, which might keep its caller waiting.
pub fn describe(pid: Option<u32>, uid: u32) -> Program {
    Program { user: user_name(uid).map(Arc::from), command: pid.and_then(command).map(Arc::from) }
}

fn user_name(uid: u32) -> Option<String> {
    let users = read("/etc/passwd", USERS_BYTES_MAX)?;
    name_in(&String::from_utf8_lossy(&users), uid)
}

fn name_in(users: &str, uid: u32) -> Option<String> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut named =
        fields.filter(|fields| fields.get(2).and_then(|it| it.parse().ok()) == Some(uid));
    named.next().and_then(|fields| fields.first().map(|&name| name.to_owned()))
}

fn command(pid: u32) -> Option<String> {
    let line = read(&format!("/proc/{pid}/cmdline"), COMMAND_BYTES_MAX as u64)?;
    Some(readable(&line)).filter(|line| !line.is_empty())
}

/// A command line with spaces between its words, fit for a line of a terminal.
fn readable(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let mut line = line.trim_end_matches('\0').replace(|it: char| it.is_control(), " ");
    while line.len() > COMMAND_BYTES_MAX {
        line.pop();
    }
    line
}

fn read(path: &str, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_one_line_of_bounded_length() {
        assert_eq!(readable(b"sh\0-c\0echo a\n\x1b[2J\0"), "sh -c echo a  [2J");
        assert_eq!(readable(b""), "");
        let long = readable(&[0xff; COMMAND_BYTES_MAX]);
        assert!(long.len() <= COMMAND_BYTES_MAX && long.starts_with('\u{fffd}'));
        let own = describe(Some(std::process::id()), 0);
        #[cfg(target_os = "linux")]
        assert!(own.command.is_some());
        assert!(own.command.is_none_or(|line| line.len() <= COMMAND_BYTES_MAX));
    }

    #[test]
    fn a_user_is_found_by_its_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000::/:/bin/sh\n";
        assert_eq!(name_in(users, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(users, 1), None);
    }
}
