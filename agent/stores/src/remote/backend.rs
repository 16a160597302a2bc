//! The part that the author of a remote store writes.

use std::time::Duration;

use tenure_core::model::{Answer, ClaimId, Failure, Request, Resource};
use tenure_core::time::Boottime;

use super::audiences::Audience;
use super::calls::Line;
use super::hints::Hint;
use super::link::Connector;

/// Connections to a backend's store.
pub type ConnectionOf<B> = <<B as Backend>::Connector as Connector>::Connection;
/// One of its connections, as one call sees it.
pub type LineOf<B> = Line<ConnectionOf<B>>;
/// A piece of work that it found by itself.
pub type ChoreOf<B> = <<B as Backend>::Chores as Chores>::Chore;
/// The outcome of that work.
pub type FoundOf<B> = <<B as Backend>::Chores as Chores>::Found;

/// A step in the life of a claim of this agent, for work that depends on who uses a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimStep {
    /// The agent has a claim from now on.
    Tracked,
    /// The first in the resource's queue, over all hosts, is a claim of the agent.
    IsNext,
    /// It is not any more.
    IsNextNoMore,
    /// The agent has the claim no longer.
    Forgotten,
}

/// A remote store: what is asked of it, and how. [`super::Driver`] makes an upstream of it. Lives on the
/// heart's thread.
#[expect(async_fn_in_trait, reason = "its futures stay on the heart's thread")]
pub trait Backend: 'static {
    type Connector: Connector;
    /// [`NoChores`] if it has none.
    type Chores: Chores;

    /// True if the store has [`Backend::end_quarantine`].
    const ENDS_QUARANTINES: bool = false;

    /// Performs one operation. `floor` is the greatest token that this agent has seen: nothing at or
    /// below it may be granted.
    ///
    /// To ensure correctness:
    /// - the same request with the same ids may be performed again, and is then the same operation;
    /// - [`Line::sending`] is called immediately before the bytes leave;
    /// - [`Failure::Unavailable`] says that the request took and will take no effect; everything that is
    ///   not certain is [`Failure::Unknown`];
    /// - it may be dropped at any await, when its deadline has passed.
    async fn perform(
        &self,
        line: &mut LineOf<Self>,
        request: &Request,
        floor: u64,
    ) -> Result<Answer, Failure>;

    /// Starts the change feed on a connection of [`super::Purpose::Feed`]. Its hints go into the sink
    /// that the connector got.
    ///
    /// To ensure correctness: every change after the answer is hinted, or the answer says that not all
    /// are. A store whose feed starts with its connection has nothing to do.
    async fn listen(&self, _line: &mut LineOf<Self>) -> Result<Listening, Failure> {
        Ok(Listening { hears: Hears::Everything, refused: None })
    }

    /// Sees to it that the next change of each of these, at most 256, is hinted; asked of the feed's
    /// connection if it [`Hears::Watched`]. Whether each has come about already, or when it will.
    ///
    /// To ensure correctness: what changes after the answer is hinted, and the answer tells what has come
    /// about before it.
    async fn watch(
        &self,
        _line: &mut LineOf<Self>,
        topics: &[Topic],
    ) -> Result<Vec<Seen>, Failure> {
        Ok(vec![Seen::NotYet; topics.len()])
    }

    /// Sees to it that messages to these are hinted; asked of the feed's connection. The
    /// store's refusal, if it refuses.
    ///
    /// To ensure correctness: every message after the answer is hinted.
    async fn hear(
        &self,
        _line: &mut LineOf<Self>,
        _audiences: &[Audience],
    ) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    /// Messages to these need not be hinted any more.
    async fn stop_hearing(
        &self,
        _line: &mut LineOf<Self>,
        _audiences: &[Audience],
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// From now on a claim belongs to the principal that its id ends with: whoever listens for
    /// [`Audience::Principal`] is told what becomes of it.
    fn serve_principals(&self) {}

    /// Tells whoever listens for this principal.
    async fn relay(
        &self,
        _line: &mut LineOf<Self>,
        _principal: &str,
        _news: &[u8],
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// Has a store that lost data grant again; see [`Upstream::end_quarantine`](crate::Upstream::end_quarantine).
    async fn end_quarantine(&self, _line: &mut LineOf<Self>) -> Result<(), Failure> {
        Err(Failure::Unavailable("this store is in no quarantine of its own".to_owned()))
    }

    /// Looks whether these claims, at most 256, are held still; the findings come in the same order.
    /// Changes nothing. By default the keeper is made to ask, with a beat for each.
    async fn verify(
        &self,
        _line: &mut LineOf<Self>,
        claims: &[(ClaimId, Resource)],
    ) -> Result<Vec<Verified>, Failure> {
        Ok(vec![Verified::Gone; claims.len()])
    }

    /// Does a piece of work that [`Chores`] found.
    async fn do_chore(
        &self,
        _line: &mut LineOf<Self>,
        _chore: ChoreOf<Self>,
        _floor: u64,
    ) -> Result<FoundOf<Self>, Failure> {
        Err(Failure::Unavailable("this store has no chores".to_owned()))
    }
}

/// A change that somebody of this agent waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The resource is free, or, once watched, its holder or its project has changed.
    Resource(Resource),
    /// A claim of this agent has no more what it held, or, once watched, its holder has changed. Not asked of
    /// masters.
    Held(ClaimId, Resource),
    /// A waiting claim is granted.
    Grant(ClaimId, Resource),
}

