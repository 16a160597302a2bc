//! Calls that no request asks for: upkeep of semaphores, and a look at who still holds what.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tenure_core::model::{ClaimId, Resource};
use tenure_wire::Kind;

use super::super::layout::{Layout, SemaphoreKey, hyphenated, member};
use super::encode::millis;
use super::reply::{Items, ReplyError, count, count_if_any, integer, list, unexpected};
use super::scripts::{self, Invocation};
use crate::remote::Verified;

/// A semaphore to look after.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CareOf {
    /// Its tenant.
    pub tenant: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// True if the caller holds or waits for a permit of it: then its keys are kept for ever.
    pub shared: bool,
}

/// How a semaphore was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cared {
    /// How many hold a permit.
    pub holders: u64,
    /// How many wait for one.
    pub waiting: u64,
    /// When the first of them runs out unless it is renewed; a good time to look again.
    pub next: Option<Duration>,
    /// True if a holder or waiter of another program was seen.
    pub foreign: bool,
}

/// Purges who ran out, grants what is free, keeps keys from expiring under their users, and removes
/// what nobody uses. Writes nothing where nothing of that is due.
pub fn care(layout: &Layout, semaphores: &[CareOf], floor: u64) -> Invocation {
    let mut call = Invocation::new(&scripts::CARE).arg(floor);
    for CareOf { tenant, name, shared } in semaphores {
        let key = |key| layout.semaphore(tenant, key, name);
        call = call
            .key(key(SemaphoreKey::Main))
            .key(key(SemaphoreKey::Ttl))
            .key(key(SemaphoreKey::Waiting))
            .key(key(SemaphoreKey::WaitingHeartbeat))
            .key(key(SemaphoreKey::Max))
            .key(layout.fence(tenant))
            .arg(layout.claim(tenant, ""))
            .arg(layout.notification(tenant, ""))
            .arg(u8::from(*shared));
    }
    call
}

/// The findings of [`care`], in the same order.
pub fn cared(reply: Value) -> Result<Vec<Cared>, ReplyError> {
    let mut items = Items::of(reply)?;
    let mut cared = Vec::new();
    while !items.is_empty() {
        cared.push(Cared {
            holders: count(items.next())?,
            waiting: count(items.next())?,
            next: count_if_any(items.next())?.map(Duration::from_millis),
            foreign: count(items.next())? > 0,
        });
    }
    Ok(cared)
}

/// Stands for caretaker for so long.
pub fn stand(layout: &Layout, agent: &str, term: Duration) -> Invocation {
    Invocation::new(&scripts::STAND).key(layout.caretaker()).arg(agent).arg(millis(term))
}

/// How long another agent is the caretaker at least; `None` if it is this one.
pub fn stood(reply: Value) -> Result<Option<Duration>, ReplyError> {
    let left = count(reply)?;
    Ok((left > 0).then(|| Duration::from_millis(left)))
}

/// Takes dead members out of sets that cannot expire, a few at a time.
pub fn sweep(layout: &Layout) -> Invocation {
    Invocation::new(&scripts::SWEEP).key(layout.sets())
}

/// When the next [`sweep`] is due: at once if this one left something to do.
pub fn swept(reply: Value) -> Result<Duration, ReplyError> {
    count(reply).map(Duration::from_millis)
}

/// Looks whether each of these claims is held still. Writes nothing.
pub fn verify(layout: &Layout, claims: &[(ClaimId, Resource)]) -> Invocation {
    let mut call = Invocation::new(&scripts::VERIFY);
    for (claim, resource) in claims {
        let Resource { tenant, kind, name } = resource;
        let id = match kind {
            Kind::Semaphore => member(*claim),
            _ => hyphenated(claim.0),
        };
        call = call
            .key(layout.main(resource))
            .key(layout.claim(tenant, &hyphenated(claim.0)))
            // Every item has as many keys, and none that the caller may not read.
            .key(match kind {
                Kind::Master => layout.master_claim(tenant, name),
                _ => layout.main(resource),
            })
            .arg(kind)
            .arg(id);
    }
    call
}

/// The findings of [`verify`], in the same order.
pub fn verified(reply: Value) -> Result<Vec<Verified>, ReplyError> {
    list(reply)?
        .into_iter()
        .map(|answer| match integer(answer)? {
            0 => Ok(Verified::Gone),
            1 => Ok(Verified::Held),
            2 => Ok(Verified::ExpiresSoon),
            other => Err(unexpected("0, 1 or 2", &Value::Int(other))),
        })
        .collect()
}
