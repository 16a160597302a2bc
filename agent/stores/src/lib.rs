//! Upstreams, the stores of truth, and the journal of an agent.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod embedded;
pub mod gateway;
pub mod journal;
pub mod keyring;
pub mod postgres;
pub mod redis;
pub mod relay;
pub mod remote;
pub mod settings;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use tenure_core::engine;
pub use tenure_core::model::Report;
use tenure_core::model::{CallId, Request};
use tenure_core::time::Boottime;
use tenure_wire::{Check, GatewayStatus, UpstreamState};

use self::relay::Relay;
pub use self::remote::{Outage, Reach};

/// The health of the upstream, for people.
#[derive(Debug, Clone)]
pub struct Health {
    pub state: UpstreamState,
    /// The kind of the store behind a gateway, if that is down and the gateway is not.
    pub behind: Option<String>,
    /// Since when it is reached, or not; `None` where there is nothing to reach.
    pub reach: Option<Reach>,
    pub last_error: Option<String>,
    /// When that was.
    pub last_error_at: Option<Boottime>,
    /// The guarantee of the store as it was found, where that depends on its settings.
    pub guarantee: Option<&'static str>,
    /// Why nothing can be granted now, if that is for a reason of this host.
    pub grants_nothing: Option<String>,
    /// Why no requests should be sent to this process yet, where it is a node of the store.
    pub unready: Option<String>,
    /// The end of the store's quarantine, if the store lost data.
    pub grants_at: Option<Boottime>,
    /// The nodes that keep it, where this process is one of them.
    pub nodes: Option<Nodes>,
    /// The id of a store that several gateways can share, once it is known.
    pub store_id: Option<Arc<str>>,
    /// The gateways that are named, if there are several.
    pub gateways: Vec<GatewayStatus>,
}

impl Health {
    /// A store in this state, of which nothing else is to be said.
    pub fn of(state: UpstreamState) -> Health {
        Health {
            state,
            behind: None,
            reach: None,
            last_error: None,
            last_error_at: None,
            guarantee: None,
            grants_nothing: None,
            unready: None,
            grants_at: None,
            nodes: None,
            store_id: None,
            gateways: Vec::new(),
        }
    }
}

/// The nodes of a cluster, as one of them knows them. Who leads knows of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Nodes {
    /// This node leads.
    pub leads: bool,
    /// Nodes that vote.
    pub voters: usize,
    /// Nodes that have not answered this one for a while; 0 if it does not lead.
    pub silent: usize,
    /// Entries that the slowest node lacks; 0 if this one does not lead.
    pub behind: u64,
    /// The latest entry that this node has applied.
    pub applied: u64,
    /// Bytes of all that the cluster keeps, about.
    pub bytes: u64,
    /// Bytes that it may keep.
    pub bytes_max: u64,
}

/// An examination of an upstream: what was found, in the order in which it is worth reading.
///
/// Runs on the API's threads, so that it delays no beat, and is dropped when its caller goes away or
/// [`EXAMINATION_MAX`] has passed. Needs a runtime with time.
pub type Examination = Pin<Box<dyn Future<Output = Vec<Check>> + Send>>;

/// How long an examination may take; somebody waits for it at a terminal.
pub const EXAMINATION_MAX: Duration = Duration::from_millis(4500);

/// The checks of examinations whose findings name resources, of any tenant.
pub const NAMING_CHECKS: &[&str] = &[redis::examine::NAMING_CHECK];

/// A store of truth: the one authority on who holds what.
///
/// It is driven on the heart's thread and never waits there. Requests, answers and hints are in
/// [`model`](tenure_core::model); [`Engine`](engine::Engine) is the specification: a store answers as it would.
///
/// # To ensure correctness
///
/// Claims:
/// - The id of a claim is the operation id of its claim and its release. The same claim again is answered by
///   what has become of the first, with the same token, and is never a second grant.
/// - A claim that has ended leaves a mark for a minute at least. A claim that was released, preempted or
///   revoked is answered by [`GoneReason`](tenure_core::model::GoneReason) from then on, also if its release
///   came first. One that expired may be granted anew, with a new token.
/// - A session that was ended leaves a mark, too: an announcement that comes later is answered, and takes no
///   effect.
/// - `Unknown` is said of a claim without a mark only: the agent concludes that the store lost its data.
///
/// Grants:
/// - Tokens only grow: a grant's token is greater than that of each grant before it in the namespace, over
///   release, expiry, restart, fail-over, and clocks that are set back.
/// - A grant is as durable as the store's guarantee says before anybody is told of it.
/// - A grant or a place in a queue lasts a whole ttl from the arrival of the claim or of the latest beat, by
///   the store's own clock. A beat never shortens it. A holder's valid-until counts from an earlier instant and
///   is over before.
/// - Permits go to those who wait and are alive, in the order of their claims. A grant that its waiter has
///   not confirmed by a beat is soon taken back.
/// - What takes a hold from somebody takes effect, and is reported, before what gives it to somebody else.
/// - A refusal or a read changes nothing, and wakes up nobody.
pub trait Upstream {
    /// The health of the store, as far as it is known now.
    ///
    /// To ensure correctness:
    /// - It asks nobody and costs nothing: it is called for every probe.
    /// - No text in it contains a secret.
    fn health(&self) -> Health;

