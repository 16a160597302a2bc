//! Reading replies.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tenure_core::model::{
    ClaimAnswer, ClaimId, GoneReason, Owner, Revocation, SessionId, StandingEntry,
};

use super::foreign::{UNKNOWN_HOST, id_of};
use super::reply::{Items, ReplyError, count, count_if_any, text, text_if_any, unexpected};

pub(super) fn claim(reply: Value) -> Result<ClaimAnswer, ReplyError> {
    let mut items = Items::of(reply)?;
    let word = items.next();
    match text(word.clone())?.as_str() {
        "held" => Ok(ClaimAnswer::Held {
            token: count(items.next())?,
            limit: limit(items.next())?,
            limit_was: limit(items.next())?,
        }),
        "waiting" => Ok(ClaimAnswer::Waiting {
            position: count(items.next())?,
            limit: limit(items.next())?,
            limit_was: limit(items.next())?,
        }),
        "contended" => Ok(ClaimAnswer::Contended {
            free_in: count_if_any(items.next())?.map(Duration::from_millis),
            limit: limit(items.next())?,
            holder: match items.next() {
                Value::Nil => None,
                holder => Some(entry(holder)?),
            },
            limit_was: limit(items.next())?,
        }),
        "gone" => Ok(ClaimAnswer::Gone(gone(items.next())?)),
        "quarantined" => {
            Ok(ClaimAnswer::Quarantined { free_in: Duration::from_millis(count(items.next())?) })
        }
        _ => Err(unexpected("held, waiting, contended, gone or quarantined", &word)),
    }
}

pub(super) fn gone(value: Value) -> Result<GoneReason, ReplyError> {
    match text(value.clone())?.as_str() {
        "released" => Ok(GoneReason::Released),
        "expired" => Ok(GoneReason::Expired),
        "preempted" => Ok(GoneReason::Preempted),
        "revoked" => Ok(GoneReason::Revoked),
        "unknown" => Ok(GoneReason::Unknown),
        "conflict" => Ok(GoneReason::Conflict),
        _ => Err(unexpected("a reason", &value)),
    }
}

/// The words of a revocation, as the mark of an ended claim has them.
pub(super) fn words_of(revocation: &Revocation) -> String {
    // It has strings and a number: there is nothing that JSON has no form for.
    serde_json::to_string(revocation).unwrap_or_default()
}

/// Reads words of a revocation. Those of a later version, or damaged ones, are none.
pub(super) fn revocation(value: &Value) -> Option<Arc<Revocation>> {
    match value {
        Value::BulkString(words) => serde_json::from_slice(words).ok().map(Arc::new),
        _ => None,
    }
}

/// A semaphore's limit. Other programs may write what no Tenure agent would.
pub(super) fn limit(value: Value) -> Result<Option<u32>, ReplyError> {
    let limit = count_if_any(value)?;
    Ok(limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)))
}

/// A holder or waiter: its claim (or for other programs what they are known by), its session, host
/// and name as far as they are known, the token, for how long, µs, and where it is told for how long nobody has renewed
/// it, ms.
pub(super) fn entry(value: Value) -> Result<StandingEntry, ReplyError> {
    let mut items = Items::of(value)?;
    let value = text(items.next())?;
    let session = text_if_any(items.next())?;
    let host = text_if_any(items.next())?;
    let name = text_if_any(items.next())?;
    let session = session.as_deref().unwrap_or(&value);
    Ok(StandingEntry {
        claim: ClaimId(id_of(&value)),
        owner: Owner {
            session: SessionId(id_of(session)),
            host: host.map_or_else(|| UNKNOWN_HOST.into(), Arc::from),
            name: name.map_or_else(|| value.as_str().into(), Arc::from),
        },
        token: count(items.next())?,
        since: Duration::from_micros(count(items.next())?),
        unbeaten: count_if_any(items.next())?.map(Duration::from_millis),
    })
}
