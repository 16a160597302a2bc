//! The loop of the store's thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::model::{
    Answer, CallId, Change, ClaimId, Failure, GoneReason, GrantHint, Resource,
};
use tenure_core::time::Boottime;
use tenure_host::timer::Timer;
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::News;
use tenure_stores::journal::{Journal, LiveRows, Notice};
use tenure_stores::relay::{Carried, Relay, Told};
use tenure_stores::settings::Opened;
use tenure_stores::{Report, Upstream};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

use super::addressees::{Addressees, Interest, To};
use super::news::Teller;
use super::shares::StoreCall;
use super::turns::{Inbox, NextMessage};
use super::{Clock, Listener, Message, Observer, Reply, Sent};

/// Requests that the store has and has not answered; more stay in the queue.
const UNDER_WAY_MAX: usize = 16_384;
/// Messages taken in a turn: what comes of them is written down together.
const MESSAGES_PER_TURN: usize = 256;
/// Reports taken in a turn, at most.
const REPORTS_PER_TURN: usize = 1024;
/// How long an end waits for answers.
const STOP_PATIENCE: Duration = Duration::from_millis(4500);

/// A running store.
///
/// Takes messages, and reports of the store; emits replies and news; ends when it is told to, or nobody
/// can ask any more. In each turn the journal comes before replies and news: nobody is told what could be
/// forgotten.
pub(super) struct Run {
    store: Box<dyn Upstream>,
    journal: Rc<RefCell<Journal>>,
    clock: Clock,
    inbox: Inbox,
    timer: Timer,
    addressees: Addressees,
    teller: Teller,
    replies: HashMap<CallId, Awaited>,
    calls: u64,
    woken: Woken,
    /// The listener to news that nobody asked for.
    observer: Option<Box<dyn Observer>>,
    /// Nobody can ask, or it was told to end.
    stop_by: Option<Boottime>,
}

/// The events that woke the thread up.
#[derive(Default)]
struct Woken {
    /// There is one in the inbox.
    message: bool,
    report: Option<Report>,
    told: Option<Told>,
}

/// The waiter for the answer to a call.
enum Awaited {
    Request {
        reply: Reply,
        /// The principal that asks, and what it is to be told of; `None` for a look.
        interest: Option<(Mark, Interest)>,
        /// The call in the share of that principal.
        sent: Option<StoreCall>,
    },
    /// A stream, until nothing is missed.
    Stream { reply: oneshot::Sender<Listener>, listener: Listener },
}

/// The news of a turn, told once the journal is written.
#[derive(Default)]
struct Outcome {
    answers: Vec<(CallId, Result<Answer, Failure>)>,
    news: Vec<(To, News)>,
    told: Vec<Told>,
    lost: Vec<(ClaimId, GoneReason)>,
    /// Claims that may have ended.
    doubtful: Vec<(ClaimId, Resource)>,
}