    /// A thorough look at the store and its settings, to be run elsewhere.
    ///
    /// To ensure correctness:
    /// - It has a connection of its own, and changes nothing in the store.
    fn examine(&self) -> Examination;

    /// True if its data are part of the agent's own journal. A call to it takes effect together
    /// with the turn that makes it, and may be made before the turn is secured.
    ///
    /// To ensure correctness:
    /// - It is the same for the life of the store.
    /// - If false, calls come only when the journal and the pages of their turn are written: a release must
    ///   not give to another host what a page of this one still shows as held.
    fn shares_journal(&self) -> bool;

    /// Starts a call, which leaves with [`Upstream::dispatch`] at the latest.
    ///
    /// To ensure correctness:
    /// - Each call is answered by exactly one [`Report::Answer`], in any order, within a deadline of the
    ///   store's own. A connection that breaks does not change that.
    /// - The answer comes out of [`Upstream::poll_report`]; this neither waits nor blocks.
    /// - [`Failure::Unavailable`](tenure_core::model::Failure::Unavailable) says that no byte of the
    ///   request has left. After that it is
    ///   [`Failure::Unknown`](tenure_core::model::Failure::Unknown), whatever happens: the request may have
    ///   taken effect, or may do so later. An answer that cannot be read is unknown, too.
    /// - `sent_at` is an instant before the first byte of the request leaves; of the last repetition, where the
    ///   store repeats by itself. Earlier is safe, later is not: valid-until counts from it.
    /// - An answer is of the request's own kind. That to [`Request::Renew`] has one item for each beat,
    ///   in the same order.
    /// - A standing counts everybody, and lists at most
    ///   [`STANDING_LISTED_MAX`](tenure_core::model::STANDING_LISTED_MAX) of each sort.
    fn submit(&mut self, now: Boottime, call: CallId, request: Request);

    /// The store as one that other gateways share; `None` if it cannot be shared.
    fn as_relay(&mut self) -> Option<&mut dyn Relay> {
        None
    }

    /// Has the calls leave that were started, as far as they can. To be polled again afterwards.
    fn dispatch(&mut self) {}

    /// The next thing it has to say.
    ///
    /// To ensure correctness:
    /// - After `Pending` the waker is woken as soon as there is something.
    /// - [`Report::Change`] is a hint. It may come late, twice or not at all; the keeper asks, and acts on the
    ///   answer.
    /// - [`Report::Lost`] is the truth. It is said only of a claim that this store knows to have ended without
    ///   its release, before anything that follows from that end.
    /// - [`Report::FeedLost`] follows each gap in which hints could be missed, once new ones come again: the
    ///   keeper then asks for everything, and nothing may fall between. A first connection is such a gap, and
    ///   so are hints that a bounded queue had no room for.
    /// - What one step brings about is told in the order in which it happened.
    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Report>;

    /// When [`Upstream::handle_timeout`] wants to be called; may be in the past.
    ///
    /// To ensure correctness:
    /// - After a call of `handle_timeout` it is later, unless there is more to do.
    fn poll_timeout(&self) -> Option<Boottime>;

    /// Does what is due.
    ///
    /// To ensure correctness:
    /// - `now` is the only clock. Instants never go back from one call to the next, of whichever method.
    /// - A call too many does no harm.
    /// - One call does a bounded part of what is due, and leaves the rest due.
    fn handle_timeout(&mut self, now: Boottime);

    /// Grants again, although what an earlier agent granted may be valid still; how long it would have
    /// been. `None` if there is no quarantine.
    ///
    /// To ensure correctness:
    /// - It is called on an administrator's word alone.
    fn end_quarantine(&mut self, _now: Boottime) -> Option<Duration> {
        None
    }

    /// The keys of what it has in the agent's own journal.
    ///
    /// To ensure correctness:
    /// - A store that shares the journal gives all of them, sessions in the order of their announcement; any
    ///   other gives none.
    fn rows(&self) -> Vec<engine::journal::Key> {
        Vec::new()
    }

    /// A row of the journal as it is now; `None` if it has ended.
    ///
    /// To ensure correctness:
    /// - A journal is written anew over many turns, key by key: rows as they are when they are asked for, and
    ///   all entries written since the keys were, make a state that can be taken up.
    fn row(&self, _key: &engine::journal::Key) -> Option<engine::journal::Entry> {
        None
    }

    /// About how many rows there are.
    fn rows_count(&self) -> usize {
        0
    }

    /// The agent ends, and has released everything: the next one finds nothing unexplained.
    ///
    /// To ensure correctness:
    /// - It is the last call, and not made by an agent that restarts or could not release everything.
    /// - It does not wait for a disk or a network.
    fn close(&mut self);
}
