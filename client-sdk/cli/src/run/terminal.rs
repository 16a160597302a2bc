//! The controlling terminal. The command shares this process's group there, so that the terminal, and the shell, treat
//! the two as one job: keys, reads, `fg` and `bg` reach the command as they would without a wrapper.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::killpg;
use nix::unistd::{getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process, whichever of the standard descriptors leads to it.
///
/// SIGTTOU must be blocked in this process: changing the foreground from behind it would stop it.
pub(super) struct Terminal {
    file: File,
    /// This process group was in its foreground when the command was started.
    was_ours: bool,
}

impl Terminal {
    /// The terminal, if there is one.
    pub(super) fn find() -> Option<Terminal> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        let file = options.open("/dev/tty").ok()?;
        let mut terminal = Terminal { file, was_ours: false };
        terminal.was_ours = terminal.is_ours();
        Some(terminal)
    }

    /// True if this process group is in its foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file) == Ok(getpgrp())
    }

    /// Puts this process group back into the foreground if the command left it to a group of which nobody is left, as a
    /// shell does that was killed.
    pub(super) fn restore(&self) {
        let Ok(group) = tcgetpgrp(&self.file) else { return };
        if self.was_ours && killpg(group, None) == Err(Errno::ESRCH) {
            // Fails when the terminal has gone away; then there is no foreground to care about.
            let _gone = tcsetpgrp(&self.file, getpgrp());
        }
    }
}
