//! The guarded command: its start, its end, and what it leaves behind.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::{fs, io};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::stat::fstat;
use nix::unistd::Pid;
use tokio::net::unix::pipe;

use super::kernel::{self, Change, Start};
use super::{family, service};
use crate::exit::{self, End};

/// The variables that tell a command of its hold.
pub(super) type Environment = [(&'static str, OsString); 7];

/// The start of a guarded command.
pub(super) struct Recipe<'a> {
    pub(super) command: &'a [OsString],
    pub(super) environment: Environment,
    /// The tether, when everything that the command leaves behind is to hold on to it; else the
    /// command dies with this process.
    pub(super) tether: Option<BorrowedFd<'a>>,
    /// In a process group of its own, which can be signalled in one call and does not end this process with `kill 0`; not
    /// on a terminal, where the wrapper and the command are one job.
    pub(super) in_own_group: bool,
    pub(super) mask: SigSet,
    pub(super) service: service::Environment,
}

/// A running command.
pub(super) struct Guarded {
    child: Child,
    pid: Pid,
    in_own_group: bool,
    others: Vec<Pid>,
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
            in_own_group: recipe.in_own_group,
            dies_with_parent: recipe.tether.is_none(),
            mask: recipe.mask,
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(recipe.environment);
        if let Some(socket) = recipe.service.notify_socket {
            command.env("NOTIFY_SOCKET", socket);
        }
        kernel::prepare(&mut command, &start);
        let own_pid = &recipe.service.own_pid;
        if !own_pid.is_empty() {
            // Names this process, too, and would have the command leave its sockets alone.
            command.env_remove("LISTEN_PIDFDID");
            kernel::tell_own_pid(&mut command, own_pid)?;
        }
        let others = family::children();
        let child = command.spawn()?;
        if own_pid.contains(&"LISTEN_PID") {
            let count = std::env::var("LISTEN_FDS").ok().and_then(|count| count.parse().ok());
            kernel::close_listened(count.unwrap_or(0));
        }
        #[expect(clippy::cast_possible_wrap, reason = "the kernel's process ids are positive i32")]
        let pid = Pid::from_raw(child.id() as i32);
        Ok(Guarded { child, pid, in_own_group: recipe.in_own_group, others, witness })
    }

    /// Its first process.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Children of this process that are none of the command's.
    pub(super) fn others(&self) -> &[Pid] {
        &self.others
    }

    /// The process group that it was started in, if that is its own: it has the id of its first process.
    pub(super) fn own_group(&self) -> Option<Pid> {
        self.in_own_group.then_some(self.pid)
    }

    /// The change of state since the last look. Its process id is kept until [`Guarded::reap`], so
    /// that its process group cannot be another one by now.
    ///
    /// # Errors
    ///
    /// When another part of this program has reaped it.
    pub(super) fn look(&self) -> io::Result<Change> {
        kernel::look(self.pid)
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

    /// True if a process keeps the tether's other end open; also if this user may not see what it has open.
    pub(super) fn is_kept_by(&self, pid: Pid) -> bool {
        let Ok(pipe) = fstat(&self.witness) else { return true };
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return true };
        let pipe = format!("pipe:[{}]", pipe.st_ino);
        open.flatten().any(|it| fs::read_link(it.path()).is_ok_and(|to| to.as_os_str() == &*pipe))
    }

    /// Takes its exit status. To be called when it has ended.
    ///
    /// # Errors
    ///
    /// When another part of this program took it.
    pub(super) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// The end of this process that tells of the command's.
pub(super) fn end(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exit(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Exit(exit::REFUSED),
    }
}
