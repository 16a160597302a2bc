//! The heart's loop.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_core::keeper::journal::Saved;
use tenure_core::keeper::{Keeper, Settings};
use tenure_core::model::SessionId;
use tenure_core::time::Boottime;
use tenure_core::turn::{Standstill, Standstills, Turn};
use tenure_host::clock;
use tenure_host::page::Pages;
use tenure_host::service_manager::Notifier;
use tenure_host::timer::Timer;
use tenure_stores::Upstream;
use tenure_stores::journal::{Journal, LiveRows};
use tokio::sync::mpsc;

use super::effects::Effects;
use super::handle::Inbox;
use super::latency::Timing;
use super::looking::{Rhythm, give_way};
use super::shell::{Shell, Woken};
use super::spawn::Control;
use super::watches::Watches;
use crate::telemetry::{Metrics, Recorder, Repeats};

/// A jump of BOOTTIME against MONOTONIC by more than this was a sleep of the machine.
const SLEEP_MIN: Duration = Duration::from_millis(100);
/// A turn that is late by this much is told of.
const LATE_TOLD: Duration = Duration::from_secs(1);

/// Parts of the heart.
pub struct Parts {
    /// Bounds and defaults.
    pub settings: Settings,
    /// From the operating system's generator.
    pub seed: [u8; 32],
    /// The rows of the journal.
    pub saved: Saved,
    /// The journal.
    pub journal: Rc<RefCell<Journal>>,
    /// The pages.
    pub pages: Pages,
    pub upstream: Box<dyn Upstream>,
    /// Metrics, shared with the API.
    pub metrics: Arc<Metrics>,
    /// Keeps handles on processes for the next agent.
    pub notifier: Notifier,
    /// Handles on processes that were kept for this agent.
    pub kept: HashMap<SessionId, OwnedFd>,
}

