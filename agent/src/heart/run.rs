//! The heart's loop.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::mpsc;

use super::effects::Effects;
use super::handle::{Inbox, Message, Probe};
use super::lateness::Lateness;
use super::pace::{self, Watchfulness};
use super::spawn::Control;
use super::watches::{Exit, Watches};
use crate::host::clock::{self, Boottime};
use crate::host::page::Pages;
use crate::host::service_manager::Notifier;
use crate::host::timer::Timer;
use crate::journal::{CommitError, Database};
use crate::keeper::journal::Saved;
use crate::keeper::{Command, Keeper, Note, Request, Settings};
use crate::model::{self, CallId, SessionId};
use crate::telemetry::{Metrics, Recorder, Repeats};
use crate::upstream::{Report, Upstream};

/// Client messages per turn; timers get their turn in between.
const MESSAGES_PER_TURN: usize = 64;
/// Ended processes per turn.
const EXITS_PER_TURN: usize = 256;
/// Upstream reports between two looks at the clients.
const REPORTS_PER_TURN: usize = 4096;
/// A jump of BOOTTIME against MONOTONIC by more than this was a sleep of the machine.
const SLEEP_MIN: Duration = Duration::from_millis(100);
/// How long the database may lag behind what was told; most holds of a busy host come and go meanwhile.
const COMMIT_DELAY: Duration = Duration::from_millis(5);
/// How long a stop waits for the upstream and for guarded work.
const STOP_PATIENCE: Duration = Duration::from_millis(4500);

/// What the heart is made of.
pub struct Parts {
    /// Bounds and defaults.
    pub settings: Settings,
    /// From the operating system's generator.
    pub seed: [u8; 32],
    /// What the journal knows of this boot.
    pub saved: Saved,
    /// The journal.
    pub journal: Rc<RefCell<Database>>,
    /// The pages.
    pub pages: Pages,
    /// Where truth is kept.
    pub upstream: Box<dyn Upstream>,
    /// Metrics, shared with the API.
    pub metrics: Arc<Metrics>,
    /// Who keeps handles on processes for the next agent.
    pub notifier: Notifier,
    /// Handles on processes that were kept for this agent.
    pub kept: HashMap<SessionId, OwnedFd>,
}

/// What woke the loop up.
#[derive(Default)]
struct Woken {
    report: Option<Report>,
    exit: Option<Exit>,
    message: Option<Message>,
    control: Option<Control>,
    handles_gone: bool,
}

/// A running heart.
///
/// Takes messages of the API, exits of watched processes, reports of the upstream and controls of the
/// lifecycle; emits replies, events, page writes and log lines; ends after a stop or a restart.
pub(super) struct Run {
    keeper: Keeper,
    upstream: Box<dyn Upstream>,
    journal: Rc<RefCell<Database>>,
    effects: Effects,
    inbox: Inbox,
    exits: mpsc::UnboundedReceiver<Exit>,
    control: mpsc::Receiver<Control>,
    timer: Timer,
    /// What the timer is set to.
    armed: Option<Boottime>,
    /// Whether the last turn had something from a client.
    served: bool,
    watchfulness: Watchfulness,
    /// Commands of this turn that wait for the journal.
    deferred: Vec<Command>,
    /// Calls of this turn that wait for the journal and the pages: what a release gives to another
    /// host must be off the page of its former holder first.
    outgoing: Vec<(CallId, model::Request)>,
    /// Notes of this turn, which come after everything else.
    notes: Vec<Note>,
    suspended: Duration,
    stop_by: Option<Boottime>,
    /// When the database is to be brought up to date.
    commit_by: Option<Boottime>,
    journal_errors: Repeats,
}

impl Run {
    pub(super) fn new(
        parts: Parts,
        inbox: Inbox,
        control: mpsc::Receiver<Control>,
    ) -> io::Result<Run> {
        let now = clock::now();
        let (watches, exits) = Watches::new(parts.notifier, parts.kept);
        let mut keeper = Keeper::new(parts.settings, parts.seed, now);
        keeper.adopt(now, parts.saved);
        let effects = Effects {
            pages: parts.pages,
            replies: HashMap::new(),
            streams: HashMap::new(),
            cut_off: Vec::new(),
            watches,
            registrants: HashMap::new(),
            lateness: Lateness::default(),
            recorder: Recorder::new(Arc::clone(&parts.metrics)),
            metrics: parts.metrics,
        };
        inbox.pace.set_answers_here(parts.upstream.shares_journal());
        let mut run = Run {
            keeper,
            upstream: parts.upstream,
            journal: parts.journal,
            effects,
            inbox,
            exits,
            control,
            timer: Timer::new()?,
            armed: None,
            served: false,
            watchfulness: Watchfulness::default(),
            deferred: Vec::new(),
            outgoing: Vec::new(),
            notes: Vec::new(),
            suspended: clock::suspended_total(),
            stop_by: None,
            commit_by: None,
            journal_errors: Repeats::new(),
        };
        run.settle();
        run.finish_turn();
        let strays = run.effects.watches.forget_strays();
        if strays > 0 {
            tracing::info!(strays, "let go of kept processes of sessions that are gone");
        }
        match run.effects.pages.remove_strays() {
            Ok(0) => {}
            Ok(pages) => tracing::info!(pages, "removed pages of sessions that are gone"),
            Err(error) => tracing::warn!(%error, "cannot look for pages of sessions that are gone"),
        }
        Ok(run)
    }

