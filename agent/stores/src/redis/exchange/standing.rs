//! Holders and waiters; all holders of a semaphore page by page.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tenure_core::model::{
    LeaseTimes, Resource, STANDING_LISTED_MAX, StandingEntry, UpstreamStanding,
};
use tenure_wire::Kind;

use super::super::layout::{Layout, SemaphoreKey};
use super::decode::{entry, limit};
use super::reply::{Items, ReplyError, count, count_if_any, list, text};
use super::scripts::{self, Invocation};

/// Holders, and waiters, of a page of all of them. Each takes about 30 us, and the server serves no other client during a
/// call.
const ENTRIES_PER_CALL: usize = 16;

/// A standing that is being read.
#[derive(Debug)]
pub(super) struct StandingPage {
    resource: Resource,
    /// True if it goes on after the first page.
    is_whole: bool,
    /// The number of the next member of a semaphore.
    offset: u64,
    /// Names of a large project's sessions that were read before: they are not asked for.
    names: Option<Vec<Arc<str>>>,
    standing: UpstreamStanding,
}

impl StandingPage {
    pub(super) fn new(resource: Resource, is_whole: bool) -> StandingPage {
        let standing = UpstreamStanding::default();
        StandingPage { resource, is_whole, offset: 0, names: None, standing }
    }

    pub(super) fn of_project(master: Resource, names: Vec<Arc<str>>) -> StandingPage {
        StandingPage { names: Some(names), ..StandingPage::new(master, false) }
    }

    pub(super) fn ask(&self, layout: &Layout) -> Invocation {
        let Resource { tenant, kind, name } = &self.resource;
        let script = match kind {
            Kind::Leader => &scripts::INSPECT_LEADER,
            Kind::Master => &scripts::INSPECT_MASTER,
            Kind::Lease => &scripts::INSPECT_LEASE,
            Kind::Semaphore => &scripts::INSPECT_PERMITS,
        };
        let call =
            Invocation::new(script).key(layout.main(&self.resource)).arg(layout.claim(tenant, ""));
        match kind {
            Kind::Leader | Kind::Lease => call
                .key(layout.queue(&self.resource))
                .key(layout.queue_ends(&self.resource))
                .arg(STANDING_LISTED_MAX),
            Kind::Master => call
                .key(layout.master_claim(tenant, name))
                .key(layout.sessions(tenant, name))
                .key(layout.queue(&self.resource))
                .key(layout.queue_ends(&self.resource))
                .arg(name)
                .arg(layout.session(""))
                .arg(layout.project_channel(tenant, name))
                .arg(if self.names.is_some() { 0 } else { STANDING_LISTED_MAX })
                .arg(STANDING_LISTED_MAX),
            Kind::Semaphore => call
                .key(layout.semaphore(tenant, SemaphoreKey::Ttl, name))
                .key(layout.semaphore(tenant, SemaphoreKey::Waiting, name))
                .key(layout.semaphore(tenant, SemaphoreKey::WaitingHeartbeat, name))
                .key(layout.semaphore(tenant, SemaphoreKey::Max, name))
                .arg(self.offset)
                .arg(if self.is_whole { ENTRIES_PER_CALL } else { STANDING_LISTED_MAX }),
        }
    }

    /// Takes a page: limit, holders, waiters, names of sessions, where the next page begins, when an
    /// exclusive holder's time is up, and how many holders, waiters and sessions there are. Whether
    /// another page is wanted.
    pub(super) fn take(&mut self, reply: Value) -> Result<bool, ReplyError> {
        let mut items = Items::of(reply)?;
        self.standing.limit = limit(items.next())?;
        for holder in list(items.next())? {
            self.standing.holders.push(entry(holder)?);
        }
        for waiter in list(items.next())? {
            self.standing.waiters.push(entry(waiter)?);
        }
        for name in list(items.next())? {
            self.standing.sessions.push(text(name)?.into());
        }
        let next = count_if_any(items.next())?;
        self.offset = next.unwrap_or(self.offset);
        // Negative where nobody holds it, or for as long as he likes.
        if let Value::Int(left) = items.next() {
            self.standing.runs_out = u64::try_from(left).ok().map(Duration::from_millis);
        }
        self.standing.holding = count(items.next())?;
        self.standing.waiting = count(items.next())?;
        self.standing.members = count(items.next())?;
        let times = items.next();
        if !matches!(times, Value::Nil) {
            self.standing.lease = lease_times(times)?;
        }
        if let Some(names) = self.names.take() {
            // A small project is listed as it is.
            if self.standing.members <= STANDING_LISTED_MAX as u64 {
                self.standing = UpstreamStanding::default();
                return Ok(true);
            }
            self.standing.sessions = names;
        }
        Ok(self.is_whole && next.is_some())
    }

    pub(super) fn finish(mut self) -> UpstreamStanding {
        let UpstreamStanding { holders, waiters, .. } = &mut self.standing;
        // Members that moved between two pages may have been read twice.
        keep_first(holders);
        keep_first(waiters);
        // Oldest first: of a Tenure agent the token tells, and what it does not know comes last.
        holders.sort_by_key(|holder| (holder.token == 0, holder.token));
        self.standing
    }
}

/// The times of a lease; nothing where nobody holds it.
fn lease_times(value: Value) -> Result<Option<LeaseTimes>, ReplyError> {
    let mut items = Items::of(value)?;
    if items.is_empty() {
        return Ok(None);
    }
    let mut next = || count(items.next()).map(Duration::from_millis);
    Ok(Some(LeaseTimes { ttl: next()?, grace: next()?, unbeaten: next()? }))
}

fn keep_first(entries: &mut Vec<StandingEntry>) {
    let mut met = HashSet::new();
    entries.retain(|entry| met.insert(entry.claim));
}
