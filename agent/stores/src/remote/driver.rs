//! An upstream made of a backend: everything that is the same for all remote stores.
//!
//! Beats have a connection of their own; what takes long, or what no client waits for, has another. A hint makes somebody
//! ask, and is never believed, but for a grant until the instant that it names.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::model::{Answer, CallId, Failure, Report, Request};
use tenure_core::time::Boottime;
use tenure_wire::UpstreamState;
use tracing::warn;

use super::backend::{Backend, ChoreOf, Chores, ConnectionOf, FeedState, FoundOf, LineOf};
use super::calls::{Calls, Done};
use super::examination::examination;
use super::expiries::Expiries;
use super::hints::{Heard, Hint, hints};
use super::link::{Connector, Dialer, Link, LinkState};
use super::links::Links;
use super::own_claims::OwnClaims;
use super::token::greatest_token;
use super::writes::Writes;
use crate::relay::{Relay, Told};
use crate::{Examination, Health, Upstream};

mod feed;
mod quarantine;
mod relay;
mod task;
mod writes;

use feed::{Feed, FeedPhase};
use task::{Reply, Task};

/// Hints taken up between two looks at everything else.
const HINTS_PER_TURN: usize = 256;
/// How often own permits are verified where the feed does not tell of all changes: another program with
/// a ttl of 1 s makes their keys expire 11 s later.
const VERIFY_EVERY: Duration = Duration::from_secs(3);
/// A beat's deadline is this part of the shortest ttl in it, so that there is time to try again …
const BEAT_DEADLINE_PART: u32 = 4;
/// … but never shorter than this.
const BEAT_DEADLINE_MIN: Duration = Duration::from_millis(100);
/// The last error is told for at least so long.
const ERROR_SHOWN: Duration = Duration::from_secs(10);
/// A store may keep a record through the very ms of its expiry.
const JUST_AFTER: Duration = Duration::from_millis(1);

type CallsOf<B> = Calls<Task<ChoreOf<B>>, Reply<FoundOf<B>>, ConnectionOf<B>>;
type DoneOf<B> = Done<Task<ChoreOf<B>>, Reply<FoundOf<B>>>;

/// A remote store as an upstream.
pub struct Driver<B: Backend> {
    backend: Rc<B>,
    chores: B::Chores,
    links: Links<B::Connector>,
    /// The time that a call waits for its answer.
    timeout: Duration,
    calls: CallsOf<B>,
    own_claims: OwnClaims,
    feed: Feed,
    /// Those of resources that were inspected.
    expiries: Expiries,
    /// The greatest token seen.
    floor: u64,
    /// Bounded by its user, who takes reports out until there are none.
    reports: VecDeque<Report>,
    /// Taken out after each poll for a report.
    told: VecDeque<Told>,
    condition: Condition,
}

/// The condition of the store, as far as it is known.
struct Condition {
    last_error: Option<(Boottime, String)>,
    writes: Writes,
    /// The end of the store's quarantine; `None` if the store grants.
    grants_at: Option<Boottime>,
}

impl<B: Backend> Driver<B> {
    /// Starts to connect. Must be called on the thread, and in the runtime, that will use it.
    pub fn open(
        dialer: &Arc<Dialer<B::Connector>>,
        backend: B,
        chores: B::Chores,
        timeout: Duration,
    ) -> Driver<B> {
        let (sink, hints) = hints();
        let links = Links::open(dialer, sink);
        Driver {
            backend: Rc::new(backend),
            chores,
            links,
            timeout,
            calls: Calls::new(),
            own_claims: OwnClaims::default(),
            feed: Feed::new(hints),
            expiries: Expiries::default(),
            floor: 0,
            reports: VecDeque::new(),
            told: VecDeque::new(),
            condition: Condition {
                last_error: None,
                writes: Writes::new(dialer.now()),
                grants_at: None,
            },
        }
    }

