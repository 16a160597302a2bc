//! Looks after those who wait for exclusive resources. Agents leave that to beats of waiters; in the corpus it is
//! done when something is due, as the engine does it.

use std::time::Duration;

use redis::Value;
use tenure_core::model::{Beat, ClaimId, Request, Resource, Subject};
use tenure_stores::redis::exchange::{By, Exchange, Invocation};
use tenure_stores::redis::layout::Layout;
use uuid::Uuid;

use crate::subject::Upkeep;

/// The script that beats, and the line before which looks are added to it.
const SCRIPT: &str = "renew";
const BEFORE: &str = "local function beat_session(";
const LOOK: &str = include_str!("look.lua");
/// The items of a beat: its kind, the tenant, the claim, the name and the ttl.
const ITEMS: usize = 5;

/// A script as the corpus runs it.
pub(super) fn added_to(name: &str, source: &str) -> String {
    if name != SCRIPT {
        return source.to_owned();
    }
    assert_eq!(source.matches(BEFORE).count(), 1, "looks are added at one place");
    source.replace(BEFORE, &[LOOK, BEFORE].concat())
}

/// Resources that one call looks at: a call has no more beats than the server does in a moment.
pub(super) const PER_CALL: usize = 32;

/// One look at each of these, at most [`PER_CALL`]: a call with a beat of each, made into looks.
pub(super) fn call(layout: &Layout, resources: &[Resource], by: By) -> Invocation {
    let beat = |resource: &Resource| Beat {
        subject: Subject::Claim { claim: ClaimId(Uuid::nil()), resource: resource.clone() },
        ttl: Duration::from_secs(1),
    };
    let beats = Request::Renew(resources.iter().map(beat).collect());
    let (_, mut call) = Exchange::start(layout, &beats, by);
    let first = call.args.len() - resources.len() * ITEMS;
    for item in call.args[first..].chunks_mut(ITEMS) {
        item[2] = std::mem::replace(&mut item[0], b"look".to_vec());
    }
    call
}

/// How each was left.
pub(super) fn found(reply: Value) -> Result<Vec<Upkeep>, String> {
    let looks: Vec<(String, i64, u64)> =
        redis::from_redis_value(reply).map_err(|error| error.to_string())?;
    let upkeep = |(_, next, waiting_and_taken): (String, i64, u64)| Upkeep {
        holders: waiting_and_taken % 2,
        waiting: waiting_and_taken / 2,
        // Negative where nobody holds it, or for as long as he likes.
        next: u64::try_from(next).ok().map(Duration::from_millis),
    };
    Ok(looks.into_iter().map(upkeep).collect())
}
