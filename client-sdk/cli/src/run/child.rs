//! The guarded command: its process group, and what it leaves behind.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use tokio::net::unix::pipe;

use super::kernel::{self, Change, Start};
use super::terminal::Terminal;
use crate::exit;

/// The variables that tell a command of its hold.
pub(super) type Environment = [(&'static str, OsString); 6];

/// The start of a guarded command.
pub(super) struct Recipe<'a> {
    pub(super) command: &'a [OsString],
    pub(super) environment: Environment,
    /// The tether, when everything that the command leaves behind is to hold on to it; else the
    /// command dies with this process.
    pub(super) tether: Option<BorrowedFd<'a>>,
    pub(super) terminal: Option<&'a Terminal>,
    pub(super) mask: SigSet,
}

/// A running command.
pub(super) struct Guarded {
    child: Child,
    group: Pid,
    witness: pipe::Receiver,
}

impl Guarded {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The system's error for the program.
    pub(super) fn spawn(recipe: Recipe<'_>) -> io::Result<Guarded> {
        let (program, arguments) =
            recipe.command.split_first().ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        // Its writing end is with the command and its descendants only: it ends with the last one.
        let (witness, theirs) = io::pipe()?;
        let witness = pipe::Receiver::from_owned_fd(OwnedFd::from(witness))?;
        let mut inherited = vec![theirs.as_fd()];
        inherited.extend(recipe.tether);
        let start = Start {
            inherited,
            terminal: recipe.terminal.map(Terminal::as_fd),
            dies_with_parent: recipe.tether.is_none(),
            mask: recipe.mask,
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(recipe.environment);
        kernel::prepare(&mut command, &start);
        let child = command.spawn()?;
        #[expect(clippy::cast_possible_wrap, reason = "the kernel's process ids are positive i32")]
        let group = Pid::from_raw(child.id() as i32);
        Ok(Guarded { child, group, witness })
    }

    /// Its process group, which has the id of its first process.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Sends a signal to the process group.
    pub(super) fn signal(&self, signal: Signal) {
        // That nobody is left in the group is no failure; the first process is not reaped yet, so
        // it cannot be somebody else's.
        let _nobody = killpg(self.group, signal);
    }

    /// The change of state since the last look. Its process id is kept until [`Guarded::reap`], so
    /// that its process group cannot be another one by now.
    ///
    /// # Errors
    ///
    /// When somebody else has reaped it.
    pub(super) fn look(&self) -> io::Result<Change> {
        kernel::look(self.group)
    }

    /// Returns when the command and every process that it left behind have ended, as far as they
    /// kept the descriptors that they inherited. Dropping the future loses nothing.
    pub(super) async fn last_one_ended(&self) {
        let mut ignored = [0; 64];
        loop {
            match self.witness.try_read(&mut ignored) {
                // Somebody took it for something to write to.
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.witness.readable().await.is_err() {
                        return;
                    }
                }
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// True if every process that the command could have left behind has ended.
    pub(super) fn left_nothing(&self) -> bool {
        // Asked of the kernel: what the runtime remembers of the pipe may be older.
        let mut witness = [PollFd::new(self.witness.as_fd(), PollFlags::empty())];
        poll(&mut witness, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Takes its exit status. To be called when it has ended.
    ///
    /// # Errors
    ///
    /// When somebody else took it.
    pub(super) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// A command's status as this process's own.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => exit::REFUSED,
    }
}