    fn deadline(&self, request: &Request) -> Duration {
        let Request::Renew(beats) = request else { return self.timeout };
        let shortest = beats.iter().map(|beat| beat.ttl).min().unwrap_or(self.timeout);
        self.timeout.min((shortest / BEAT_DEADLINE_PART).max(BEAT_DEADLINE_MIN))
    }

    /// Does what is due and does not come from the keeper.
    fn look_after(&mut self, now: Boottime) {
        self.follow_quarantine(now);
        if matches!(self.feed.phase, FeedPhase::Down { retry_at } if retry_at <= now) {
            self.listen(now);
        }
        if self.feed.verify_at.is_some_and(|at| at <= now) {
            self.feed.verify_at = Some(now + VERIFY_EVERY);
            self.own_claims.suspect_semaphores(now);
        }
        self.own_claims.sweep(now);
        self.take_claim_steps(now);
        let suspects = self.own_claims.take_suspects(now);
        if !suspects.is_empty() {
            self.verify(now, suspects);
        }
        self.watch(now);
        self.keep_hearing(now);
        self.try_write(now);
        while let Some(chore) = self.chores.take(now) {
            let floor = self.floor;
            let task = Task::Chore(chore.clone());
            self.start_in_background(now, task, async move |backend, line| {
                backend.do_chore(line, chore, floor).await.map(Reply::Found)
            });
        }
        while let Some(resource) = self.expiries.pop_due(now) {
            self.own_claims.handle_hint(now, Hint::Resource(resource), &mut self.reports);
        }
    }

    /// Starts a call that no client waits for.
    fn start_in_background(
        &mut self,
        now: Boottime,
        task: Task<ChoreOf<B>>,
        call: impl AsyncFnOnce(&B, &mut LineOf<B>) -> Result<Reply<FoundOf<B>>, Failure> + 'static,
    ) {
        let backend = Rc::clone(&self.backend);
        let call = async move |mut line: LineOf<B>| call(&backend, &mut line).await;
        self.calls.start(now, self.timeout, &self.links.background, task, call);
    }

    fn handle_done(&mut self, now: Boottime, done: DoneOf<B>) {
        let Done { purpose, sent_at, result } = done;
        self.weigh(&purpose, &result);
        let shows_agent = matches!(&purpose, Task::Request { request, .. }
            if matches!(&**request, Request::Announce(record) if record.is_agent()));
        match &result {
            // A gateway before this one does not list agents, and nobody is the worse for it.
            Err(Failure::Denied(_)) if shows_agent => {}
            Err(failure) => self.condition.last_error = Some((now, failure.cause().to_owned())),
            Ok(_) => {
                if self
                    .condition
                    .last_error
                    .as_ref()
                    .is_some_and(|(at, _)| now.since(*at) > ERROR_SHOWN)
                {
                    self.condition.last_error = None;
                }
            }
        }
        match (purpose, result) {
            (Task::Request { call, request }, result) => {
                let result = match result {
                    Ok(Reply::Answer(answer)) => Ok(answer),
                    Ok(_) => Err(Failure::Unknown("an answer to another question".to_owned())),
                    Err(failure) => Err(failure),
                };
                if let Ok(answer) = &result {
                    self.own_claims.found_waiting(sent_at, &request, answer);
                }
                self.handle_answer(now, &request, &result);
                self.reports.push_back(Report::Answer { call, sent_at, result });
            }
            (Task::Verify(asked), result) => {
                self.own_claims.verified();
                if let Ok(Reply::Verified(found)) = result {
                    self.handle_verified(now, &asked, &found);
                }
            }
            (Task::Watch(topics), result) => {
                let seen = match result {
                    Ok(Reply::Watched(seen)) => seen,
                    // The feed is started again, and then everything is read.
                    _ => Vec::new(),
                };
                self.handle_watched(now, &topics, &seen);
            }
            (Task::Listen, Ok(Reply::Listening(listening))) => {
                self.handle_listening(now, listening);
            }
            (Task::StopHearing(audiences), _) => self.own_claims.audiences.doubt(&audiences),
            (Task::Hear { is_late }, Ok(Reply::Hears(refused))) => {
                self.feed.refused.add(refused);
                if is_late {
                    self.reports.push_back(Report::FeedLost);
                }
            }
            (Task::Attend(call), Ok(Reply::Hears(refused))) => {
                self.feed.refused.add(refused);
                self.attended(now, call);
            }
            (Task::Attend(call), _) => {
                self.attended(now, call);
                self.feed_failed(now);
            }
            (Task::Listen | Task::Hear { .. }, _) => self.feed_failed(now),
            (Task::TryWrite, result) => self.handle_tried(now, result),
            (Task::EndQuarantine, Err(failure)) => {
                warn!("the quarantine goes on: {}", failure.cause());
            }
            (Task::Relay | Task::EndQuarantine, _) => {}
            (Task::Chore(chore), result) => {
                let found = match result {
                    Ok(Reply::Found(found)) => Some(found),
                    _ => None,
                };
                self.chores.handle_done(now, chore, found);
            }
        }
    }

