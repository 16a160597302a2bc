//! Redis as the upstream: several hosts, and programs that use these layouts today, contend on one
//! server.
//!
//! Every operation is one script, which may be run again: the id of a claim is the id of its
//! operations. Beats have a connection of their own. What comes over the push connection is a hint,
//! and makes somebody ask.

pub mod address;
mod calls;
mod care;
mod caretaker;
pub mod examine;
pub mod exchange;
mod feed;
mod hints;
pub mod layout;
pub mod link;
mod members;
mod pushes;
mod sentinel;
pub mod settings;
mod sign_in;
mod stream;
mod tenants;
#[cfg(test)]
mod tests;
mod trouble;
mod upkeep;

pub use pushes::{Heard, PushSink, Pushes, pushes};
pub use settings::settings;
pub use sign_in::Server;
pub use trouble::{Trouble, Whom};

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::model::{Answer, CallId, Change, ClaimId, Failure, Request, Resource};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::{Kind, UpstreamState};

use self::address::Address;
use self::calls::{Calls, Done};
use self::care::Care;
use self::caretaker::{Caretaker, Errand};
use self::exchange::{CareOf, Cared, Exchange, Step, Verified};
use self::feed::{Hearing, Surveyed};
use self::layout::Layout;
use self::link::{Link, LinkState, Purpose};
use self::members::Members;
use self::settings::RedisUpstream;
use self::tenants::{Tenants, Tracked};
use super::{Examination, Health, Report, Upstream};
use crate::journal::{Ahead, Journal};
use crate::remote::expiries::Expiries;
use crate::remote::own_claims::{ClaimStep, OwnClaims};
use crate::settings::{OpenError, Opened, Place};

/// The guarantee of a Redis.
pub const GUARANTEE: &str = "single Redis; asynchronous failover can lose a grant";

/// Opens a Redis, and the journal of an agent that has nothing else to keep.
///
/// # Errors
///
/// When the journal cannot be used.
pub fn open(upstream: &RedisUpstream, place: Place<'_>) -> Result<Opened, OpenError> {
    let RedisUpstream { access, layout, .. } = upstream.clone();
    let (journal, mut found) =
        Journal::open(place.runtime_dir, place.boot_id, None, Ahead::default())?;
    (place.catch_up)(&mut found.keeper);
    let settings = RedisSettings { timeout: access.timeout, layout };
    let store = Redis::open(Arc::new(Address::new(access)), settings);
    let journal = Rc::new(RefCell::new(journal));
    Ok(Opened { store: Box::new(store), journal, saved: found.keeper })
}

/// Pushes taken up between two looks at everything else.
const PUSHES_PER_TURN: usize = 256;
/// After it could not listen.
const LISTEN_AGAIN: Duration = Duration::from_millis(500);
/// How often keys that own clients share are looked at where nothing tells of their changes: another
/// program with a ttl of 1 s makes them expire 11 s later.
const UNHEARD_EVERY: Duration = Duration::from_secs(3);
/// A beat's deadline is this part of the shortest ttl in it, so that there is time to try again …
const BEAT_DEADLINE_PART: u32 = 4;
/// … but never shorter than this.
const BEAT_DEADLINE_MIN: Duration = Duration::from_millis(100);
/// The last error is told for at least so long.
const ERROR_SHOWN: Duration = Duration::from_secs(10);
/// Redis keeps a key through the very ms of its expiry.
const JUST_AFTER: Duration = Duration::from_millis(1);

/// The purpose of a call.
#[derive(Debug)]
enum Task {
    Request {
        call: CallId,
        request: Box<Request>,
    },
    Care(Vec<CareOf>),
    Verify(Vec<(ClaimId, Resource)>),
    Listen(Tracked),
    Stand,
    /// From this cursor on.
    Survey(Vec<u8>),
}

/// The reply to a call.
#[derive(Debug)]
enum Reply {
    Answer(Answer),
    Cared(Vec<Cared>),
    Verified(Vec<Verified>),
    /// None if this connection listened already.
    Listening(Option<Hearing>),
    /// How long another is the caretaker.
    Stood(Option<Duration>),
    Surveyed(Surveyed),
}

/// The state of the push connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ear {
    Deaf { retry_at: Boottime },
    Starting,
    Listening,
}

/// How to use a Redis.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// How long a call waits for its answer.
    pub timeout: Duration,
    /// Names of keys and channels.
    pub layout: Layout,
}

