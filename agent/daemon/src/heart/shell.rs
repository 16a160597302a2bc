//! The surroundings of the keeper in a real agent: the upstream, the journal, clients and
//! processes.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::keeper::journal::Entry;
use tenure_core::keeper::{Command, Keeper, Note, Request};
use tenure_core::model::{self, CallId};
use tenure_core::time::Boottime;
use tenure_core::turn::{self, Ending};
use tenure_host::clock;
use tenure_host::marks::{Stage, mark};
use tenure_stores::journal::{Journal, Notice};
use tenure_stores::{Report, Upstream};
use tokio::sync::mpsc;

use super::effects::{Effects, Outlet};
use super::handle::{Inbox, Message, Probe};
use super::spawn::Control;
use super::watches::Exit;
use crate::telemetry::Repeats;

/// How long a stop waits for the upstream and for guarded work.
const STOP_PATIENCE: Duration = Duration::from_millis(4500);

/// The reasons for which the loop woke up.
#[derive(Default)]
pub(super) struct Woken {
    pub(super) report: Option<Report>,
    pub(super) exit: Option<Exit>,
    pub(super) message: Option<Message>,
    pub(super) control: Option<Control>,
}

impl Woken {
    pub(super) fn has_any(&self) -> bool {
        let Woken { report, exit, message, control } = self;
        report.is_some() || exit.is_some() || message.is_some() || control.is_some()
    }
}

/// A question to the keeper.
pub(super) enum Asked {
    Message(Message),
    Control(Control),
}

pub(super) struct Shell {
    pub(super) upstream: Box<dyn Upstream>,
    pub(super) journal: Rc<RefCell<Journal>>,
    pub(super) effects: Effects,
    pub(super) inbox: Inbox,
    pub(super) exits: mpsc::UnboundedReceiver<Exit>,
    /// The reasons for which the loop woke up, until the turn takes them.
    pub(super) woken: Woken,
    pub(super) stop_by: Option<Boottime>,
    /// The agent is to end, and to leave everything to the next.
    pub(super) restarting: bool,
    pub(super) journal_errors: Repeats,
}

impl Shell {
    /// Tells people what became of the journal.
    pub(super) fn tell(&mut self, notice: Option<Notice>) {
        match notice {
            None => {}
            Some(Notice::Mended) => tracing::info!("{}", Notice::Mended),
            Some(trouble) => {
                if let Some(withheld) = self.journal_errors.admit() {
                    tracing::error!(withheld, "{trouble}");
                }
            }
        }
    }

    fn receive_message(&mut self, keeper: &mut Keeper, now: Boottime, message: Message) {
        match message {
            Message::Request { reply, request, .. }
                if reply.is_closed() && !is_done_anyway(&request) => {}
            Message::Request { ticket, caller, request, reply } => {
                mark(Stage::Taken);
                self.effects.replies.insert(ticket, reply);
                let peer = caller.peer;
                if matches!(*request, Request::Register(..)) {
                    self.effects.registrants.insert(ticket, caller);
                }
                keeper.handle_request(now, ticket, peer, *request);
            }
            Message::Cancel(ticket) => {
                self.effects.replies.remove(&ticket);
                keeper.handle_cancel(now, ticket);
            }
            Message::Undelivered(hold) => keeper.handle_undelivered(now, hold),
            // Its closing may have overtaken it.
            Message::OpenStream { reply, .. } if reply.is_closed() => {}
            Message::OpenStream { stream, peer, target, events, open, reply } => {
                let opened = keeper.open_stream(now, stream, peer, target);
                let opened = opened.map(|()| keeper.is_tether_of_work(stream));
                if let Ok(is_tether) = opened {
                    let outlet = Outlet { events: Some(events), is_tether, _open: open };
                    self.effects.streams.insert(stream, outlet);
                }
                // A caller that has gone closes its stream.
                let _ = reply.send(opened);
            }
            Message::CloseStream(stream) => {
                self.effects.streams.remove(&stream);
                keeper.handle_stream_closed(now, stream);
            }
            Message::Probe(reply) => {
                let mut health = self.upstream.health();
                if let Some(cause) = self.journal.borrow().refusal() {
                    health.grants_nothing.get_or_insert_with(|| cause.to_string());
                    health.last_error.get_or_insert_with(|| cause.to_string());
                }
                let (sessions, holds) = (keeper.count_sessions(), keeper.count_holds());
                self.effects.metrics.set_present(sessions, &holds);
                self.effects.metrics.set_upstream_state(health.state);
                let lateness = self.effects.timing.lateness.status();
                let latency = self.effects.timing.latency.status(now);
                // A caller that has gone wants no answer.
                let _ = reply.send(Probe { health, lateness, latency, sessions, holds });
            }
            Message::EndQuarantine(reply) => {
                // A caller that has gone wanted it all the same.
                let _ = reply.send(self.upstream.end_quarantine(now));
            }
            Message::Examine(reply) => {
                // A caller that has gone wants no examination.
                let _ = reply.send(self.upstream.examine());
            }
        }
    }

