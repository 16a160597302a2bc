//! The processes of the command, and the program that the user wants to have started at a loss.

use std::future::pending;
use std::io;
use std::process::{Child, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::output::say;
use crate::run::child::Guarded;
use crate::run::family::{self, Member};
use crate::run::kernel::{self, Change};
use crate::run::terminal::Terminal;

pub(super) struct Processes<'a> {
    /// `leader/cleanup`, for messages.
    what: &'a str,
    guarded: Guarded,
    terminal: Option<Terminal>,
    /// That of --on-lost, once it was started. None of the command's.
    program: Option<Child>,
    /// The command's first process has ended.
    ended: bool,
    /// Nobody whom the command left behind holds on to the tether any more.
    deserted: bool,
    /// Processes of the command that this one may not signal.
    untouchable: Vec<Pid>,
}

impl<'a> Processes<'a> {
    /// Those of a command that was just started.
    pub(super) fn new(
        what: &'a str,
        guarded: Guarded,
        terminal: Option<Terminal>,
    ) -> Processes<'a> {
        let untouchable = Vec::new();
        let (ended, deserted) = (false, false);
        Processes { what, guarded, terminal, program: None, ended, deserted, untouchable }
    }

    /// The id of the command's first process, and of its process group.
    pub(super) fn command(&self) -> u32 {
        self.guarded.group().as_raw().unsigned_abs()
    }

    /// True if the command's first process has ended.
    pub(super) fn command_ended(&self) -> bool {
        self.ended
    }

    /// True if whatever the command had started has ended, too. Where the kernel does not tell of
    /// processes, those count that hold on to the tether, and none of them after SIGKILL.
    pub(super) fn all_ended(&self, killed: bool) -> bool {
        // A process that was not seen because it moved meanwhile is seen the second time.
        match (self.family(), self.family()) {
            (Some(first), Some(second)) => first.is_empty() && second.is_empty(),
            _ => self.guarded.left_nothing() || killed,
        }
    }

    /// The command and all that it has started, but those whom nobody here may kill.
    fn family(&self) -> Option<Vec<Member>> {
        let program = self.program.as_ref().and_then(pid_of);
        let mut family = family::living(program)?;
        family.retain(|member| !self.untouchable.contains(&member.pid));
        Some(family)
    }

    /// Looks at the command; true if it was just stopped in a way in which this process is to stop
    /// with it: as Ctrl-Z does.
    pub(super) fn look(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        Ok(match self.guarded.look()? {
            Change::None => false,
            Change::Ended => {
                self.ended = true;
                false
            }
            Change::Stopped(signal) => {
                let by_terminal = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
                by_terminal.iter().any(|stop| *stop as i32 == signal) || self.terminal.is_some()
            }
        })
    }

    /// Returns, once, when nobody whom the command left behind holds on to the tether any more.
    /// Dropping the future loses nothing.
    pub(super) async fn deserted(&mut self) {
        if !self.ended || self.deserted {
            return pending().await;
        }
        self.guarded.last_one_ended().await;
        self.deserted = true;
    }

    /// Sends a signal to the command's process group.
    pub(super) fn signal(&self, signal: Signal) {
        self.guarded.signal(signal);
    }

    /// Sends signals to the command's process group, and to what has left that.
    pub(super) fn signal_all(&mut self, signals: &[Signal]) {
        for signal in signals {
            self.guarded.signal(*signal);
        }
        let group = self.guarded.group();
        for Member { pid, .. } in self.family().into_iter().flatten().filter(|m| m.group != group) {
            let refused = signals.iter().any(|signal| kill(pid, *signal) == Err(Errno::EPERM));
            if refused {
                self.untouchable.push(pid);
                say(&format!(
                    "{}: process {pid} of the command belongs to another user and cannot be stopped: it \
                     goes on without the hold",
                    self.what
                ));
            }
        }
    }

    /// Puts this process group back into the foreground of the terminal.
    pub(super) fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.guarded.group());
        }
    }

    /// Has the command go on after a stop.
    pub(super) fn go_on(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.lend(self.guarded.group());
        }
        self.guarded.signal(Signal::SIGCONT);
    }

    pub(super) fn program_started(&mut self, program: Child) {
        self.program = Some(program);
    }

    /// True if the user's program does not run: it has ended, or was not started.
    pub(super) fn program_ended(&mut self) -> bool {
        self.program.as_mut().is_none_or(|program| !matches!(program.try_wait(), Ok(None)))
    }

    pub(super) fn reap_orphans(&mut self) {
        let program = if self.program_ended() { None } else { self.program.as_ref() };
        let program = program.and_then(pid_of);
        kernel::reap_orphans(|pid| pid == self.guarded.group() || Some(pid) == program);
    }

    /// The end of the command: its exit status, and whether nothing that it left behind still holds
    /// on to the tether.
    ///
    /// # Errors
    ///
    /// When somebody else took its exit status.
    pub(super) fn finish(&mut self) -> io::Result<(ExitStatus, bool)> {
        self.take_terminal_back();
        let left_nothing = self.guarded.left_nothing();
        let status = self.guarded.reap()?;
        // It hid those who ended after it.
        self.reap_orphans();
        Ok((status, left_nothing))
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().map(Pid::from_raw)
}
