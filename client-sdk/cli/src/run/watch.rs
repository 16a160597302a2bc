//! The watch over a running command: signals to it, news of its hold, and the clock.

mod news;

use std::io;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure::client::{CallError, Client, EventStream, Received};
use tenure::page::boottime_ns;
use tenure::wire::{Acquired, HoldState, Registered};
use uuid::Uuid;

use self::news::{Attaching, attached, next_event};
use super::alarm::Alarm;
use super::child::Guarded;
use super::decide::{Action, Reaction, Stage, View, decide, nanos};
use super::family::{self, Member};
use super::kernel::{self, Change};
use super::signals::Signals;
use super::terminal::Terminal;
use super::tether::Tether;
use super::validity::{Reading, Validity};
use crate::output::say;

/// How long the page's word is ahead of the event that says why: the agent writes the page first.
/// Nobody else is granted the resource meanwhile, since the session is a guarded one.
const NEWS_MAX_NS: u64 = 50_000_000;

/// How often what goes on in spite of SIGKILL is looked for.
const KILL_AGAIN_NS: u64 = 20_000_000;

/// How the user's program for a loss is started: with the reason and the command's process id.
pub(super) type StartProgram<'a> = dyn Fn(&str, u32) -> io::Result<Child> + 'a;

/// The part of a watch that is fixed while the command runs.
pub(super) struct Orders<'a> {
    /// `leader/cleanup`, for messages.
    pub(super) what: &'a str,
    pub(super) reaction: Reaction,
    pub(super) kill_after: Duration,
    pub(super) max_hold: Option<Duration>,
    pub(super) start_program: &'a StartProgram<'a>,
}

/// How it ended.
pub(super) struct Ending {
    pub(super) status: ExitStatus,
    /// It was stopped because of its hold.
    pub(super) stopped: bool,
    /// Nothing that it left behind still holds on to the tether.
    pub(super) left_nothing: bool,
    /// Kept open to the end: the hold must not end before the caller says so.
    pub(super) stream: Option<EventStream>,
}

/// Watches one command. Takes signals, events and time; ends when the command has ended, and, when
/// it was stopped, all that it had started as well.
pub(super) struct Watch<'a> {
    orders: Orders<'a>,
    guarded: Guarded,
    terminal: Option<Terminal>,
    client: Client,
    registered: Registered,
    stream: Option<EventStream>,
    attaching: Option<Attaching>,
    /// The stream was opened when the hold was there: a snapshot without it means its end. The
    /// first stream is opened while the hold is still asked for.
    snapshot_counts: bool,
    validity: Validity,
    hold: Uuid,
    ttl: Duration,
    valid_until: u64,
    over_at: Option<u64>,
    jeopardy: bool,
    lost: Option<&'static str>,
    /// When the page was first seen to have no valid-until.
    blank_since: Option<u64>,
    program: Option<Child>,
    stage: Stage,
    ended: bool,
    deserted: bool,
    /// Processes of the command that this one may not signal.
    untouchable: Vec<Pid>,
}

/// The reason for which the watch woke up.
enum News {
    Signal(Signal),
    Event(Option<Result<Received, CallError>>),
    Attached(Box<Result<Tether, CallError>>),
    Look,
    /// Nobody whom the command left behind holds on to the tether any more.
    Deserted,
}