impl Run {
    pub(super) fn new(
        opened: Opened,
        clock: Clock,
        inbox: mpsc::Receiver<Message>,
    ) -> io::Result<Run> {
        // A gateway has no keeper: what a journal has of one is another program's, and old.
        let Opened { mut store, journal, saved: _ } = opened;
        if let Some(relay) = store.as_relay() {
            relay.begin();
        }
        let timer = Timer::new()?;
        let teller = Teller::new().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Run {
            store,
            journal,
            clock,
            inbox: Inbox::new(inbox),
            timer,
            addressees: Addressees::default(),
            teller,
            replies: HashMap::new(),
            calls: 0,
            woken: Woken::default(),
            observer: None,
            stop_by: None,
        })
    }

    pub(super) async fn run(mut self) {
        while !self.is_over() {
            self.wait().await;
            self.turn();
            // Turns that follow without waiting must not keep the runtime from its sockets.
            tokio::task::yield_now().await;
        }
        self.store.close();
        let rows = LiveRows::of_store(&*self.store);
        let notice = self.journal.borrow_mut().finish((self.clock)(), &rows);
        tell(notice);
    }

    fn is_over(&self) -> bool {
        let is_done = self.replies.is_empty() && self.inbox.is_empty();
        self.stop_by.is_some_and(|by| is_done || by <= (self.clock)())
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        poll_fn(|context| {
            let Woken { message, report, told } = &mut self.woken;
            let now = (self.clock)();
            *message = self.replies.len() < UNDER_WAY_MAX
                && if self.stop_by.is_none() {
                    self.inbox.poll(context, now)
                } else {
                    self.inbox.has_next(now)
                };
            if let Poll::Ready(next) = self.store.poll_report(context) {
                *report = Some(next);
            }
            *told = self.store.as_relay().and_then(Relay::next_told);
            if *message || report.is_some() || told.is_some() {
                return Poll::Ready(());
            }
            // After the store was polled: a call that ended without a report may have brought its next deadline
            // nearer.
            let journal = self.journal.borrow().poll_timeout();
            let due = [
                self.store.poll_timeout(),
                journal,
                self.teller.poll_timeout(),
                self.inbox.poll_timeout(),
                self.stop_by,
            ];
            self.timer.set(due.into_iter().flatten().min());
            self.timer.poll_fired(context)
        })
        .await;
    }

    fn turn(&mut self) {
        let messages = self.take_messages((self.clock)());
        // No earlier than any of them was sent: an agent counts a ttl from there, and must not count on more
        // than the store gives.
        let now = (self.clock)();
        if self.store.poll_timeout().is_some_and(|due| due <= now) {
            self.store.handle_timeout(now);
        }
        for taken in messages {
            self.receive(now, taken);
        }
        self.store.dispatch();
        let mut outcome = Outcome::default();
        for _ in 0..REPORTS_PER_TURN {
            let Some(report) = self.next_report() else { break };
            self.take(now, report, &mut outcome);
        }
        outcome.told.extend(self.woken.told.take());
        while let Some(told) = self.store.as_relay().and_then(Relay::next_told) {
            outcome.told.push(told);
        }
        tell(self.journal.borrow_mut().secure(now));
        self.give(now, outcome);
        if self.teller.state_is_due(now) {
            self.teller.tell_state(now, &self.store.health());
        }
        let rows = LiveRows::of_store(&*self.store);
        let notice = self.journal.borrow_mut().tend(now, &rows);
        tell(notice);
    }

    /// The messages of a turn. None is taken after the order to end, but those that came before it.
    fn take_messages(&mut self, now: Boottime) -> Vec<NextMessage> {
        if self.stop_by.is_none() {
            self.inbox.fill(now);
        }
        let room = UNDER_WAY_MAX.saturating_sub(self.replies.len()).min(MESSAGES_PER_TURN);
        self.inbox.take(now, room)
    }

    fn next_report(&mut self) -> Option<Report> {
        if let Some(report) = self.woken.report.take() {
            return Some(report);
        }
        match self.store.poll_report(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(report) => Some(report),
            Poll::Pending => None,
        }
    }

    fn receive(&mut self, now: Boottime, NextMessage { message, sent, is_late }: NextMessage) {
        match message {
            Message::Request { reply, .. } if is_late => {
                let cause = "this principal takes more of the store's time than others, and its calls wait for each other";
                reply.give(Err(Failure::Unavailable(cause.to_owned())));
            }
            Message::Request { mark, request, reply } => {
                if let Some(displaced) = self.addressees.handle_request(mark, &request) {
                    let to = To::These(vec![displaced]);
                    self.teller.tell(now, to, &News::Reset, self.store.as_relay());
                }
                let interest = Some((mark, Interest::of(&request)));
                let call = self.await_answer(Awaited::Request { reply, interest, sent });
                self.store.submit(now, call, *request);
            }
            Message::Look { request, reply } => {
                let call =
                    self.await_answer(Awaited::Request { reply, interest: None, sent: None });
                self.store.submit(now, call, *request);
            }
            Message::Listen(mark, reply) => {
                let listener = self.teller.open(now, mark);
                if self.store.as_relay().is_none() {
                    // Whoever asked may have gone.
                    return drop(reply.send(listener));
                }
                let call = self.await_answer(Awaited::Stream { reply, listener });
                if let Some(relay) = self.store.as_relay() {
                    relay.attend(now, call, mark.to_string().into());
                }
            }
            // Whoever asked these may have gone.
            Message::Health(reply) => drop(reply.send(self.store.health())),
            Message::Examine(reply) => drop(reply.send(Sent(self.store.examine()))),
            Message::Observe(Sent(observer)) => self.observer = Some(observer),
            Message::Stop => self.stop_by = Some(now + STOP_PATIENCE),
        }
    }

    fn await_answer(&mut self, awaited: Awaited) -> CallId {
        let call = CallId(self.calls);
        self.calls += 1;
        self.replies.insert(call, awaited);
        call
    }

    /// Tells what came of a turn.
    fn give(&mut self, now: Boottime, outcome: Outcome) {
        let Outcome { answers, news, told, lost, doubtful } = outcome;
        for (claim, reason) in lost {
            if let Some(observer) = &self.observer {
                observer.lost(claim, reason);
            }
        }
        for (claim, resource) in doubtful {
            if let Some(observer) = &self.observer {
                observer.may_be_lost(claim, &resource);
            }
        }
        // Losses come before the grants that follow from them.
        for (to, news) in news {
            if let (Some(observer), News::Resource(resource)) = (&self.observer, &news) {
                observer.changed(resource);
            }
            if let (Some(observer), News::Message { session: Some(session), payload, .. }) =
                (&self.observer, &news)
                && payload["type"] == "MasterPreempted"
            {
                observer.may_be_preempted(*session);
            }
            self.teller.tell(now, to, &news, self.store.as_relay());
        }
        for told in told {
            self.teller.pass_on(now, told);
        }
        // An embedded store has answered in this turn.
        let answered_at = (self.clock)();
        for (call, result) in answers {
            match self.replies.remove(&call) {
                Some(Awaited::Request { reply, sent, .. }) => {
                    if let Some(sent) = sent {
                        self.inbox.answered(answered_at, sent);
                    }
                    reply.give(result);
                }
                // Whoever asked may have gone.
                Some(Awaited::Stream { reply, listener }) => drop(reply.send(listener)),
                None => {}
            }
        }
        for mark in self.teller.take_left(now) {
            if let Some(relay) = self.store.as_relay() {
                relay.leave(now, mark.to_string().into());
            }
        }
    }

    /// Takes a report. Whom it concerns depends on what was asked before it.
    fn take(&mut self, now: Boottime, report: Report, outcome: &mut Outcome) {
        let news = match report {
            Report::Answer { call, result, .. } => {
                if let Ok(answer) = &result
                    && let Some(Awaited::Request { interest: Some((mark, interest)), .. }) =
                        self.replies.get(&call)
                    && let Some(displaced) =
                        self.addressees.handle_answer(now, *mark, interest, answer)
                {
                    outcome.news.push((To::These(vec![displaced]), News::Reset));
                }
                return outcome.answers.push((call, result));
            }
            Report::Lost { claim, reason, .. } => {
                outcome.lost.push((claim, reason));
                News::Lost { claim }
            }
            Report::Change(Change::Lost { claim, resource }) => {
                outcome.doubtful.push((claim, resource));
                News::Lost { claim }
            }
            Report::Change(Change::Granted { claim, grant, .. }) => {
                News::Granted { claim, grant: grant.map(|grant| carried(now, grant)) }
            }
            Report::Change(Change::Resource(resource)) => News::Resource(resource),
            Report::Change(Change::Message { tenant, project, session, payload }) => {
                News::Message { tenant, project, session, payload }
            }
            Report::FeedLost => News::FeedLost,
        };
        outcome.news.push((self.addressees.of(now, &news), news));
    }
}

/// A grant of this store, for an agent with another clock. What is left of it now is no more than it was kept for.
fn carried(now: Boottime, GrantHint { token, limit, confirm_by }: GrantHint) -> Carried {
    Carried { token, limit, kept: confirm_by.since(now) }
}

/// Tells people what became of the journal.
fn tell(notice: Option<Notice>) {
    match notice {
        None => {}
        Some(Notice::Mended) => info!("{}", Notice::Mended),
        Some(trouble) => error!("{trouble}"),
    }
}