/// A Redis, shared with others.
pub struct Redis {
    settings: RedisSettings,
    address: Arc<Address>,
    layout: Rc<Layout>,
    database: u32,
    beats: Link,
    commands: Link,
    pushes: Link,
    /// For what no client waits for: nothing of it may keep a claim or a release waiting.
    upkeep: Link,
    heard: Pushes,
    calls: Calls<Task, Reply>,
    own_claims: OwnClaims,
    care: Care,
    caretaker: Caretaker,
    members: Members,
    tenants: Tenants,
    /// By what the caretaker is known.
    agent: String,
    ear: Ear,
    /// The connection that tracks and subscribes.
    listening_on: u64,
    /// True if it tells of keys that change.
    tracks: bool,
    /// When to look at what nothing tells of.
    unheard_at: Option<Boottime>,
    /// Why hints do not come, although the connection is up.
    hard_of_hearing: Option<String>,
    /// Resources that somebody asked about.
    inspected: Expiries,
    /// The greatest token seen.
    floor: u64,
    /// Bounded by its user, who takes reports out until there are none.
    reports: VecDeque<Report>,
    last_error: Option<(Boottime, String)>,
    waker: Option<Waker>,
}

impl Redis {
    /// Starts to connect. Must be called on the thread, and in the runtime, that will use it.
    pub fn open(address: Arc<Address>, settings: RedisSettings) -> Redis {
        let database = address.db();
        let (sink, heard) = pushes::pushes();
        // Without chance agents act at the same instants, and none of them is the caretaker.
        let seed = getrandom::u64().unwrap_or(0);
        Redis {
            layout: Rc::new(settings.layout.clone()),
            settings,
            database,
            beats: Link::open(Arc::clone(&address), Purpose::Beats),
            pushes: Link::open(Arc::clone(&address), Purpose::Pushes(sink)),
            commands: Link::open(Arc::clone(&address), Purpose::Commands),
            upkeep: Link::open(Arc::clone(&address), Purpose::Care),
            address,
            heard,
            calls: Calls::new(),
            own_claims: OwnClaims::default(),
            care: Care::new(seed),
            caretaker: Caretaker::new(seed),
            members: Members::new(seed),
            tenants: Tenants::default(),
            agent: format!("{seed:016x}"),
            ear: Ear::Deaf { retry_at: Boottime::ZERO },
            listening_on: 0,
            tracks: false,
            unheard_at: None,
            hard_of_hearing: None,
            inspected: Expiries::default(),
            floor: 0,
            reports: VecDeque::new(),
            last_error: None,
            waker: None,
        }
    }

    fn deadline(&self, request: &Request) -> Duration {
        let Request::Renew(beats) = request else { return self.settings.timeout };
        let shortest = beats.iter().map(|beat| beat.ttl).min().unwrap_or(self.settings.timeout);
        self.settings.timeout.min((shortest / BEAT_DEADLINE_PART).max(BEAT_DEADLINE_MIN))
    }

    /// Does what is due and does not come from the keeper.
    fn look_after(&mut self, now: Boottime) {
        if self.ear == Ear::Listening && self.tracks && self.tenants.lacks(self.caretaker.is_it()) {
            (self.ear, self.listening_on) = (Ear::Deaf { retry_at: now }, 0);
            self.caretaker.pauses();
        }
        if matches!(self.ear, Ear::Deaf { retry_at } if retry_at <= now) {
            self.ear = Ear::Starting;
            let (layout, database) = (Rc::clone(&self.layout), self.database);
            let (already, within) = (self.listening_on, self.settings.timeout);
            let tracked = self.tenants.wanted(self.caretaker.is_it());
            let task = Task::Listen(tracked.clone());
            self.calls.start(now, within, &self.pushes, task, move |line| async move {
                feed::listen(line, &layout, database, &tracked, already).await.map(Reply::Listening)
            });
        }
        if self.unheard_at.is_some_and(|at| at <= now) {
            self.unheard_at = Some(now + UNHEARD_EVERY);
            self.own_claims.suspect_semaphores(now);
        }
        self.own_claims.sweep(now);
        self.take_claim_steps(now);
        let suspects = self.own_claims.take_suspects(now);
        if !suspects.is_empty() {
            let invocation = exchange::verify(&self.layout, &suspects);
            self.start(now, Task::Verify(suspects), invocation, |reply| {
                exchange::verified(reply).map(Reply::Verified)
            });
        }
        let due = self.care.take(now);
        if !due.is_empty() {
            let invocation = exchange::care(&self.layout, &due, self.floor);
            self.start(now, Task::Care(due), invocation, |reply| {
                exchange::cared(reply).map(Reply::Cared)
            });
        }
        if let Some(errand) = self.caretaker.take(now) {
            self.run_errand(now, errand);
        }
        while let Some(resource) = self.inspected.pop_due(now) {
            self.reports.push_back(Report::Change(Change::Resource(resource)));
        }
    }