/// A running heart.
///
/// Takes messages of the API, exits of watched processes, reports of the upstream and controls of the
/// lifecycle; emits replies, events, page writes and log lines; ends after a stop or a restart.
pub(super) struct Run {
    keeper: Keeper,
    turn: Turn,
    shell: Shell,
    control: mpsc::Receiver<Control>,
    timer: Timer,
    /// The instant that the timer is set to.
    armed: Option<Boottime>,
    rhythm: Rhythm,
    suspended: Duration,
    standstills: Standstills,
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
        // Before anything is granted that one of them may still show.
        let known = parts.saved.sessions.iter().map(|session| session.id).collect();
        match parts.pages.remove_strays(&known) {
            Ok(0) => {}
            Ok(pages) => tracing::info!(pages, "removed pages of sessions that are gone"),
            Err(error) => tracing::warn!(%error, "cannot look for pages of sessions that are gone"),
        }
        keeper.adopt(now, parts.saved);
        let effects = Effects {
            pages: parts.pages,
            replies: HashMap::new(),
            streams: HashMap::new(),
            cut_off: Vec::new(),
            undelivered: Vec::new(),
            watches,
            registrants: HashMap::new(),
            timing: Timing::default(),
            recorder: Recorder::new(Arc::clone(&parts.metrics)),
            metrics: parts.metrics,
            page_errors: Repeats::new(),
            turn_began: now,
        };
        inbox.looking.set_answers_here(parts.upstream.shares_journal());
        let mut run = Run {
            keeper,
            turn: Turn::default(),
            shell: Shell {
                upstream: parts.upstream,
                journal: parts.journal,
                effects,
                inbox,
                exits,
                woken: Woken::default(),
                stop_by: None,
                restarting: false,
                journal_errors: Repeats::new(),
            },
            control,
            timer: Timer::new()?,
            armed: None,
            rhythm: Rhythm::default(),
            suspended: clock::suspended_total(),
            standstills: Standstills::new(now),
        };
        run.turn.flush(&mut run.keeper, &mut run.shell);
        run.tend_journal(now);
        let strays = run.shell.effects.watches.forget_strays();
        if strays > 0 {
            tracing::info!(strays, "let go of kept processes of sessions that are gone");
        }
        Ok(run)
    }

    pub(super) async fn run(mut self) {
        loop {
            self.wait().await;
            if self.take_turn() {
                return;
            }
            if self.turn.has_more() || self.shell.effects.has_missing_pages() {
                // Turns that follow without waiting must not keep the runtime from its sockets.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        let timeouts = [self.keeper.poll_timeout(), self.shell.upstream.poll_timeout()];
        let journal = self.shell.journal.borrow().poll_timeout();
        let due = timeouts.into_iter().chain([self.shell.stop_by, journal]).flatten().min();
        let due = self.standstills.wait(due, self.keeper.count_sessions() > 0);
        self.arm(due);
        let look_until = self.rhythm.wait(&self.shell.inbox.looking, clock::now());
        while look_until.is_some_and(|until| clock::now() < until) {
            if poll_fn(|context| Poll::Ready(self.poll_woken(context).is_ready())).await {
                return;
            }
            give_way().await;
        }
        poll_fn(|context| {
            loop {
                if self.poll_woken(context).is_ready() {
                    return Poll::Ready(());
                }
                // A call that ended without a report may have brought the upstream's next deadline nearer.
                if !self.arm(self.shell.upstream.poll_timeout()) {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    /// Sets the timer to an instant before the one that it is set to; whether it was. Deadlines mostly move
    /// away: to wake up once too early costs less than to set the timer at every move.
    fn arm(&mut self, due: Option<Boottime>) -> bool {
        let is_sooner = due.is_some_and(|due| self.armed.is_none_or(|armed| due < armed));
        if is_sooner {
            self.timer.set(due);
            self.armed = due;
        }
        is_sooner
    }

    /// Looks for something to do. What the last turn had no time for is there still.
    fn poll_woken(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let fired = self.timer.poll_fired(context).is_ready();
        if fired {
            self.armed = None;
        }
        let has_news = self.has_news();
        let Shell { woken, upstream, exits, inbox, .. } = &mut self.shell;
        if woken.report.is_none()
            && let Poll::Ready(report) = upstream.poll_report(context)
        {
            woken.report = Some(report);
        }
        if woken.exit.is_none()
            && let Poll::Ready(exit) = exits.poll_recv(context)
        {
            woken.exit = exit;
        }
        if woken.control.is_none()
            && let Poll::Ready(control) = self.control.poll_recv(context)
        {
            woken.control = control;
        }
        if woken.message.is_none()
            && let Poll::Ready(message) = inbox.urgent.poll_recv(context)
        {
            woken.message = message;
        }
        if woken.message.is_none()
            && let Poll::Ready(message) = inbox.messages.poll_recv(context)
        {
            woken.message = message;
        }
        if fired || has_news || woken.has_any() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// True if there is something to do that nothing else wakes up for.
    fn has_news(&self) -> bool {
        self.shell.effects.has_news() || self.turn.has_more()
    }

    /// One turn; whether it was the last.
    fn take_turn(&mut self) -> bool {
        let now = clock::now();
        self.rhythm.wake(self.shell.woken.message.is_some(), now);
        self.shell.effects.turn_began = now;
        let suspended = clock::suspended_total();
        let slept = suspended.saturating_sub(self.suspended);
        self.suspended = suspended;
        self.count_out(now);
        if slept > SLEEP_MIN {
            tracing::info!("the machine slept; overdue holds are lost before anything is served");
            self.keeper.handle_wake(now, slept);
        }
        self.turn.take(&mut self.keeper, &mut self.shell);
        self.shell.effects.registrants.clear();
        self.shell.effects.renew_pages();
        let ending = self.shell.restarting || self.stop_is_over(now);
        if ending {
            self.turn.flush(&mut self.keeper, &mut self.shell);
            // The next agent goes on with the pages that are there.
            while self.shell.effects.has_missing_pages() {
                self.shell.effects.renew_pages();
            }
        }
        self.tend_journal(now);
        if ending {
            self.leave_journal(now);
        }
        ending
    }

    /// Counts the time in which the agent stood still out of what programs have promised.
    fn count_out(&mut self, now: Boottime) {
        let Some(Standstill { length, late }) = self.standstills.turn_begins(now) else { return };
        let expired = self.keeper.handle_standstill(now, length);
        if late >= LATE_TOLD {
            let holds = if expired == 1 { "hold" } else { "holds" };
            tracing::warn!(
                "stood still for {:.1} s: {expired} {holds} expired meanwhile",
                length.as_secs_f64()
            );
        }
    }

    fn stop_is_over(&mut self, now: Boottime) -> bool {
        let Some(stop_by) = self.shell.stop_by else { return false };
        if self.keeper.stopped() {
            self.shell.upstream.close();
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

    /// Does what the journal has due, and lets the keeper know whether more can be written down.
    fn tend_journal(&mut self, now: Boottime) {
        let rows = LiveRows::new(&self.keeper, &*self.shell.upstream);
        let notice = self.shell.journal.borrow_mut().tend(now, &rows);
        self.shell.tell(notice);
        self.keeper.set_unrecorded(self.shell.journal.borrow().refusal());
    }

    /// Leaves a whole journal to the next agent, if that can be done.
    fn leave_journal(&mut self, now: Boottime) {
        let rows = LiveRows::new(&self.keeper, &*self.shell.upstream);
        let notice = self.shell.journal.borrow_mut().finish(now, &rows);
        self.shell.tell(notice);
    }
}