    fn handle_answer(
        &mut self,
        now: Boottime,
        request: &Request,
        result: &Result<Answer, Failure>,
    ) {
        if let Ok(answer) = result {
            self.floor = self.floor.max(greatest_token(answer).unwrap_or(0));
            // A store tells late of an expiry: whoever was told of a holder is told by a timer that its
            // time is up.
            if let (Request::Inspect(resource), Answer::Standing(standing)) = (request, answer) {
                if let Some(runs_out) = standing.runs_out {
                    self.expiries.set(resource, now + runs_out + JUST_AFTER);
                }
                if let Some(first) = standing.waiters.first() {
                    self.own_claims.placed(first.claim, resource, 1);
                }
            }
        }
        self.own_claims.handle_answer(now, request, result);
        self.own_claims.tell_again(now, &mut self.reports);
        self.take_claim_steps(now);
    }

    fn take_claim_steps(&mut self, now: Boottime) {
        for (resource, step) in self.own_claims.take_steps() {
            self.chores.handle_claim_step(now, &resource, step);
        }
    }
}

impl<B: Backend> Upstream for Driver<B> {
    fn health(&self) -> Health {
        let states = [&self.links.beats, &self.links.commands, &self.links.feed].map(Link::state);
        let refusal = self.condition.writes.refusal();
        let down = states.iter().find_map(LinkState::error).cloned().or_else(|| refusal.clone());
        let state = match states {
            [LinkState::Up, LinkState::Up, _] if refusal.is_none() => UpstreamState::Up,
            _ if down.is_some() => UpstreamState::Down,
            _ => UpstreamState::Connecting,
        };
        let last = self.condition.last_error.as_ref().filter(|_| down.is_none());
        let last_error_at = last.map(|(at, _)| *at);
        let last_error = down
            .or_else(|| last.map(|(_, error)| error.clone()))
            .or_else(|| self.feed.refused.get());
        let connector = self.links.dialer.connector();
        let (state, grants_nothing) = self.quarantined(state);
        let mut health = Health {
            grants_at: self.condition.grants_at,
            reach: Some(self.links.dialer.reach().through(self.condition.writes.reach())),
            last_error_at: last_error_at.filter(|_| grants_nothing.is_none()),
            last_error: grants_nothing.clone().or(last_error),
            grants_nothing,
            guarantee: connector.guarantee(),
            store_id: connector.store_id(),
            gateways: connector.gateways(),
            ..Health::of(state)
        };
        if let Some(behind) = connector.behind() {
            behind.show_in(&mut health);
        }
        health
    }

