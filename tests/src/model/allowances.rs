//! Where the upstream may differ from the engine, and why it must. Everything else is a difference.
//!
//! Some differences are not answered but never asked for, by `Plan`:
//!
//! - *A deadline's own ms.* Redis has a key live until its clock is past the deadline, the engine ends
//!   a grant at it. No request comes in the very ms of a deadline.
//! - *`max_hold`.* Redis does not know it: the agent counts it, and releases. Claims come without.
//! - *An ended claim with another resource than it was of.* The engine remembers only how it ended, the
//!   upstream for what it was as well. Agents know what their claims are of.
//! - *Claims of the same id in two tenants.* A record is found by tenant and id. No agent makes two
//!   claims of one id.

use std::sync::Arc;

use serde_json::Value;
use tenure::wire::Routes;
use tenure_core::model::{Answer, BeatAnswer, GoneReason, UpstreamStanding};

/// The upstream's answer as it would be if it forgot no sooner than the engine.
///
/// A mark of expiry lives for so long from the expiry on. The engine sets it when it comes to see the
/// expiry, and where no timer woke it that is later: then it knows *expired* where the upstream,
/// rightly, has forgotten the claim. Only for runs in which nobody comes in time.
pub(super) fn forgets_sooner(engine: &Answer, mut upstream: Answer) -> Answer {
    if let (Answer::Renew(engine), Answer::Renew(upstream)) = (engine, &mut upstream) {
        for (engine, upstream) in engine.iter().zip(upstream) {
            let forgotten = BeatAnswer::Gone(GoneReason::Unknown);
            let taken = BeatAnswer::Gone(GoneReason::Conflict);
            let expired = *engine == BeatAnswer::Gone(GoneReason::Expired);
            if expired && (*upstream == forgotten || *upstream == taken) {
                *upstream = engine.clone();
            }
        }
    }
    upstream
}

/// Makes the engine's message say as little of a session as the upstream can.
///
/// A session's name and host are in its hash, and whoever finds that it has expired finds them gone.
pub(super) fn nameless(engine: &mut Value, upstream: &Value) {
    if engine["type"] != "session_ended" {
        return;
    }
    for field in ["name", "host"] {
        if upstream.get(field).is_some_and(Value::is_null) {
            engine[field] = Value::Null;
        }
    }
}

/// The sessions of a project, sorted.
///
/// The engine lists them in the order in which they were announced as they are; in Redis, where other
/// programs register theirs too, what there is of an order is when they registered first.
pub(super) fn in_any_order(standing: &UpstreamStanding) -> Vec<Arc<str>> {
    let mut sessions = standing.sessions.clone();
    sessions.sort();
    sessions
}

/// A routing table as if it had been read at once.
///
/// A long one is read page by page, and reading notes which leases have come into their grace. It has
/// the version of its first page, so that whoever compares versions reads again; lines of later pages
/// may be newer.
pub(super) fn in_one_page(upstream: &Routes, calls: usize) -> Routes {
    let mut routes = upstream.clone();
    if calls > 1 {
        let newest = routes.routes.iter().map(|route| route.version).max();
        routes.version = routes.version.max(newest.unwrap_or(0));
    }
    routes
}
