//! Redis as the upstream: several hosts, and programs that use these layouts today, contend on one
//! server.
//!
//! Every operation is one script, which may be run again: the id of a claim is the id of its
//! operations.

pub mod address;
mod care;
mod caretaker;
pub mod chores;
mod collisions;
mod commands;
mod connect_error;
pub mod connection;
pub mod examine;
pub mod exchange;
mod feed;
mod ids;
mod key_use;
mod keyring;
pub mod layout;
mod members;
mod prefixes;
mod sentinel;
pub mod settings;
mod sign_in;
#[cfg(test)]
mod tests;
mod write;

pub use collisions::FOREIGN_KEY;
pub use keyring::RedisKeyring;
pub use settings::settings;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tenure_core::model::{Answer, ClaimId, Failure, Request, Resource, Subject};
use tenure_host::clock;
use tenure_wire::Kind;

use self::address::Address;
use self::caretaker::Stood;
use self::chores::{Chore, Chores, Found};
use self::collisions::Collisions;
use self::commands::Line;
use self::exchange::{By, Exchange, Grants, Invocation, ReplyError, Step};
use self::layout::{Layout, hyphenated};
use self::members::Members;
use self::settings::{RedisAccess, RedisUpstream};
use crate::remote::{self, Audience, Backend, Dialer, Driver, Listening, Seen, Topic, Verified};
use crate::settings::{OpenError, Opened, Place};

/// The guarantee of a Redis.
pub const GUARANTEE: &str = "single Redis; asynchronous failover can lose a grant";

/// Opens a Redis.
///
/// # Errors
///
/// When the agent's journal cannot be used.
pub fn open(upstream: &RedisUpstream, place: Place<'_>) -> Result<Opened, OpenError> {
    let RedisUpstream { access, layout, .. } = upstream.clone();
    remote::open(place, || Box::new(Redis::open(access, layout)))
}

/// A Redis, shared with others.
pub struct Redis {
    dialer: Arc<Dialer<Address>>,
    members: RefCell<Members>,
    /// The agent's name as the caretaker.
    agent: Arc<str>,
    /// What the server said of the grants that it beats.
    grants: Rc<RefCell<Grants>>,
    /// The number of the connection that listens.
    listener: Cell<i64>,
    /// The connection that has the server tell of what other programs do, and whom it tells.
    overhears: Cell<Option<(u64, i64)>>,
    /// Claims belong to the principals that their ids end with, and not to this agent.
    serves_principals: Cell<bool>,
    collisions: Collisions,
}

impl Redis {
    /// Starts to connect. Must be called on the thread, and in the runtime, that will use it.
    pub fn open(access: RedisAccess, layout: Layout) -> Driver<Redis> {
        let timeout = access.timeout;
        let dialer = Arc::new(Dialer::new(Address::new(access, layout)));
        // Without chance agents act at the same instants, and none of them is the caretaker.
        let seed = getrandom::u64().unwrap_or(0);
        let chores = Chores::new(seed);
        let redis = Redis {
            dialer: Arc::clone(&dialer),
            members: RefCell::new(Members::new(seed)),
            agent: format!("{seed:016x}").into(),
            grants: Rc::default(),
            listener: Cell::new(0),
            overhears: Cell::new(None),
            serves_principals: Cell::new(false),
            collisions: Collisions::default(),
        };
        Driver::open(&dialer, redis, chores, timeout)
    }

    fn layout(&self) -> &Layout {
        self.dialer.connector().layout()
    }

    /// On whose behalf a request is made.
    fn by(&self, request: &Request, floor: u64) -> By {
        let principal = match request {
            _ if !self.serves_principals.get() => None,
            Request::Claim(claim) => Some(claim.id.0),
            // A call has beats of one principal alone.
            Request::Renew(beats) => beats.first().map(|beat| match &beat.subject {
                Subject::Claim { claim, .. } => claim.0,
                Subject::Session { session, .. } => session.0,
            }),
            _ => None,
        };
        let agent = match principal {
            Some(id) => layout::agents_of(layout::principal_of(&hyphenated(id))).into(),
            None => Arc::clone(&self.agent),
        };
        By { agent, floor, grants: Rc::clone(&self.grants) }
    }

    /// The first call for a request.
    fn start(&self, request: &Request, floor: u64) -> (Exchange, Invocation) {
        let names = match request {
            Request::Inspect(resource) => self.members.borrow().names(clock::now(), resource),
            _ => None,
        };
        match (names, request) {
            (Some(names), Request::Inspect(master)) => {
                Exchange::inspect_project(self.layout(), master, names)
            }
            _ => Exchange::start(self.layout(), request, self.by(request, floor)),
        }
    }
}