    pub(super) async fn run(mut self) {
        loop {
            let woken = self.wait().await;
            if self.turn(woken) {
                return;
            }
        }
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) -> Woken {
        let timeouts = [self.keeper.poll_timeout(), self.upstream.poll_timeout()];
        let due = timeouts.into_iter().chain([self.stop_by, self.commit_by]);
        let due = due.flatten().min();
        // Deadlines mostly move away: to wake up once too early costs less than to set the timer
        // at every move.
        if due.is_some_and(|due| self.armed.is_none_or(|armed| due < armed)) {
            self.timer.set(due);
            self.armed = due;
        }
        if self.served && !self.effects.has_news() && !self.upstream.is_calling() {
            let Inbox { messages, pace, .. } = &mut self.inbox;
            let next = self.watchfulness.look(pace, || messages.try_recv().ok());
            if next.is_some() {
                return Woken { message: next, ..Woken::default() };
            }
        }
        if self.upstream.is_calling() && self.inbox.pace.is_alone() {
            let until = clock::now() + pace::UPSTREAM_MAX;
            while clock::now() < until {
                let looked = poll_fn(|context| Poll::Ready(self.poll_woken(context))).await;
                if let Poll::Ready(woken) = looked {
                    return woken;
                }
                // Whoever is to do what is looked for may need this very core; and the runtime must
                // look at its sockets.
                std::thread::yield_now();
                tokio::task::yield_now().await;
            }
        }
        poll_fn(|context| self.poll_woken(context)).await
    }

    fn poll_woken(&mut self, context: &mut Context<'_>) -> Poll<Woken> {
        let mut woken = Woken::default();
        let fired = self.timer.poll_fired(context).is_ready();
        if fired {
            self.armed = None;
        }
        let mut ready = fired || self.effects.has_news();
        if let Poll::Ready(report) = self.upstream.poll_report(context) {
            woken.report = Some(report);
            ready = true;
        }
        if let Poll::Ready(Some(exit)) = self.exits.poll_recv(context) {
            woken.exit = Some(exit);
            ready = true;
        }
        if let Poll::Ready(Some(control)) = self.control.poll_recv(context) {
            woken.control = Some(control);
            ready = true;
        }
        match self.inbox.urgent.poll_recv(context) {
            Poll::Ready(Some(message)) => {
                woken.message = Some(message);
                return Poll::Ready(woken);
            }
            Poll::Ready(None) => woken.handles_gone = true,
            Poll::Pending => {}
        }
        if let Poll::Ready(Some(message)) = self.inbox.messages.poll_recv(context) {
            woken.message = Some(message);
            ready = true;
        }
        if ready { Poll::Ready(woken) } else { Poll::Pending }
    }

    /// One turn; whether it was the last.
    fn turn(&mut self, woken: Woken) -> bool {
        let now = clock::now();
        let suspended = clock::suspended_total();
        let slept = suspended.saturating_sub(self.suspended) > SLEEP_MIN;
        self.suspended = suspended;
        if slept {
            tracing::info!("the machine slept; overdue holds are lost before anything is served");
            self.keeper.handle_wake(now);
        } else if self.keeper.poll_timeout().is_some_and(|due| due <= now) {
            self.keeper.handle_timeout(now);
        }
        if self.upstream.poll_timeout().is_some_and(|due| due <= now) {
            self.upstream.handle_timeout(now);
        }
        if let Some(report) = woken.report {
            self.hear(now, report);
        }
        self.settle();

        for stream in std::mem::take(&mut self.effects.cut_off) {
            self.keeper.handle_stream_closed(now, stream);
        }
        for session in std::mem::take(&mut self.effects.watches.unwatched) {
            self.keeper.handle_unwatched(now, session);
        }
        if let Some(exit) = woken.exit {
            self.keeper.handle_exit(now, exit.session, exit.status);
        }
        for _ in 0..EXITS_PER_TURN {
            let Ok(exit) = self.exits.try_recv() else { break };
            self.keeper.handle_exit(now, exit.session, exit.status);
        }
        self.settle();

        self.served = woken.message.is_some();
        if let Some(message) = woken.message {
            self.receive(now, message);
        }
        for _ in 0..MESSAGES_PER_TURN {
            let next = self.inbox.urgent.try_recv().or_else(|_| self.inbox.messages.try_recv());
            let Ok(message) = next else { break };
            self.receive(now, message);
        }
        let restarting = woken.control.is_some_and(|control| self.steer(now, control));
        self.settle();
        self.finish_turn();
        let ending = restarting || self.stop_is_over(now);
        if ending || self.commit_by.is_some_and(|due| due <= now) {
            self.commit();
        }
        ending
    }

