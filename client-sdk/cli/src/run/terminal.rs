//! The terminal's foreground, lent to the command.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on the standard input, when this process group is in its foreground.
///
/// SIGTTOU must be blocked in this process: changing the foreground from behind it would stop it.
pub(super) struct Terminal {
    input: io::Stdin,
}

impl Terminal {
    /// The terminal, if it is ours to lend. In a pipeline it is not: the other processes of the
    /// pipeline would lose it as well.
    pub(super) fn find() -> Option<Terminal> {
        let terminal = Terminal { input: io::stdin() };
        let alone = !is_pipe(io::stdout().as_fd()) && !is_pipe(io::stderr().as_fd());
        (alone && terminal.input.is_terminal() && terminal.is_ours()).then_some(terminal)
    }

    /// The descriptor, for what the child does itself.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// Puts the command into the foreground, unless somebody else is there now.
    pub(super) fn lend(&self, group: Pid) {
        if self.is_ours() {
            self.set(group);
        }
    }

    /// Puts this process group back into the foreground, unless the command had lost it.
    pub(super) fn take_back(&self, group: Pid) {
        if tcgetpgrp(&self.input) == Ok(group) {
            self.set(getpgrp());
        }
    }

    /// Puts this process group back into the foreground, whoever is there: for a command that took
    /// it and then could not be executed.
    pub(super) fn reclaim(&self) {
        self.set(getpgrp());
    }

    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.input) == Ok(getpgrp())
    }

    fn set(&self, group: Pid) {
        // Fails when the terminal has gone away; then there is no foreground to care about.
        let _gone = tcsetpgrp(&self.input, group);
    }
}

fn is_pipe(fd: BorrowedFd<'_>) -> bool {
    fstat(fd).is_ok_and(|stat| {
        SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFIFO
    })
}
