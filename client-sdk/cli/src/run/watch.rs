//! The watch over a running command: signals to it, news of its hold, and the clock.

mod attachment;
mod hold;
mod processes;

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use nix::sys::signal::Signal;
use tenure::client::{Client, EventStream};
use tenure::page::boottime_ns;
use tenure::wire::{Acquired, LostReason, Stopped};

use self::attachment::{Attachment, Heard};
use self::hold::Hold;
use self::processes::Processes;
use super::alarm::Alarm;
use super::child::Guarded;
use super::decide::{Action, Reaction, Stage, View, decide, nanos};
use super::kernel;
use super::signals::{Arrival, Signals};
use super::terminal::Terminal;
use super::tether::Tether;
use super::validity::Validity;
use crate::failure::brief;
use crate::output::say;
use crate::show::shown;

/// After SIGKILL, what goes on in spite of it is looked for after so long; then after twice as long each time.
const KILL_AGAIN_MIN_NS: u64 = 20_000_000;
/// The longest time between two such looks: the kernel may be busy with the end of a process, or another user has it.
const KILL_AGAIN_MAX_NS: u64 = 1_000_000_000;

/// Most processes that a line names.
const LEFT_NAMED: usize = 8;

/// How the user's program for a loss is started: with the reason and the command's process id.
pub(super) type StartProgram<'a> = dyn Fn(&str, u32) -> io::Result<Child> + 'a;

/// The part of a watch that is fixed while the command runs.
pub(super) struct Orders<'a> {
    /// `leader/cleanup`, for messages.
    pub(super) what: &'a str,
    pub(super) reaction: Reaction,
    pub(super) kill_after: Duration,
    pub(super) max_hold: Option<Duration>,
    pub(super) progress: Option<Duration>,
    pub(super) start_program: &'a StartProgram<'a>,
}

/// How it ended.
pub(super) struct Ending {
    /// `None` if it goes on without its hold, since this user may not end it.
    pub(super) status: Option<ExitStatus>,
    /// It was stopped because of its hold.
    pub(super) stopped: bool,
    /// The reason, if its hold was not lost before: of a loss the agent knows.
    pub(super) why: Option<Stopped>,
    /// The agent is being stopped: it takes no more calls.
    pub(super) agent_stops: bool,
    /// Nothing that it left behind still holds on to the tether.
    pub(super) left_nothing: bool,
    /// What it left behind.
    pub(super) leftovers: BTreeMap<u32, String>,
    /// Kept open to the end: the hold must not end before the caller says so.
    pub(super) stream: Option<EventStream>,
}

impl Ending {
    /// Some of what the command left behind.
    pub(super) fn named_leftovers(&self) -> BTreeMap<u32, String> {
        let some = self.leftovers.iter().take(LEFT_NAMED);
        some.map(|(pid, program)| (*pid, program.clone())).collect()
    }

    /// How many there are besides.
    pub(super) fn more_leftovers(&self) -> u64 {
        self.leftovers.len().saturating_sub(LEFT_NAMED) as u64
    }
}

/// Watches one command. Takes signals, events and time; ends when the command has ended, and, when
/// it was stopped, all that it had started as well.
pub(super) struct Watch<'a> {
    orders: Orders<'a>,
    /// When the command has held for as long as the user lets it.
    over_at: Option<u64>,
    processes: Processes<'a>,
    attachment: Attachment,
    hold: Hold,
    stage: Stage,
    kill_again_ns: u64,
    why_stopped: Option<Stopped>,
    /// The agent has said that it is being stopped, and no next one has answered since.
    agent_stops: bool,
}

