//! The processes of the command, and the program that the user wants to have started at a loss.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::process::{Child, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getpid};

use crate::output::say;
use crate::run::child::Guarded;
use crate::run::family::{self, Member};
use crate::run::kernel::{self, Change};
use crate::run::signals::{Arrival, Sender};
use crate::run::terminal::Terminal;

/// Looks for processes that were started while the others were signalled.
const PASSES: usize = 8;

pub(super) struct Processes<'a> {
    /// `leader/cleanup`, for messages.
    what: &'a str,
    guarded: Guarded,
    /// The terminal on which the command shares this process's group.
    terminal: Option<Terminal>,
    /// That of --on-lost, once it was started. None of the command's.
    program: Option<Child>,
    /// The command's first process has ended.
    ended: bool,
    /// Nobody whom the command left behind holds on to the tether any more.
    deserted: bool,
    /// Processes of the command that this one may not signal. Those whose parent is one are not told of.
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

    /// The id of the command's first process.
    pub(super) fn command(&self) -> u32 {
        self.guarded.pid().as_raw().unsigned_abs()
    }

    /// True if the command's first process has ended.
    pub(super) fn command_ended(&self) -> bool {
        self.ended
    }

    /// True if whatever the command had started has ended, too. Where the kernel does not tell of
    /// processes, those count that hold on to the tether, and none of them after SIGKILL.
    pub(super) fn all_ended(&self, killed: bool) -> bool {
        // A process that was not seen because it moved meanwhile is seen the second time.
        match (self.whole_family(), self.whole_family()) {
            (Some(first), Some(second)) => first.is_empty() && second.is_empty(),
            _ => self.guarded.left_nothing() || killed,
        }
    }

    /// True if processes of the command go on, and this user may end none of them.
    pub(super) fn none_can_be_ended(&self) -> bool {
        let family = self.whole_family().unwrap_or_default();
        !family.is_empty()
            && family.iter().all(|member| kill(member.pid, None) == Err(Errno::EPERM))
    }

    /// The command and all that it has started, but what this user may not kill.
    fn family(&self) -> Option<Vec<Member>> {
        let mut family = self.whole_family()?;
        family.retain(|member| !self.untouchable.contains(&member.pid));
        Some(family)
    }

    fn whole_family(&self) -> Option<Vec<Member>> {
        family::living(self.guarded.others(), self.program.as_ref().and_then(pid_of))
    }

    /// Looks at the command; if it was just stopped in a way in which this process is to stop with it, as Ctrl-Z does,
    /// returns the signal for that.
    pub(super) fn look(&mut self) -> io::Result<Option<Signal>> {
        if self.ended {
            return Ok(None);
        }
        Ok(match self.guarded.look()? {
            Change::None => None,
            Change::Ended => {
                self.ended = true;
                None
            }
            Change::Stopped(signal) => {
                let by_terminal = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
                let in_front = self.terminal.as_ref().is_some_and(Terminal::is_ours);
                by_terminal
                    .into_iter()
                    .find(|stop| *stop as i32 == signal)
                    // A shell that suspends itself.
                    .or_else(|| in_front.then_some(Signal::SIGTSTP))
            }
        })
    }

    /// False if the command was continued since it was looked at.
    pub(super) fn command_is_stopped(&self) -> bool {
        family::is_stopped(self.guarded.pid())
    }

    /// Returns, once, when no process that the command left behind holds on to the tether any more.
    /// Dropping the future loses nothing.
    pub(super) async fn deserted(&mut self) {
        if !self.ended || self.deserted {
            return pending().await;
        }
        self.guarded.last_one_ended().await;
        self.deserted = true;
    }

    /// True if the command heard a signal by itself: one of the terminal, or of its own to the group.
    pub(super) fn heard(&self, arrival: Arrival) -> bool {
        if self.guarded.own_group().is_some() {
            return false;
        }
        match arrival.sender {
            Sender::Kernel => arrival.signal != Signal::SIGHUP || !kernel::leads_session(),
            // Signals to this process alone come from elsewhere: an interactive shell has a group of its own.
            Sender::Process(sender) => family::is_of(getpgrp(), sender),
            Sender::Unknown => false,
        }
    }

    /// Sends a signal to the processes of the command that are in its process group, as a shell would.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.guarded.pid();
        // None of these may belong to another program: the first process is not reaped yet. That none is left is no failure.
        if let Some(group) = self.guarded.own_group() {
            let _none_left = killpg(group, signal);
            return;
        }
        // A shell has made a group for itself.
        let groups = [Ok(getpgrp()), getpgid(Some(pid))];
        let Some(family) = self.family() else {
            let _none_left = kill(pid, signal);
            return;
        };
        for member in family.iter().filter(|member| groups.contains(&Ok(member.group))) {
            let _none_left = kill(member.pid, signal);
        }
    }

    /// Sends signals to the command and to all that it has started.
    pub(super) fn signal_all(&mut self, signals: &[Signal]) {
        let group = self.guarded.own_group();
        for signal in signals.iter().filter(|_| group.is_some()) {
            self.signal(*signal);
        }
        let mut told = Vec::new();
        self.untouchable.retain(|pid| kill(*pid, None) == Err(Errno::EPERM));
        for _ in 0..PASSES {
            let Some(mut family) = self.family() else { break };
            family.retain(|it| !told.contains(&it.pid));
            if family.is_empty() {
                return;
            }
            for member in family {
                told.push(member.pid);
                // Those of the group have it already.
                let rest = if Some(member.group) == group { &[] } else { signals };
                self.signal_one(member.pid, member.parent, rest);
            }
        }
        if told.is_empty() && group.is_none() {
            // The kernel does not tell of processes.
            self.signal_one(self.guarded.pid(), getpid(), signals);
        }
    }

    fn signal_one(&mut self, pid: Pid, parent: Pid, signals: &[Signal]) {
        for signal in signals {
            let _refused_or_gone = kill(pid, *signal);
        }
        let refused = kill(pid, None) == Err(Errno::EPERM);
        if refused {
            let is_known = self.untouchable.contains(&parent);
            self.untouchable.push(pid);
            if is_known {
                return;
            }
            say(&format!(
                "{}: process {pid} of the command belongs to another user and cannot be stopped from here: it may go \
                 on without the hold; that user, or root, can end it (kill {pid})",
                self.what
            ));
        }
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
        kernel::reap_orphans(|pid| pid == self.guarded.pid() || Some(pid) == program);
    }

    /// What the command has left behind and keeps its hold: the name of the program by the process id.
    pub(super) fn leftovers(&self) -> BTreeMap<u32, String> {
        let family = self.family().unwrap_or_default();
        let leftover =
            |member: &Member| (member.pid.as_raw().unsigned_abs(), family::name(member.pid));
        let keeps = |member: &&Member| self.guarded.is_kept_by(member.pid);
        family.iter().filter(keeps).map(leftover).collect()
    }

    /// The end of the command: its exit status, and whether nothing that it left behind still holds
    /// on to the tether.
    ///
    /// # Errors
    ///
    /// When another part of this program took its exit status.
    pub(super) fn finish(&mut self) -> io::Result<(Option<ExitStatus>, bool)> {
        let left_nothing = self.guarded.left_nothing();
        if !self.ended {
            return Ok((None, left_nothing));
        }
        let status = self.guarded.reap()?;
        // It hid those who ended after it.
        self.reap_orphans();
        if let Some(terminal) = &self.terminal {
            // Not before: a zombie counts as a member of its group.
            terminal.restore();
        }
        Ok((Some(status), left_nothing))
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().map(Pid::from_raw)
}