impl<'a> Watch<'a> {
    /// Over a command that was just started under a fresh grant.
    pub(super) fn new(
        orders: Orders<'a>,
        guarded: Guarded,
        terminal: Option<Terminal>,
        client: Client,
        tether: Tether,
        acquired: &Acquired,
        validity: Validity,
    ) -> Watch<'a> {
        let over_at = orders.max_hold.map(|max_hold| boottime_ns() + nanos(max_hold));
        Watch {
            orders,
            over_at,
            guarded,
            terminal,
            client,
            registered: tether.registered,
            stream: Some(tether.stream),
            attaching: None,
            snapshot_counts: false,
            validity,
            hold: acquired.hold,
            ttl: Duration::from_millis(acquired.ttl_ms),
            valid_until: acquired.valid_until_boottime_ns,
            jeopardy: acquired.state == HoldState::Jeopardy,
            lost: None,
            blank_since: None,
            program: None,
            stage: Stage::Running,
            ended: false,
            deserted: false,
            untouchable: Vec::new(),
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// When the system refuses what cannot be done without; the command is then killed.
    pub(super) async fn run(mut self, signals: &mut Signals) -> io::Result<Ending> {
        match self.watch(signals).await {
            Ok(()) => {}
            Err(error) => {
                self.signal_all(&[Signal::SIGKILL]);
                return Err(error);
            }
        }
        if self.stage != Stage::Running {
            // Members of the group that outlived the first process without holding on to the tether.
            self.guarded.signal(Signal::SIGKILL);
        }
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.guarded.group());
        }
        let left_nothing = self.guarded.left_nothing();
        let status = self.guarded.reap()?;
        // It hid those who ended after it.
        self.reap_orphans();
        let stopped = self.stage != Stage::Running;
        Ok(Ending { status, stopped, left_nothing, stream: self.stream })
    }

    async fn watch(&mut self, signals: &mut Signals) -> io::Result<()> {
        let mut alarm = Alarm::new()?;
        loop {
            self.look_at_the_child()?;
            alarm.set(self.act())?;
            if self.is_over() {
                return Ok(());
            }
            let news = {
                let Watch { stream, attaching, validity, guarded, ended, deserted, .. } = self;
                tokio::select! {
                    biased;
                    () = alarm.rung() => News::Look,
                    signal = signals.next() => News::Signal(signal),
                    event = next_event(stream) => News::Event(event),
                    tether = attached(attaching) => News::Attached(Box::new(tether)),
                    () = guarded.last_one_ended(), if *ended && !*deserted => News::Deserted,
                    () = validity.changed() => News::Look,
                }
            };
            match news {
                News::Look => {}
                News::Signal(signal) => self.take_signal(signal),
                News::Event(Some(Ok(received))) => self.take_event(&received.event),
                News::Event(_) => self.attach(),
                News::Attached(result) => self.take_tether(*result),
                News::Deserted => self.deserted = true,
            }
        }
    }

    /// True if the command has ended, and, when it was stopped, whatever it had started, too.
    fn is_over(&self) -> bool {
        if !self.ended || self.stage == Stage::Running {
            return self.ended;
        }
        // A process that was not seen because it moved meanwhile is seen the second time.
        match (self.family(), self.family()) {
            (Some(first), Some(second)) => first.is_empty() && second.is_empty(),
            _ => self.guarded.left_nothing() || self.stage == Stage::Killed,
        }
    }

    /// The command and all that it has started, but those whom nobody here may kill.
    fn family(&self) -> Option<Vec<Member>> {
        let program = self.program.as_ref().and_then(|program| i32::try_from(program.id()).ok());
        let mut family = family::living(program.map(Pid::from_raw))?;
        family.retain(|member| !self.untouchable.contains(&member.pid));
        Some(family)
    }

    /// Sends a signal to the command's process group, and to what has left that.
    fn signal_all(&mut self, signals: &[Signal]) {
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
                    self.orders.what
                ));
            }
        }
    }

    /// Does what is due, and says when to look again.
    fn act(&mut self) -> Option<u64> {
        let news_at = self.read_validity();
        loop {
            let now = boottime_ns();
            let program_ended =
                self.program.as_mut().is_none_or(|program| !matches!(program.try_wait(), Ok(None)));
            let action = decide(
                now,
                &View {
                    reaction: self.orders.reaction,
                    kill_after: self.orders.kill_after,
                    ttl: self.ttl,
                    valid_until: self.valid_until,
                    over_at: self.over_at,
                    jeopardy: self.jeopardy,
                    lost: self.lost.is_some(),
                    program_ended,
                    stage: self.stage,
                },
            );
            match action {
                Action::Wait(_) if self.stage == Stage::Killed => {
                    // Processes that were started meanwhile.
                    self.signal_all(&[Signal::SIGKILL]);
                    return Some(now + KILL_AGAIN_NS);
                }
                Action::Wait(at) => return at.into_iter().chain(news_at).min(),
                Action::StartProgram => {
                    self.warn();
                    self.start_program();
                    self.stage = Stage::Program { since: now };
                }
                Action::Term => {
                    // A stopped process takes no other signal but SIGKILL.
                    self.signal_all(&[Signal::SIGTERM, Signal::SIGCONT]);
                    let since = match self.stage {
                        Stage::Program { since } => since,
                        _ => now,
                    };
                    self.warn();
                    self.stage = Stage::Terminated { since };
                }
                Action::Kill => {
                    self.signal_all(&[Signal::SIGKILL]);
                    self.warn();
                    self.stage = Stage::Killed;
                }
            }
        }
    }

    /// Takes over what is known now; returns when a page without valid-until is to be believed even
    /// though no event says why.
    fn read_validity(&mut self) -> Option<u64> {
        if self.lost.is_some() {
            // The valid-until that was known before counts.
            return None;
        }
        match self.validity.read() {
            Reading::Until(instant) => {
                self.valid_until = instant;
                self.blank_since = None;
                None
            }
            Reading::Ended => {
                let now = boottime_ns();
                let news_at = *self.blank_since.get_or_insert(now) + NEWS_MAX_NS;
                if self.stream.is_some() && now < news_at {
                    return Some(news_at);
                }
                self.lose("ended");
                None
            }
        }
    }

    fn look_at_the_child(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        match self.guarded.look()? {
            Change::None => {}
            Change::Ended => self.ended = true,
            Change::Stopped(signal) => {
                let by_terminal = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
                let by_terminal = by_terminal.iter().any(|stop| *stop as i32 == signal);
                if self.stage == Stage::Running && (by_terminal || self.terminal.is_some()) {
                    self.stop_with_the_child();
                }
            }
        }
        Ok(())
    }

    /// Gives the terminal back to the shell and stops, as the shell expects of a stopped job. A
    /// stopped command acts as little as a dead one, so nothing need be enforced meanwhile.
    fn stop_with_the_child(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.guarded.group());
        }
        kernel::stop_own_group();
        // The hold may have been lost in the meantime: first the order to stop, then to go on.
        self.act();
        self.go_on();
    }

    fn go_on(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.lend(self.guarded.group());
        }
        self.guarded.signal(Signal::SIGCONT);
    }

    fn reap_orphans(&mut self) {
        let program = self.program.as_mut().and_then(|program| match program.try_wait() {
            Ok(None) => i32::try_from(program.id()).ok().map(Pid::from_raw),
            _ => None,
        });
        kernel::reap_orphans(|pid| pid == self.guarded.group() || Some(pid) == program);
    }

    fn take_signal(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCHLD => self.reap_orphans(),
            Signal::SIGCONT => self.go_on(),
            _ => self.guarded.signal(signal),
        }
    }

    fn start_program(&mut self) {
        let reason = match self.lost {
            Some(reason) => reason,
            None if self.max_hold_is_over() => "max_hold",
            None => "jeopardy",
        };
        match (self.orders.start_program)(reason, self.guarded.group().as_raw().unsigned_abs()) {
            Ok(program) => self.program = Some(program),
            Err(error) => say(&format!(
                "{}: the program of --on-lost cannot be started: {error}; give its full path",
                self.orders.what
            )),
        }
    }

    /// True if the command has held for as long as the user lets it.
    fn max_hold_is_over(&self) -> bool {
        self.over_at.is_some_and(|over_at| over_at <= boottime_ns())
    }

    /// Says, once, what happens to the command and why.
    fn warn(&self) {
        if self.stage != Stage::Running {
            return;
        }
        let what = self.orders.what;
        let fate = match self.orders.reaction {
            Reaction::Ignore => "the command goes on, as --on-lost ignore says",
            _ => "the command is stopped",
        };
        match (self.lost, self.orders.max_hold) {
            (None | Some("max_hold"), Some(max_hold)) if self.max_hold_is_over() => {
                let max_hold = humantime::format_duration(max_hold);
                say(&format!("{what}: --max-hold {max_hold} is over: {fate}"));
            }
            (Some(reason), _) => say(&format!("{what}: the hold was lost ({reason}): {fate}")),
            (None, _) => {
                let left = Duration::from_nanos(self.valid_until.saturating_sub(boottime_ns()));
                let left = crate::failure::brief(left);
                say(&format!(
                    "{what}: the hold is not renewed and ends in {left}: {fate}; \
                     see `tenure doctor`"
                ));
            }
        }
    }
}