impl Redis {
    /// Runs a script, and reads its reply.
    async fn run<T>(
        &self,
        line: &mut Line,
        invocation: Invocation,
        read: impl FnOnce(redis::Value) -> Result<T, ReplyError>,
    ) -> Result<T, Failure> {
        let strange = |error: ReplyError| Failure::Unknown(error.to_string());
        let (store, mut view) = (self.dialer.connector().epoch(), None);
        let call = || match invocation.script.grants() {
            true => invocation.judged(self.layout(), view.insert(store.ask(invocation.ttl))),
            false => invocation.command(),
        };
        let error = match (line.run(&invocation, call).await, view) {
            (Ok(reply), None) => return read(reply).map_err(strange),
            (Ok(reply), Some(view)) => {
                let (report, reply) = exchange::epoch::read(&view, reply).map_err(strange)?;
                report.into_iter().for_each(|report| store.hear(&view, report));
                return read(reply).map_err(strange);
            }
            (Err(error), _) => error,
        };
        let failure = line.failed(&error);
        if !commands::is_wrong_type(&error) {
            return Err(failure);
        }
        let words = self.collisions.explain(line, self.layout(), &invocation).await;
        // A script that meets such a key midway may have written already.
        Err(words.map_or(failure, |words| Failure::Unknown(words.to_string())))
    }

    /// Has the server tell of what other programs do, or no longer, and keeps up what it was told. True if it
    /// tells from now on, and has not before.
    async fn overhear(&self, line: &mut Line, is_caretaker: bool) -> Result<bool, Failure> {
        let wanted = is_caretaker.then(|| (line.generation(), self.listener.get()));
        if self.overhears.get() == wanted {
            return Ok(false);
        }
        match wanted {
            Some((_, listener)) => feed::overhear(line, self.layout(), listener).await?,
            None => feed::stop_overhearing(line).await?,
        }
        self.overhears.set(wanted);
        Ok(is_caretaker)
    }
}

impl Backend for Redis {
    type Connector = Address;
    type Chores = Chores;

    const ENDS_QUARANTINES: bool = true;

    async fn perform(
        &self,
        line: &mut Line,
        request: &Request,
        floor: u64,
    ) -> Result<Answer, Failure> {
        let (mut exchange, mut invocation) = self.start(request, floor);
        let answer = loop {
            match self.run(line, invocation, |reply| exchange.step(self.layout(), reply)).await? {
                Step::Done(answer) => break answer,
                Step::Next(rest, next) => {
                    exchange = rest;
                    invocation = next;
                }
            }
        };
        if let (Request::Inspect(resource), Answer::Standing(standing)) = (request, &answer)
            && resource.kind == Kind::Master
        {
            self.members.borrow_mut().seen(clock::now(), resource, standing);
        }
        Ok(answer)
    }

    async fn listen(&self, line: &mut Line) -> Result<Listening, Failure> {
        let database = self.dialer.connector().db();
        let (listening, listener) =
            feed::listen(line, self.layout(), database, &self.agent).await?;
        self.listener.set(listener);
        Ok(listening)
    }

    async fn watch(&self, line: &mut Line, topics: &[Topic]) -> Result<Vec<Seen>, Failure> {
        feed::watch(line, self.layout(), topics).await
    }

    async fn hear(
        &self,
        line: &mut Line,
        audiences: &[Audience],
    ) -> Result<Option<String>, Failure> {
        feed::hear(line, self.layout(), "SUBSCRIBE", audiences).await
    }

    async fn stop_hearing(&self, line: &mut Line, audiences: &[Audience]) -> Result<(), Failure> {
        feed::hear(line, self.layout(), "UNSUBSCRIBE", audiences).await.map(drop)
    }

    fn serve_principals(&self) {
        self.serves_principals.set(true);
        self.dialer.connector().serve_principals();
    }

    async fn relay(&self, line: &mut Line, principal: &str, news: &[u8]) -> Result<(), Failure> {
        let channel = self.layout().agent_channel(&layout::agents_of(principal));
        line.send(redis::cmd("PUBLISH").arg(channel).arg(news)).await.map(drop)
    }

    async fn end_quarantine(&self, line: &mut Line) -> Result<(), Failure> {
        // `until` stays, as 0: an agent that notices the loss late must not begin the quarantine again.
        line.send(redis::cmd("HSET").arg(self.layout().epoch()).arg("until").arg(0)).await?;
        self.dialer.connector().epoch().end_quarantine();
        Ok(())
    }

    async fn verify(
        &self,
        line: &mut Line,
        claims: &[(ClaimId, Resource)],
    ) -> Result<Vec<Verified>, Failure> {
        self.run(line, exchange::verify(self.layout(), claims), exchange::verified).await
    }

    async fn do_chore(&self, line: &mut Line, chore: Chore, floor: u64) -> Result<Found, Failure> {
        let layout = self.layout();
        match chore {
            Chore::Care(semaphores) => {
                let invocation = exchange::care(layout, &semaphores, floor);
                self.run(line, invocation, exchange::cared).await.map(Found::Cared)
            }
            Chore::Stand => {
                let invocation = exchange::stand(layout, &self.agent, caretaker::TERM);
                let other = self.run(line, invocation, exchange::stood).await?;
                let hears_anew = self.overhear(line, other.is_none()).await?;
                Ok(Found::Stood(Stood { other, hears_anew }))
            }
            Chore::Sweep => {
                self.run(line, exchange::sweep(layout), exchange::swept).await.map(Found::Swept)
            }
            Chore::Survey(cursor) => feed::survey(line, layout, &cursor).await.map(Found::Surveyed),
        }
    }
}
