//! Processes of this host, as `/proc` shows them.

use std::{fmt, fs};

/// The state of a process, by the kernel's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) pid: u32,
    /// The letter of `ps`: R, S, D, T, Z, or another.
    pub(super) state: char,
}

/// The line of a process in `/proc`, in which the name of its program may have any bytes.
pub(crate) fn stat(pid: impl fmt::Display) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    Some(String::from_utf8_lossy(&line).into_owned())
}

impl Seen {
    /// A process; `None` if it has ended, or this system does not tell.
    pub(super) fn find(pid: u32) -> Option<Seen> {
        Some(Seen { pid, state: state_in(&stat(pid)?)? })
    }

    /// Its first child: what `tenure run` guards.
    pub(super) fn child(&self) -> Option<Seen> {
        let pid = self.pid;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Seen::find(children.split_whitespace().next()?.parse().ok()?)
    }

    /// The state in words.
    pub(super) fn words(&self) -> String {
        let words = match self.state {
            'R' => "running",
            'S' => "sleeping",
            'D' => "waiting for a disk or a network file system",
            'T' => "stopped",
            't' => "stopped by a debugger",
            'Z' => "ended, its parent has not asked",
            _ => "unknown",
        };
        format!("{} ({words})", self.state)
    }
}

/// The state in `/proc/PID/stat`: behind the name, which may contain anything.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_stands_behind_the_name() {
        assert_eq!(state_in("7 (a) b) T 1 7"), Some('T'));
        assert_eq!(state_in("7"), None);
        assert_eq!(Seen { pid: 7, state: 'T' }.words(), "T (stopped)");
    }
}
