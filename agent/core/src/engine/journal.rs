//! Rows that must survive a restart of the engine.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_wire::Kind;

use super::history::SavedChange;
use crate::model::{Claim, ClaimId, Resource, SessionId, SessionRecord};
use crate::time::Boottime;

/// A grant as the journal keeps it. When it expires is not kept: a restart gives it a whole ttl.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedGrant {
    /// Its row: grows with every claim.
    pub row: u64,
    pub claim: Claim,
    pub token: u64,
    pub granted_at: Boottime,
    /// Lease only: it has expired and waits for its former holder.
    pub in_grace: bool,
    /// Lease only: the version of the routing table when this line of it changed last.
    pub route_version: u64,
}

/// A waiter as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedWaiter {
    /// Its row: grows with every claim, so rows are the order of the queue.
    pub row: u64,
    pub claim: Claim,
    /// Since when it waits.
    pub since: Boottime,
}

/// One change of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Write or overwrite.
    Grant(Box<SavedGrant>),
    /// Remove.
    GrantEnded {
        /// The grant's row.
        row: u64,
    },
    /// Write or overwrite.
    Waiter(Box<SavedWaiter>),
    /// Remove.
    WaiterEnded {
        /// The waiter's row.
        row: u64,
    },
    /// Write or overwrite. A semaphore without one has the limit of its claims.
    Limit {
        resource: Resource,
        /// The limit in force.
        limit: u32,
    },
    /// Remove, if there.
    LimitEnded { resource: Resource },
    /// Write or overwrite.
    Session(Box<SessionRecord>),
    /// Remove.
    SessionEnded(SessionId),
    /// Write or overwrite the version of a routing table.
    Routes {
        /// `None` for every tenant without leases.
        tenant: Option<Arc<str>>,
        version: u64,
    },
    /// Remove, if there.
    RoutesEnded { tenant: Arc<str> },
    /// Write.
    History(Box<SavedChange>),
    /// Remove, if there.
    HistoryEnded {
        /// The change's row.
        row: u64,
    },
}

/// A row of the journal, as the engine finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// A grant or a waiter.
    Claim(ClaimId),
    /// The limit of a semaphore.
    Limit(Box<Resource>),
    /// An announced session.
    Session(SessionId),
    /// The version of a routing table; `None` for every tenant without leases.
    Routes(Option<Arc<str>>),
    /// A change of who holds a resource.
    History(u64),
}

/// Everything that the journal knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saved {
    /// Grants, in any order.
    pub grants: Vec<SavedGrant>,
    /// Waiters, in any order.
    pub waiters: Vec<SavedWaiter>,
    /// Limits of semaphores whose users disagree.
    pub limits: Vec<(Resource, u32)>,
    /// Announced sessions, in the order in which they were announced.
    pub sessions: Vec<SessionRecord>,
    /// Versions of routing tables.
    pub routes: Vec<(Option<Arc<str>>, u64)>,
    /// Changes of who holds what, by row.
    pub changes: Vec<SavedChange>,
}

impl Saved {
    /// The greatest token of any grant; 0 without grants.
    pub fn token_max(&self) -> u64 {
        self.grants.iter().map(|grant| grant.token).max().unwrap_or(0)
    }

    /// The longest ttl of a grant or a waiter; zero without any.
    pub fn longest_ttl(&self) -> Duration {
        self.claims().map(|claim| claim.ttl).max().unwrap_or(Duration::ZERO)
    }

    fn claims(&self) -> impl Iterator<Item = &Claim> {
        let waiters = self.waiters.iter().map(|waiter| &waiter.claim);
        self.grants.iter().map(|grant| &grant.claim).chain(waiters)
    }

    /// Looks for what no engine has written.
    ///
    /// # Errors
    ///
    /// The row that contradicts another.
    pub fn check(&self) -> Result<(), String> {
        let mut ids = HashSet::new();
        if let Some(twice) = self.claims().find(|claim| !ids.insert(claim.id)) {
            return Err(format!("claim {} is in it twice", twice.id));
        }
        let mut tokens = HashSet::new();
        let mut taken = HashSet::new();
        for grant in &self.grants {
            let resource = &grant.claim.resource;
            if !tokens.insert(grant.token) {
                return Err(format!("token {} is granted twice", grant.token));
            }
            if resource.kind != Kind::Semaphore && !taken.insert(resource) {
                return Err(format!("{resource} is granted twice"));
            }
        }
        Ok(())
    }
}
