//! The names of all that is there, page by page: the server is walked through, a few keys at a time.

use redis::Value;
use tenure_core::model::{Answer, Page};
use tenure_wire::DEFAULT_TENANT;

use super::super::layout::{Layout, SemaphoreKey};
use super::reply::{Items, ReplyError, text};
use super::scripts::{self, Invocation};

/// Keys that one call looks at; the server may look at some more. That takes it a fraction of a millisecond.
const KEYS_PER_CALL: usize = 100;
/// The cursor at which a walk begins, and has ended.
const START: &str = "0";

pub(super) fn ask(layout: &Layout, page: &Page) -> Invocation {
    let is_number = |cursor: &&str| cursor.parse::<u64>().is_ok();
    let cursor = page.after.as_deref().filter(is_number).unwrap_or(START);
    let of_semaphores = |key| layout.semaphore(DEFAULT_TENANT, key, "");
    Invocation::new(&scripts::RESOURCES)
        .arg(cursor)
        .arg(page.limit.clamp(1, KEYS_PER_CALL))
        .arg(Layout::OTHER_TENANTS)
        .arg(layout.leader(DEFAULT_TENANT, ""))
        .arg(layout.lease(DEFAULT_TENANT, ""))
        .arg(layout.masters())
        .arg(layout.projects().0)
        .arg(of_semaphores(SemaphoreKey::Main))
        .arg(of_semaphores(SemaphoreKey::Waiting))
        .arg(of_semaphores(SemaphoreKey::WaitingHeartbeat))
        .arg(layout.queues_ends(DEFAULT_TENANT))
}

pub(super) fn answer(layout: &Layout, reply: Value) -> Result<Answer, ReplyError> {
    let mut items = Items::of(reply)?;
    let cursor = text(items.next())?;
    let mut resources = Vec::new();
    while !items.is_empty() {
        resources.extend(layout.occupied(&text(items.next())?));
    }
    let next = (cursor != START).then(|| cursor.into());
    Ok(Answer::Resources { resources, next })
}