/// The reason for which the watch woke up.
enum News {
    Signal(Arrival),
    Heard(Heard),
    Look,
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
        Watch {
            over_at: orders.max_hold.map(|max_hold| boottime_ns() + nanos(max_hold)),
            processes: Processes::new(orders.what, guarded, terminal),
            attachment: Attachment::new(client, tether),
            hold: Hold::new(acquired, validity),
            stage: Stage::Running,
            kill_again_ns: KILL_AGAIN_MIN_NS,
            why_stopped: None,
            agent_stops: false,
            orders,
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// When the system refuses what cannot be done without; the command is then killed.
    pub(super) async fn run(mut self, signals: &mut Signals) -> io::Result<Ending> {
        if let Err(error) = self.watch(signals).await {
            self.processes.signal_all(&[Signal::SIGKILL]);
            return Err(error);
        }
        let stopped = self.stage != Stage::Running;
        if stopped {
            // Members of the group that outlived the first process without holding on to the tether.
            self.processes.signal(Signal::SIGKILL);
        }
        let (status, left_nothing) = self.processes.finish()?;
        let leftovers = if left_nothing { BTreeMap::new() } else { self.processes.leftovers() };
        let (why, agent_stops) = (self.why_stopped, self.agent_stops);
        let stream = self.attachment.into_stream();
        Ok(Ending { status, stopped, why, agent_stops, left_nothing, leftovers, stream })
    }

    async fn watch(&mut self, signals: &mut Signals) -> io::Result<()> {
        let mut alarm = Alarm::new()?;
        loop {
            if let Some(stop) = self.processes.look()?
                && self.stage == Stage::Running
            {
                // The shell takes the terminal. A stopped command acts as little as a dead one, so that nothing need be
                // enforced meanwhile. SIGCONT is heard afterwards: after the order to stop, if the hold was lost.
                kernel::stop_by(stop, || self.processes.command_is_stopped());
                self.act();
                // What stopped the command has stopped this process: it is not passed on once more.
                while let Some(arrival) = signals.waiting().await {
                    if arrival.signal != Signal::SIGTSTP {
                        self.take_signal(arrival);
                    }
                }
            }
            alarm.set(self.act())?;
            if self.is_over() {
                return Ok(());
            }
            let news = tokio::select! {
                biased;
                () = alarm.rung() => News::Look,
                arrival = signals.next() => News::Signal(arrival),
                heard = self.attachment.next() => News::Heard(heard),
                () = self.processes.deserted() => News::Look,
                () = self.hold.changed() => News::Look,
            };
            match news {
                News::Look => {}
                News::Signal(arrival) => self.take_signal(arrival),
                News::Heard(heard) => self.take(heard),
            }
        }
    }

    /// True if the command has ended, and, when it was stopped, all that it had started, too; or if what goes on after
    /// the end of its hold cannot be ended from here.
    fn is_over(&self) -> bool {
        let has_ended = self.processes.command_ended();
        if self.stage == Stage::Running {
            return has_ended;
        }
        let is_killed = self.stage == Stage::Killed;
        let is_late = is_killed && boottime_ns() >= self.hold.valid_until;
        (has_ended && self.processes.all_ended(is_killed))
            || (is_late && self.processes.none_can_be_ended())
    }

    /// Does what is due, and says when to look again.
    fn act(&mut self) -> Option<u64> {
        let news_at = self.read_validity();
        loop {
            let now = boottime_ns();
            let action = decide(
                now,
                &View {
                    reaction: self.orders.reaction,
                    kill_after: self.orders.kill_after,
                    ttl: self.hold.ttl,
                    lasts: self.hold.lasts,
                    valid_until: self.hold.valid_until,
                    over_at: self.over_at,
                    jeopardy: self.hold.jeopardy,
                    lost: self.hold.lost().is_some(),
                    program_ended: self.processes.program_ended(),
                    stage: self.stage,
                },
            );
            match action {
                Action::Wait(_) if self.stage == Stage::Killed => {
                    // Processes that were started meanwhile.
                    self.processes.signal_all(&[Signal::SIGKILL]);
                    let again_at = now + self.kill_again_ns;
                    self.kill_again_ns = KILL_AGAIN_MAX_NS.min(self.kill_again_ns * 2);
                    return Some(again_at);
                }
                Action::Wait(at) => return at.into_iter().chain(news_at).min(),
                Action::StartProgram => {
                    self.warn();
                    self.start_program();
                    self.stage = Stage::Program { since: now };
                }
                Action::Term => {
                    // A stopped process takes no other signal but SIGKILL.
                    self.processes.signal_all(&[Signal::SIGTERM, Signal::SIGCONT]);
                    let since = match self.stage {
                        Stage::Program { since } => since,
                        _ => now,
                    };
                    self.warn();
                    self.stage = Stage::Terminated { since };
                }
                Action::Kill => {
                    self.processes.signal_all(&[Signal::SIGKILL]);
                    self.warn();
                    self.stage = Stage::Killed;
                }
            }
        }
    }

    /// Takes over what is known now; returns when a page without valid-until is to be believed even
    /// though no event says why.
    fn read_validity(&mut self) -> Option<u64> {
        let believed_at = self.hold.look()?;
        if self.attachment.is_open() && boottime_ns() < believed_at {
            return Some(believed_at);
        }
        self.lose("ended");
        None
    }

    fn lose(&mut self, reason: &'static str) {
        if self.hold.lose(reason) && self.orders.reaction == Reaction::Ignore {
            self.warn();
        }
    }

    /// Passes a signal on to the command.
    pub(super) fn take_signal(&mut self, arrival: Arrival) {
        match arrival.signal {
            Signal::SIGCHLD => self.processes.reap_orphans(),
            _ if self.processes.heard(arrival) => {}
            signal => self.processes.signal(signal),
        }
    }

    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Event(event) => {
                let snapshot_counts = self.attachment.snapshot_counts();
                if let Some(reason) = self.hold.take_event(&event, snapshot_counts) {
                    self.agent_stops |= reason == LostReason::AgentStopping.as_str();
                    self.lose(reason);
                }
            }
            // The page is believed at once now.
            Heard::Broken => {}
            Heard::AttachedAgain => {
                self.agent_stops = false;
                self.hold.attached_again(self.attachment.registered());
            }
            Heard::Detached(reason) => self.lose(reason),
        }
    }

    fn start_program(&mut self) {
        let reason = match self.hold.lost() {
            Some(reason) => reason,
            None if self.max_hold_is_over() => "max_hold",
            None => "jeopardy",
        };
        match (self.orders.start_program)(reason, self.processes.command()) {
            Ok(program) => self.processes.program_started(program),
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
    fn warn(&mut self) {
        if self.stage != Stage::Running {
            return;
        }
        let what = self.orders.what;
        let fate = match self.orders.reaction {
            Reaction::Ignore => "the command goes on, as --on-lost ignore says",
            _ => "the command is stopped",
        };
        match (self.hold.lost(), self.orders.max_hold) {
            (None | Some("max_hold"), Some(max_hold)) if self.max_hold_is_over() => {
                let max_hold = humantime::format_duration(max_hold);
                say(&format!("{what}: --max-hold {max_hold} is over: {fate}"));
                self.why_stopped = Some(Stopped::MaxHold);
            }
            (Some("stalled"), _) if let Some(progress) = self.orders.progress => {
                let progress = humantime::format_duration(progress);
                say(&format!(
                    "{what}: the hold was lost (stalled): no `tenure beat` for --progress \
                     {progress}: {fate}"
                ));
            }
            (Some(reason), _) => {
                let reason = self.hold.lost_words().unwrap_or(reason);
                say(&format!("{what}: the hold was lost ({reason}): {fate}"));
            }
            (None, _) => {
                self.why_stopped = Some(Stopped::NotRenewed);
                let left =
                    Duration::from_nanos(self.hold.valid_until.saturating_sub(boottime_ns()));
                let left = brief(left);
                let why = self.why_not_renewed().map(|why| format!(" ({why})")).unwrap_or_default();
                say(&format!(
                    "{what}: the hold is not renewed{why} and ends in {left}: {fate}; \
                     see `tenure doctor`"
                ));
            }
        }
    }

    /// What keeps the hold from being renewed, and for how long, as far as it is known here.
    fn why_not_renewed(&self) -> Option<String> {
        let ago = |since| brief(Duration::from_nanos(boottime_ns().saturating_sub(since)));
        if let Some((socket, since)) = self.attachment.away() {
            let socket = shown(&socket.display().to_string());
            return Some(format!("no agent has answered at {socket} for {}", ago(since)));
        }
        let (since, cause) = self.hold.doubt.as_ref()?;
        Some(format!("the store has confirmed no renewal for {}: {cause}", ago(*since)))
    }
}