    fn steer(&mut self, keeper: &mut Keeper, now: Boottime, control: Control) {
        match control {
            Control::Stop => {
                keeper.handle_stop(now);
                self.stop_by = Some(now + STOP_PATIENCE);
            }
            Control::Restart => {
                keeper.handle_restart(now);
                self.restarting = true;
            }
            Control::Reload(settings) => keeper.reload(*settings),
            Control::Renew { has_moved } => {
                if has_moved {
                    self.journal.borrow_mut().move_on();
                    // The ledger learns of each generation: a start takes up the one that it knows, or the next.
                    self.upstream.handle_timeout(now);
                }
                self.effects.miss_pages();
            }
        }
    }
}

/// True if a request is to be done although its caller has gone, whose cancellation may have overtaken it.
fn is_done_anyway(request: &Request) -> bool {
    match request {
        Request::Release(_)
        | Request::Checkpoint(_)
        | Request::Beat(_)
        | Request::BeatHold { .. }
        | Request::Leftovers(_)
        | Request::Revoke { .. } => true,
        // Nobody would know of what these give.
        Request::Register(..)
        | Request::Acquire(_)
        | Request::Standing(_)
        | Request::History(_)
        | Request::Resources(_)
        | Request::Agents(_)
        | Request::Routes { .. }
        | Request::Status(_)
        | Request::Lookup(_) => false,
    }
}

impl turn::Shell for Shell {
    type Message = Asked;

    fn now(&mut self) -> Boottime {
        clock::now()
    }

    fn next_report(&mut self) -> Option<Report> {
        let report = match self.woken.report.take() {
            Some(report) => report,
            None => match self.upstream.poll_report(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(report) => report,
                Poll::Pending => return None,
            },
        };
        if let Report::Answer { sent_at, result, .. } = &report {
            let now = clock::now();
            let took = now.since(*sent_at);
            // An upstream in the agent itself takes no time to answer.
            if !self.upstream.shares_journal() {
                self.effects.timing.latency.note(now, took);
            }
            self.effects.metrics.upstream_answered(took, result.as_ref().err());
        }
        Some(report)
    }

    fn next_ending(&mut self) -> Option<Ending> {
        if let Some(stream) = self.effects.cut_off.pop() {
            return Some(Ending::Stream(stream));
        }
        if let Some(hold) = self.effects.undelivered.pop() {
            return Some(Ending::Undelivered(hold));
        }
        if let Some(session) = self.effects.watches.unwatched.pop() {
            return Some(Ending::Unwatched(session));
        }
        let exit = self.woken.exit.take().or_else(|| self.exits.try_recv().ok())?;
        Some(Ending::Process { session: exit.session, status: exit.status })
    }

    fn next_message(&mut self) -> Option<Asked> {
        if let Some(control) = self.woken.control.take() {
            return Some(Asked::Control(control));
        }
        let woken = self.woken.message.take();
        let next = woken.or_else(|| self.inbox.urgent.try_recv().ok());
        next.or_else(|| self.inbox.messages.try_recv().ok()).map(Asked::Message)
    }

    fn wake_upstream(&mut self, now: Boottime) {
        if self.upstream.poll_timeout().is_some_and(|due| due <= now) {
            self.upstream.handle_timeout(now);
        }
    }

    fn receive(&mut self, keeper: &mut Keeper, now: Boottime, asked: Asked) {
        match asked {
            Asked::Message(message) => self.receive_message(keeper, now, message),
            Asked::Control(control) => self.steer(keeper, now, control),
        }
    }

    fn shares_journal(&self) -> bool {
        self.upstream.shares_journal()
    }

    fn submit(&mut self, call: CallId, request: model::Request) {
        self.upstream.submit(clock::now(), call, request);
    }

    fn dispatch(&mut self) {
        self.upstream.dispatch();
    }

    fn write(&mut self, entry: Entry) {
        self.journal.borrow_mut().write(entry);
    }

    fn secure(&mut self) {
        let notice = self.journal.borrow_mut().secure(clock::now());
        self.tell(notice);
    }

    fn perform(&mut self, command: Command) {
        self.effects.perform(command);
    }

    fn note(&mut self, note: &Note) {
        self.effects.note(note);
    }
}