/// How far a topic has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    CameAbout,
    NotYet,
    /// Of a semaphore that is held: how many hold it.
    Holders(u64),
    /// Nothing is hinted in time when somebody's time is up; it is so long from now, unless he renews.
    ComesIn(Duration),
}

/// The changes that a feed hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hears {
    /// All of them.
    Everything,
    /// The next one of what is watched: see [`Backend::watch`].
    Watched,
    /// Not all. Shared resources are verified every few seconds.
    Part,
}

/// The state of the change feed of a connection that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    pub hears: Hears,
    /// The server's refusal of a part of the feed.
    pub refused: Option<String>,
}

/// The state of the change feed, for an examination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedState {
    Up,
    /// The server refused a part of it.
    Partial(String),
    Down,
}

/// The finding about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// It is held.
    Held,
    /// It is held, but what the store needs for it expires before long.
    ExpiresSoon,
    /// It is not held.
    Gone,
}

/// Work that no client asked for. Pure: decides what is to be done and when; [`Backend::do_chore`] does
/// it.
pub trait Chores: 'static {
    type Chore: Clone + 'static;
    type Found: 'static;

    fn handle_hint(&mut self, now: Boottime, hint: &Hint);

    /// A claim of this agent has come to another step of its life.
    fn handle_claim_step(&mut self, now: Boottime, resource: &Resource, step: ClaimStep);

    /// See [`Verified::ExpiresSoon`].
    fn handle_expires_soon(&mut self, now: Boottime, resource: &Resource);

    /// The feed has started.
    fn feed_started(&mut self, now: Boottime, hears: Hears);

    /// The feed is interrupted.
    fn feed_stopped(&mut self);

    /// When [`Chores::take`] has something.
    fn poll_timeout(&self) -> Option<Boottime>;

    /// The next piece of work that is due. Bounded: `None` after some.
    fn take(&mut self, now: Boottime) -> Option<Self::Chore>;

    /// A piece of work is done; `None` if it failed.
    fn handle_done(&mut self, now: Boottime, chore: Self::Chore, found: Option<Self::Found>);
}

/// No work at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoChores;

impl Chores for NoChores {
    type Chore = ();
    type Found = ();

    fn handle_hint(&mut self, _now: Boottime, _hint: &Hint) {}
    fn handle_claim_step(&mut self, _now: Boottime, _resource: &Resource, _step: ClaimStep) {}
    fn handle_expires_soon(&mut self, _now: Boottime, _resource: &Resource) {}
    fn feed_started(&mut self, _now: Boottime, _hears: Hears) {}
    fn feed_stopped(&mut self) {}

    fn poll_timeout(&self) -> Option<Boottime> {
        None
    }

    fn take(&mut self, _now: Boottime) -> Option<()> {
        None
    }

    fn handle_done(&mut self, _now: Boottime, _chore: (), _found: Option<()>) {}
}
