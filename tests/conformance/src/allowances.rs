//! Differences from the engine that are right, and why. Every other difference is an error.
//!
//! Some are not listed here, since a plan never asks for them:
//!
//! - *A deadline's own ms.* Redis has a key live until its clock is past the deadline, the engine ends
//!   a grant at it. No request comes in the very ms of a deadline.
//! - *An ended claim with another resource than it was of.* The engine remembers only how it ended, a
//!   store may know for what it was as well. Agents know what their claims are of.
//! - *Claims of the same id in two tenants.* A store may find a record by tenant and id. No agent makes
//!   two claims of one id.

use std::sync::Arc;

use serde_json::Value;
use tenure_core::model::{Answer, BeatAnswer, GoneReason, UpstreamStanding};
use tenure_wire::Routes;

use crate::subject::Hint;

/// A difference from the engine that is right for a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// A claim that ran out is forgotten sooner.
    ///
    /// A mark of expiry lives for so long from the expiry on. The engine sets it when it comes to see
    /// the expiry, and where no timer woke it that is later: then it knows *expired* where a store,
    /// rightly, has forgotten the claim. Only for runs in which nobody comes in time.
    ForgetsSooner,
    /// Messages of what time brought about come late or never, and lack the session's name and host.
    ///
    /// Nobody may be there to publish them when it happens; and a session's name and host are in its
    /// record, which has expired by then.
    LateMessages,
    /// Hints of changed places are not compared.
    ///
    /// The store gives them by another way than messages, such as Redis by its tracking of keys.
    OtherHints,
    /// No hints are compared: they may be late, doubled or missing, and an agent asks again.
    NoHints,
    /// The sessions of a project come in another order than that of their announcements.
    SessionsInAnyOrder,
    /// A routing table is read page by page.
    ///
    /// Reading notes which leases have come into their grace. A table has the version of its first page,
    /// so that whoever compares versions reads again; lines of later pages may be newer.
    RoutesInPages,
    /// Among more holders than a standing lists, it lists those that run out first.
    OtherHoldersListed,
    /// Versions of routing tables grow more often than they must, or begin with the clock.
    OtherVersions,
    /// Routing tables have no hints of their own, since those of changed leases say as much.
    NoVersionHints,
    /// A standing does not say when it runs out, since the store tells of the end when it comes.
    TellsInTime,
    /// Among semaphores that are granted at one instant the order of tokens is open, and each tenant has
    /// tokens of its own.
    TokensByTenant,
    /// A gateway says itself who took something away, and keeps no change of a claim that it has not granted: plans and
    /// transcripts record such changes alone.
    OwnWords,
}

/// The store's answer as it would be if it forgot no sooner than the engine.
pub(crate) fn forgets_sooner(engine: &Answer, mut store: Answer) -> Answer {
    if let (Answer::Renew(engine), Answer::Renew(store)) = (engine, &mut store) {
        for (engine, store) in engine.iter().zip(store) {
            let forgotten = BeatAnswer::Gone(GoneReason::Unknown);
            let taken = BeatAnswer::Gone(GoneReason::Conflict);
            let expired = *engine == BeatAnswer::Gone(GoneReason::Expired);
            if expired && (*store == forgotten || *store == taken) {
                *store = engine.clone();
            }
        }
    }
    store
}

/// The store's answer as it would be if its gateway repeated who took something away.
pub(crate) fn in_words_of_callers(engine: &Answer, mut store: Answer) -> Answer {
    if let (Answer::Renew(engine), Answer::Renew(store)) = (engine, &mut store) {
        for (engine, store) in engine.iter().zip(store) {
            let BeatAnswer::Revoked(told) = &*store else { continue };
            let is_same = match engine {
                BeatAnswer::Revoked(said) => {
                    (&said.reason, said.for_ms) == (&told.reason, told.for_ms)
                }
                BeatAnswer::Gone(GoneReason::Revoked) => told.reason.is_none() && told.for_ms == 0,
                _ => false,
            };
            if is_same {
                *store = engine.clone();
            }
        }
    }
    store
}

/// Makes the engine's message say as little of a session as the store can.
pub(crate) fn nameless(engine: &mut Hint, mut store: Hint) {
    let (Some(engine), Some(store)) = (engine.payload_mut(), store.payload_mut()) else { return };
    if engine["type"] != "session_ended" {
        return;
    }
    for field in ["name", "host"] {
        if store.get(field).is_some_and(Value::is_null) {
            engine[field] = Value::Null;
        }
    }
}

/// The sessions of a project, sorted.
pub(crate) fn in_any_order(standing: &UpstreamStanding) -> Vec<Arc<str>> {
    let mut sessions = standing.sessions.clone();
    sessions.sort();
    sessions
}

/// A routing table as if it had been read at once.
pub(crate) fn in_one_page(store: &Routes, calls: usize) -> Routes {
    let mut routes = store.clone();
    if calls > 1 {
        let newest = routes.routes.iter().map(|route| route.version).max();
        routes.version = routes.version.max(newest.unwrap_or(0));
    }
    routes
}