    fn receive(&mut self, now: Boottime, message: Message) {
        match message {
            Message::Request { ticket, caller, request, reply } => {
                self.effects.replies.insert(ticket, reply);
                let peer = caller.peer;
                if matches!(*request, Request::Register(_)) {
                    self.effects.registrants.insert(ticket, caller);
                }
                self.keeper.handle_request(now, ticket, peer, *request);
            }
            Message::Cancel(ticket) => {
                self.effects.replies.remove(&ticket);
                self.keeper.handle_cancel(now, ticket);
            }
            Message::OpenStream { stream, peer, target, events, reply } => {
                self.effects.streams.insert(stream, events);
                let opened = self.keeper.open_stream(now, stream, peer, target);
                if opened.is_err() {
                    self.effects.streams.remove(&stream);
                }
                // A caller that has gone closes its stream.
                let _ = reply.send(opened);
            }
            Message::CloseStream(stream) => {
                self.effects.streams.remove(&stream);
                self.keeper.handle_stream_closed(now, stream);
            }
            Message::Probe(reply) => {
                let health = self.upstream.health();
                let (sessions, holds) = (self.keeper.count_sessions(), self.keeper.count_holds());
                self.effects.metrics.set_present(sessions, &holds);
                self.effects.metrics.set_upstream_state(health.state);
                let lateness = self.effects.lateness.status();
                // A caller that has gone wants no answer.
                let _ = reply.send(Probe { health, lateness, sessions, holds });
            }
            Message::Examine(reply) => {
                // A caller that has gone wants no examination.
                let _ = reply.send(self.upstream.examine());
            }
        }
        self.settle();
    }

    /// Whether the loop is to end after this turn.
    fn steer(&mut self, now: Boottime, control: Control) -> bool {
        match control {
            Control::Stop => {
                self.keeper.handle_stop(now);
                self.stop_by = Some(now + STOP_PATIENCE);
                false
            }
            Control::Restart => {
                self.keeper.handle_restart(now);
                true
            }
            Control::Reload(settings) => {
                self.keeper.reload(*settings);
                false
            }
        }
    }

    fn stop_is_over(&mut self, now: Boottime) -> bool {
        let Some(stop_by) = self.stop_by else { return false };
        if self.keeper.stopped() {
            self.upstream.close();
            return true;
        }
        if now < stop_by {
            return false;
        }
        tracing::warn!(
            "stopping although not everything could be released; the rest expires upstream"
        );
        true
    }

    /// Takes what the keeper wants done, and what the upstream has to say, until both are silent.
    /// Whatever is to be told, to clients or to an upstream beyond this process, waits until the
    /// journal is written.
    fn settle(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for heard in 0.. {
            while let Some(command) = self.keeper.poll_command() {
                match command {
                    Command::Call { call, request } if self.upstream.shares_journal() => {
                        self.upstream.submit(clock::now(), call, request);
                    }
                    Command::Call { call, request } => self.outgoing.push((call, request)),
                    Command::Persist(entry) => self.journal.borrow_mut().write(entry),
                    told => self.deferred.push(told),
                }
            }
            if heard == REPORTS_PER_TURN {
                return;
            }
            match self.upstream.poll_report(&mut context) {
                Poll::Ready(report) => self.hear(clock::now(), report),
                Poll::Pending => return,
            }
        }
    }

    fn hear(&mut self, now: Boottime, report: Report) {
        match report {
            Report::Answer { call, sent_at, result } => {
                let failure = result.as_ref().err();
                self.effects.metrics.upstream_answered(now.since(sent_at), failure);
                self.keeper.handle_answer(now, call, sent_at, result);
            }
            Report::Change(change) => self.keeper.handle_change(now, change),
            Report::FeedLost => self.keeper.handle_feed_lost(now),
            Report::Reset => self.keeper.handle_reset(now),
        }
    }

    /// Holds go on without their journal: they would be lost if the agent were killed now, which is
    /// better than to lose them at once.
    fn journal_failed(&mut self, error: &CommitError) {
        if let Some(withheld) = self.journal_errors.admit() {
            tracing::error!(%error, withheld, "cannot write the journal; a restart would lose holds");
        }
    }

    /// Makes the turn survive the agent, then tells clients, then calls the upstream.
    fn finish_turn(&mut self) {
        let secured = self.journal.borrow_mut().secure();
        if let Err(error) = secured {
            self.journal_failed(&error);
        }
        for command in self.deferred.drain(..) {
            match command {
                Command::Note(note) => self.notes.push(note),
                told => self.effects.perform(told),
            }
        }
        for (call, request) in self.outgoing.drain(..) {
            self.upstream.submit(clock::now(), call, request);
        }
        // Nobody waits for the log.
        for note in self.notes.drain(..) {
            self.effects.note(&note);
        }
        self.effects.registrants.clear();
        if self.commit_by.is_none() && self.journal.borrow().is_behind() {
            self.commit_by = Some(clock::now() + COMMIT_DELAY);
        }
    }

    /// Brings the database up to date, a moment after what it is to know was told.
    fn commit(&mut self) {
        self.commit_by = None;
        let committed = self.journal.borrow_mut().commit();
        if let Err(error) = committed {
            self.journal_failed(&error);
        }
    }
}