    fn take_claim_steps(&mut self, now: Boottime) {
        for (resource, step) in self.own_claims.take_steps() {
            if resource.kind == Kind::Semaphore {
                match step {
                    ClaimStep::Tracked => self.care.share(&resource),
                    ClaimStep::Waits => self.care.waits(now, &resource),
                    ClaimStep::WaitsNoMore => self.care.waits_no_more(&resource),
                    ClaimStep::Forgotten => self.care.unshare(&resource),
                }
            }
        }
    }

    fn run_errand(&mut self, now: Boottime, errand: Errand) {
        match errand {
            Errand::Stand => {
                let invocation = exchange::stand(&self.layout, &self.agent, caretaker::TERM);
                self.start(now, Task::Stand, invocation, |reply| {
                    exchange::stood(reply).map(Reply::Stood)
                });
            }
            Errand::Survey(cursor) => {
                let (layout, within) = (Rc::clone(&self.layout), self.settings.timeout);
                let task = Task::Survey(cursor.clone());
                self.calls.start(now, within, &self.upkeep, task, move |line| async move {
                    feed::survey(line, &layout, &cursor).await.map(Reply::Surveyed)
                });
            }
        }
    }

    /// Starts a call that no client waits for.
    fn start(
        &mut self,
        now: Boottime,
        task: Task,
        invocation: exchange::Invocation,
        read: impl FnOnce(redis::Value) -> Result<Reply, exchange::ReplyError> + 'static,
    ) {
        let within = self.settings.timeout;
        self.calls.start(now, within, &self.upkeep, task, |line| async move {
            let mut connected = line.connect().await?;
            let reply = line.run(&mut connected, &invocation).await?;
            read(reply).map_err(|error| Failure::Unknown(error.to_string()))
        });
    }

    fn handle_done(&mut self, now: Boottime, done: Done<Task, Reply>) {
        let Done { purpose, sent_at, result } = done;
        match &result {
            Err(failure) => self.last_error = Some((now, failure.cause().to_owned())),
            Ok(_) => {
                if self.last_error.as_ref().is_some_and(|(at, _)| now.since(*at) > ERROR_SHOWN) {
                    self.last_error = None;
                }
            }
        }
        match (purpose, result) {
            (Task::Request { call, request }, result) => {
                let result = match result {
                    Ok(Reply::Answer(answer)) => {
                        self.look_again(now, &request, &answer);
                        self.floor = self.floor.max(exchange::greatest_token(&answer).unwrap_or(0));
                        Ok(answer)
                    }
                    Ok(_) => Err(Failure::Unknown("an answer to another question".to_owned())),
                    Err(failure) => Err(failure),
                };
                self.own_claims.handle_answer(now, &request, &result);
                self.take_claim_steps(now);
                self.reports.push_back(Report::Answer { call, sent_at, result });
            }
            (Task::Care(asked), result) => {
                let found = match result {
                    Ok(Reply::Cared(found)) => Some(found),
                    _ => None,
                };
                self.care.handle_answer(now, asked, found);
            }
            (Task::Verify(asked), result) => {
                self.own_claims.verified();
                if let Ok(Reply::Verified(found)) = result {
                    for ((claim, resource), found) in asked.into_iter().zip(found) {
                        match found {
                            Verified::Held => {}
                            Verified::ExpiresSoon => self.care.expires_soon(now, &resource),
                            Verified::Gone => {
                                let change = Change::Lost { claim, resource };
                                self.reports.push_back(Report::Change(change));
                            }
                        }
                    }
                }
            }
            (Task::Listen(tracked), Ok(Reply::Listening(hearing))) => {
                self.ear = Ear::Listening;
                if let Some(Hearing { connection, tracks, refused }) = hearing {
                    self.listening_on = connection;
                    self.hard_of_hearing = refused;
                    self.tracks = tracks;
                    self.tenants.track(tracked);
                }
                if self.tracks {
                    self.unheard_at = None;
                    self.caretaker.listens(now);
                } else {
                    self.unheard_at = Some(now);
                    self.caretaker.is_deaf();
                }
                self.care.appoint(self.caretaker.is_it());
                // Whatever happened before this instant was not heard.
                self.own_claims.suspect_semaphores(now);
                self.reports.push_back(Report::FeedLost);
            }
            (Task::Listen(_), _) => self.ear = Ear::Deaf { retry_at: now + LISTEN_AGAIN },
            (Task::Stand, result) => {
                let answer = match result {
                    Ok(Reply::Stood(other)) => Some(other),
                    _ => None,
                };
                self.caretaker.stood(now, answer);
                self.care.appoint(self.caretaker.is_it());
            }
            (Task::Survey(from), result) => {
                let next = match result {
                    Ok(Reply::Surveyed(Surveyed { next, semaphores })) => {
                        for semaphore in semaphores {
                            self.care.queue_changed(now, &semaphore);
                        }
                        Some(next)
                    }
                    _ => None,
                };
                self.caretaker.surveyed(now, from, next);
            }
        }
    }

