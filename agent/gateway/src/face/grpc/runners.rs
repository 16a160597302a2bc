//! Runners, as far as their calls came through this gateway: their connections, and the numbers of their heartbeats.
//!
//! The store is the truth; whoever is not here is found there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::{ClaimId, Resource, SessionId};
use tenure_core::time::Boottime;

use crate::face::line::Line;
use crate::mailbox::Connection;
use crate::metrics::Tally;

/// Runners that are remembered, about 400 bytes each. With more of them new ones are looked up at each heartbeat.
const REMEMBERED_MAX: usize = 65_536;
/// How often those whose time is up are looked for, at most.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The runners of leases.
#[derive(Debug, Default)]
pub(super) struct Runners(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_claim: HashMap<ClaimId, Runner>,
    /// The claim of a session for a mailbox.
    claims: HashMap<(SessionId, Resource), ClaimId>,
    sweep_at: Boottime,
}

/// A runner of a lease.
#[derive(Debug, Clone)]
pub(super) struct Runner {
    pub(super) session: SessionId,
    pub(super) resource: Resource,
    pub(super) heard_at: Boottime,
    pub(super) ttl: Duration,
    /// After its last heartbeat, or its grant.
    pub(super) until: Boottime,
    pub(super) line: Arc<Line>,
    /// The status that the routing table shows; `None` if that is not known.
    pub(super) status: Option<Arc<str>>,
    pub(super) numbers: Numbers,
}

/// The counts of a heartbeat.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Numbers {
    pub(super) events_stored: u64,
    pub(super) queries_served: u64,
    pub(super) storage_bytes: u64,
}

impl Runners {
    /// Notes a runner that was granted its lease, or whose heartbeat was answered.
    pub(super) fn note(&self, now: Boottime, claim: ClaimId, runner: Runner) {
        let mut known = self.known();
        known.sweep(now);
        if known.by_claim.len() >= REMEMBERED_MAX && !known.by_claim.contains_key(&claim) {
            return;
        }
        runner.line.may_be_quiet(runner.until.since(now));
        known.remove(claim);
        known.claims.insert((runner.session, runner.resource.clone()), claim);
        known.by_claim.insert(claim, runner);
    }

    /// Forgets a lease that has ended.
    pub(super) fn forget(&self, claim: ClaimId) {
        self.known().remove(claim);
    }

    /// The lease of a session.
    pub(super) fn of(&self, session: SessionId, resource: &Resource) -> Option<(ClaimId, Runner)> {
        let known = self.known();
        let claim = known.claims.get(&(session, resource.clone()))?;
        known.by_claim.get(claim).map(|runner| (*claim, runner.clone()))
    }

    /// The connection of the runner of a lease.
    pub(super) fn connection(&self, claim: ClaimId) -> Connection {
        match self.known().by_claim.get(&claim) {
            None => Connection::Unknown,
            Some(runner) => runner.line.lost_at().map_or(Connection::Open, Connection::LostAt),
        }
    }

    /// The mailboxes, and when their runners' last calls came.
    pub(super) fn heard(&self, now: Boottime) -> Vec<(Resource, Boottime)> {
        let mut known = self.known();
        known.sweep(now);
        known.by_claim.values().map(|it| (it.resource.clone(), it.heard_at)).collect()
    }

    pub(super) fn tally(&self, now: Boottime) -> Tally {
        let mut known = self.known();
        known.sweep(now);
        let mut tally = Tally { mailboxes: known.by_claim.len() as u64, ..Tally::default() };
        let mut sessions: Vec<_> = known.by_claim.values().map(|it| it.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        tally.runners = sessions.len() as u64;
        for Runner { numbers, .. } in known.by_claim.values() {
            tally.events_stored = tally.events_stored.saturating_add(numbers.events_stored);
            tally.queries_served = tally.queries_served.saturating_add(numbers.queries_served);
            tally.storage_bytes = tally.storage_bytes.saturating_add(numbers.storage_bytes);
        }
        tally
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Forgets runners whose leases are over unless they were renewed through another gateway.
    fn sweep(&mut self, now: Boottime) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_EVERY;
        let over = self.by_claim.iter().filter(|(_, runner)| runner.until <= now);
        let over: Vec<_> = over.map(|(claim, _)| *claim).collect();
        over.into_iter().for_each(|claim| self.remove(claim));
    }

    fn remove(&mut self, claim: ClaimId) {
        if let Some(Runner { session, resource, .. }) = self.by_claim.remove(&claim) {
            self.claims.remove(&(session, resource));
        }
    }
}
