//! One agent: the keeper, the turn, the driver and the chores that ship.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::wire::LostReason;
use tenure_core::keeper::journal::Entry;
use tenure_core::keeper::{
    Command, Keeper, Note, Peer, Quota, Refusal, Reply, Request, Settings, Ticket,
};
use tenure_core::model::{self, CallId};
use tenure_core::time::Boottime;
use tenure_core::turn::{Ending, Shell, Turn};
use tenure_stores::remote::{Dialer, Driver};
use tenure_stores::{Report, Upstream};

use super::backend::{Care, Ear, Model, Outbox};
use super::clock;

/// How long a call waits for its answer, as in the settings.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Turns that an agent takes at one instant, at most.
const TURNS_MAX: usize = 1000;

/// Raised when the driver has something to say.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Agent {
    keeper: Keeper,
    turn: Turn,
    around: Around,
    woken: Arc<Flag>,
    pub(super) ear: Ear,
    pub(super) outbox: Outbox,
    /// The instant of its next turn.
    pub(super) planned: Option<Boottime>,
}

/// The surroundings of a keeper.
struct Around {
    driver: Driver<Model>,
    waker: Waker,
    /// A report that came up after a turn, for the next one.
    report: Option<Report>,
    messages: VecDeque<(Ticket, Request)>,
    replies: Vec<(Ticket, Result<Reply, Refusal>)>,
    lost: u64,
}

impl Agent {
    /// Must be called in a runtime, on which its connections begin.
    pub(super) fn new(number: usize, looks_after_all: bool) -> Agent {
        let ear = Ear::default();
        let outbox = Outbox::default();
        let dialer = Arc::new(Dialer::with_clock(ear.clone(), clock::now));
        // Agents draw it; these must not all begin alike, and must do the same in each run.
        let seed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let model = Model { outbox: Outbox::clone(&outbox), grants: RefCell::default() };
        let driver = Driver::open(&dialer, model, Care::new(seed, looks_after_all), TIMEOUT);
        let settings = Settings {
            host: format!("host {number}").into(),
            poll: Some(Duration::from_secs(1)),
            ..Settings::default()
        };
        let mut key = [7; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let woken = Arc::new(Flag::default());
        let waker = Waker::from(Arc::clone(&woken));
        let (messages, replies) = (VecDeque::new(), Vec::new());
        Agent {
            keeper: Keeper::new(settings, key, clock::now()),
            turn: Turn::default(),
            around: Around { driver, waker, report: None, messages, replies, lost: 0 },
            woken,
            ear,
            outbox,
            planned: None,
        }
    }

    pub(super) fn say(&mut self, ticket: Ticket, request: Request) {
        self.around.messages.push_back((ticket, request));
    }

    /// The agent stops: it releases all it has.
    pub(super) fn stop(&mut self) {
        self.keeper.handle_stop(clock::now());
    }

    /// Holds that were lost, those of an agent that stops not counted.
    pub(super) fn lost(&self) -> u64 {
        self.around.lost
    }

    /// Does all that is to be done at this instant; the replies that came of it.
    pub(super) fn run(&mut self) -> Vec<(Ticket, Result<Reply, Refusal>)> {
        for _ in 0..TURNS_MAX {
            self.woken.0.store(false, Ordering::Relaxed);
            self.turn.take(&mut self.keeper, &mut self.around);
            self.around.report = self.around.poll();
            let is_due = self.due().is_some_and(|due| due <= clock::now());
            let Around { report, messages, .. } = &self.around;
            let has_more = self.turn.has_more() || report.is_some() || !messages.is_empty();
            if !is_due && !has_more && !self.woken.0.load(Ordering::Relaxed) {
                return std::mem::take(&mut self.around.replies);
            }
        }
        panic!("an agent does not come to rest at {:?}", clock::now());
    }

    pub(super) fn due(&self) -> Option<Boottime> {
        let timeouts = [self.keeper.poll_timeout(), self.around.driver.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }
}

impl Around {
    fn poll(&mut self) -> Option<Report> {
        match self.driver.poll_report(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(report) => Some(report),
            Poll::Pending => None,
        }
    }
}

impl Shell for Around {
    type Message = (Ticket, Request);

    fn now(&mut self) -> Boottime {
        clock::now()
    }

    fn next_report(&mut self) -> Option<Report> {
        self.report.take().or_else(|| self.poll())
    }

    fn next_ending(&mut self) -> Option<Ending> {
        None
    }

    fn next_message(&mut self) -> Option<(Ticket, Request)> {
        self.messages.pop_front()
    }

    fn wake_upstream(&mut self, now: Boottime) {
        if self.driver.poll_timeout().is_some_and(|due| due <= now) {
            self.driver.handle_timeout(now);
        }
    }

    fn receive(&mut self, keeper: &mut Keeper, now: Boottime, (ticket, request): Self::Message) {
        let peer =
            Peer { uid: 1000, gid: 1000, process: None, watchable: true, quota: Quota::default() };
        keeper.handle_request(now, ticket, peer, request);
    }

    fn shares_journal(&self) -> bool {
        false
    }

    fn submit(&mut self, call: CallId, request: model::Request) {
        self.driver.submit(clock::now(), call, request);
    }

    fn dispatch(&mut self) {
        self.driver.dispatch();
    }

    fn write(&mut self, _entry: Entry) {}

    fn secure(&mut self) {}

    fn perform(&mut self, command: Command) {
        if let Command::Reply { ticket, reply } = command {
            self.replies.push((ticket, reply));
        }
    }

    fn note(&mut self, note: &Note) {
        if let Note::Lost { reason, .. } = note {
            self.lost += u64::from(*reason != LostReason::AgentStopping);
        }
    }
}