    /// Redis tells late of what ran out: whoever was told of a holder is told by a timer that its time
    /// is up.
    fn look_again(&mut self, now: Boottime, request: &Request, answer: &Answer) {
        let (Request::Inspect(resource), Answer::Standing(standing)) = (request, answer) else {
            return;
        };
        if resource.kind == Kind::Master {
            self.members.seen(now, resource, standing);
        }
        if let Some(runs_out) = standing.runs_out {
            self.inspected.set(resource, now + runs_out + JUST_AFTER);
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Upstream for Redis {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn guarantee(&self) -> &'static str {
        GUARANTEE
    }

    fn health(&self) -> Health {
        let states = [self.beats.state(), self.commands.state(), self.pushes.state()];
        let down = states.iter().find_map(|state| match state {
            LinkState::Down { error } => Some(error.to_string()),
            LinkState::Connecting | LinkState::Up => None,
        });
        let state = match states {
            [LinkState::Up, LinkState::Up, _] => UpstreamState::Up,
            _ if down.is_some() => UpstreamState::Down,
            _ => UpstreamState::Connecting,
        };
        let last_error = down
            .or_else(|| self.last_error.as_ref().map(|(_, error)| error.clone()))
            .or_else(|| self.hard_of_hearing.clone());
        Health { state, last_error, grants_nothing: None }
    }

    fn examine(&self) -> Examination {
        let ear = match (self.ear, &self.hard_of_hearing) {
            (Ear::Listening, None) => examine::Ear::Listens,
            (Ear::Listening, Some(refused)) => examine::Ear::Refused(refused.clone()),
            (Ear::Deaf { .. } | Ear::Starting, _) => examine::Ear::Deaf,
        };
        examine::examination(Arc::clone(&self.address), self.settings.layout.clone(), ear)
    }

    fn shares_journal(&self) -> bool {
        false
    }

    fn is_calling(&self) -> bool {
        !self.calls.is_empty()
    }

    fn submit(&mut self, now: Boottime, call: CallId, request: Request) {
        self.own_claims.handle_request(now, &request);
        self.take_claim_steps(now);
        self.tenants.handle_request(&request);
        let names = match &request {
            Request::Inspect(resource) => self.members.names(now, resource),
            _ => None,
        };
        let (mut exchange, mut invocation) = match (names, &request) {
            (Some(names), Request::Inspect(master)) => {
                Exchange::inspect_project(&self.layout, master, names)
            }
            _ => Exchange::start(&self.layout, &request, self.floor),
        };
        let within = self.deadline(&request);
        let link = match request {
            Request::Renew(_) => &self.beats,
            _ => &self.commands,
        };
        let layout = Rc::clone(&self.layout);
        self.calls.start(
            now,
            within,
            link,
            Task::Request { call, request: Box::new(request) },
            |line| async move {
                let mut connected = line.connect().await?;
                loop {
                    let reply = line.run(&mut connected, &invocation).await?;
                    match exchange.step(&layout, reply) {
                        Ok(Step::Done(answer)) => return Ok(Reply::Answer(answer)),
                        Ok(Step::Next(rest, next)) => (exchange, invocation) = (rest, next),
                        Err(error) => return Err(Failure::Unknown(error.to_string())),
                    }
                }
            },
        );
        self.wake();
    }

    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Report> {
        loop {
            if let Some(report) = self.reports.pop_front() {
                return Poll::Ready(report);
            }
            let now = clock::now();
            let mut moved = false;
            for _ in 0..PUSHES_PER_TURN {
                let Poll::Ready(heard) = self.heard.poll_next(context) else { break };
                match heard {
                    Heard::Push(push) => self.handle_push(now, push),
                    Heard::Lost => {
                        self.ear = Ear::Deaf { retry_at: now };
                        self.caretaker.pauses();
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
                self.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Boottime> {
        let listen_at = match self.ear {
            Ear::Deaf { retry_at } => Some(retry_at),
            Ear::Starting | Ear::Listening => None,
        };
        let timeouts = [self.calls.poll_timeout(), self.own_claims.poll_timeout()];
        let timeouts = timeouts.into_iter().chain([
            self.care.poll_timeout(),
            self.caretaker.poll_timeout(),
            self.unheard_at,
            listen_at,
            self.inspected.next(),
        ]);
        timeouts.flatten().min()
    }

    fn handle_timeout(&mut self, now: Boottime) {
        while let Some(done) = self.calls.give_up(now) {
            self.handle_done(now, done);
        }
        self.look_after(now);
    }

    /// Everything that was held has been released; connections end with the process.
    fn close(&mut self) {}
}