    fn examine(&self) -> Examination {
        let feed = match (self.feed.phase, self.feed.refused.get()) {
            (FeedPhase::Up, None) => FeedState::Up,
            (FeedPhase::Up, Some(refused)) => FeedState::Partial(refused),
            (FeedPhase::Down { .. } | FeedPhase::Starting, _) => FeedState::Down,
        };
        let down = [&self.links.beats, &self.links.commands].map(Link::state);
        let known = down.iter().find_map(LinkState::error).cloned();
        examination(Arc::clone(&self.links.dialer), known, feed)
    }

    fn shares_journal(&self) -> bool {
        false
    }

    fn as_relay(&mut self) -> Option<&mut dyn Relay> {
        Some(self)
    }

    fn submit(&mut self, now: Boottime, call: CallId, request: Request) {
        if let Err(invalid) = request.check() {
            let result = Err(Failure::invalid(&invalid));
            self.reports.push_back(Report::Answer { call, sent_at: now, result });
            return;
        }
        self.own_claims.handle_request(now, &request);
        self.take_claim_steps(now);
        let within = self.deadline(&request);
        let first = self.feed_first(&request);
        let link = self.links.of(&request);
        let request = Rc::new(request);
        let task = Task::Request { call, request: Rc::clone(&request) };
        let backend = Rc::clone(&self.backend);
        let floor = self.floor;
        self.calls.start(now, within, link, task, async move |mut line: LineOf<B>| {
            if let Some(first) = first {
                first.ask(&*backend, &line).await;
            }
            backend.perform(&mut line, &request, floor).await.map(Reply::Answer)
        });
    }

    fn dispatch(&mut self) {
        let now = self.links.dialer.now();
        // With its first step a call is in the buffer of its connection.
        while let Poll::Ready(done) = self.calls.poll_done(&mut Context::from_waker(Waker::noop()))
        {
            self.handle_done(now, done);
        }
        self.links.flush();
    }

    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Report> {
        loop {
            if let Some(report) = self.reports.pop_front() {
                return Poll::Ready(report);
            }
            let now = self.links.dialer.now();
            let mut moved = false;
            for _ in 0..HINTS_PER_TURN {
                let Poll::Ready(heard) = self.feed.hints.poll_next(context) else { break };
                match heard {
                    Heard::Hint(Hint::ToPrincipal(told)) => self.told.push_back(told),
                    Heard::Hint(hint) => {
                        let token = match &hint {
                            Hint::Granted(_, Some(grant)) => grant.token,
                            Hint::Carried(_, grant) => grant.token,
                            _ => 0,
                        };
                        self.floor = self.floor.max(token);
                        self.chores.handle_hint(now, &hint);
                        self.own_claims.handle_hint(now, hint, &mut self.reports);
                    }
                    Heard::Lost => {
                        self.feed.phase = FeedPhase::Down { retry_at: now };
                        self.chores.feed_stopped();
                        self.feed_stopped();
                    }
                }
                moved = true;
            }
            self.look_after(now);
            while let Poll::Ready(done) = self.calls.poll_done(context) {
                self.handle_done(now, done);
                moved = true;
            }
            if !moved && self.reports.is_empty() {
                return Poll::Pending;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Boottime> {
        let listen_at = match self.feed.phase {
            FeedPhase::Down { retry_at } => Some(retry_at),
            FeedPhase::Starting | FeedPhase::Up => None,
        };
        let timeouts = [
            self.calls.poll_timeout(),
            self.own_claims.poll_timeout(),
            self.own_claims.audiences.poll_timeout(),
            self.chores.poll_timeout(),
            self.condition.writes.poll_timeout(),
            self.feed.verify_at,
            listen_at,
            self.expiries.next(),
            self.condition.grants_at,
        ];
        timeouts.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Boottime) {
        while let Some(done) = self.calls.give_up(now) {
            self.handle_done(now, done);
        }
        self.look_after(now);
    }

    fn end_quarantine(&mut self, now: Boottime) -> Option<Duration> {
        self.begin_to_grant(now)
    }

    fn close(&mut self) {}
}
