//! The rows that the journals of agent and upstream must have, as tables in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure::wire::Wait;
use tenure_core::engine::SavedChange;
use tenure_core::engine::journal::{
    Entry as EngineEntry, Saved as EngineSaved, SavedGrant, SavedWaiter,
};
use tenure_core::keeper::journal::{Entry, Saved, SavedEnd, SavedHold, SavedSession};
use tenure_core::model::{ClaimId, Resource, SessionId, SessionRecord};
use tenure_core::time::Boottime;

/// The journal of an agent, and what it does not say.
#[derive(Default)]
pub(crate) struct AgentJournal {
    /// The rows that it must have.
    pub(crate) rows: AgentRows,
    /// Holds may be valid longer than it says: it had no space for their renewals.
    pub(crate) lacks_renewals: bool,
}

/// The rows of an agent's journal.
#[derive(Default)]
pub(crate) struct AgentRows {
    sessions: BTreeMap<SessionId, SavedSession>,
    holds: BTreeMap<u64, SavedHold>,
    remembered: Vec<SavedEnd>,
    /// Those that ever were.
    guarded: BTreeSet<SessionId>,
}

impl AgentRows {
    /// Writes an entry.
    pub(crate) fn write(&mut self, entry: Entry) {
        match entry {
            Entry::Session(saved) => {
                if saved.guarded {
                    self.guarded.insert(saved.id);
                }
                self.sessions.insert(saved.id, *saved);
            }
            Entry::SessionEnded(session) => {
                self.sessions.remove(&session);
            }
            Entry::Hold(mut saved) => {
                let beaten = self.holds.get(&saved.row).map(|former| former.valid_until);
                saved.valid_until = saved.valid_until.max(beaten.unwrap_or(Boottime::ZERO));
                self.holds.insert(saved.row, *saved);
            }
            Entry::Valid { row, valid_until } => {
                if let Some(saved) = self.holds.get_mut(&row) {
                    saved.valid_until = saved.valid_until.max(valid_until);
                }
            }
            Entry::HoldEnded { row, .. } => {
                self.holds.remove(&row);
            }
            Entry::Remembered(end) => self.remembered.push(end),
        }
    }

    /// Everything, as a new agent reads it.
    pub(crate) fn saved(&self) -> Saved {
        Saved {
            sessions: self.sessions.values().cloned().collect(),
            holds: self.holds.values().cloned().collect(),
            remembered: self.remembered.clone(),
        }
    }

    /// True if it has the session.
    pub(crate) fn has_session(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// True if a session's work may go on without it, also if it has just ended.
    pub(crate) fn is_guarded(&self, session: SessionId) -> bool {
        self.guarded.contains(&session)
    }

    /// True if the grant of a hold is told by its event, even if no client reads the reply.
    pub(crate) fn is_told_by_event(&self, hold: ClaimId) -> bool {
        self.holds.values().any(|saved| saved.claim.id == hold && saved.wait == Wait::Queue)
    }

    /// How many wait for callers that are blocked until they are granted.
    pub(crate) fn blocked(&self) -> usize {
        let waits = |saved: &&SavedHold| {
            saved.wait == Wait::Block && saved.token.is_none() && !saved.departing
        };
        self.holds.values().filter(waits).count()
    }

    /// How many sessions and holds are in it.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.sessions.len(), self.holds.len())
    }

    /// Its content, for people.
    pub(crate) fn names(&self) -> Vec<String> {
        let sessions = self.sessions.keys().map(|session| format!("session {session}"));
        let holds = self.holds.values().map(|saved| format!("hold {}", saved.claim.id));
        sessions.chain(holds).collect()
    }
}

/// The journal of an engine.
#[derive(Default)]
pub(crate) struct EngineRows {
    /// Grants by row.
    pub(crate) grants: BTreeMap<u64, SavedGrant>,
    /// Waiters by row.
    pub(crate) waiters: BTreeMap<u64, SavedWaiter>,
    limits: BTreeMap<Resource, u32>,
    /// In the order in which they were announced.
    sessions: Vec<SessionRecord>,
    routes: BTreeMap<Option<Arc<str>>, u64>,
    changes: BTreeMap<u64, SavedChange>,
}

impl EngineRows {
    /// Writes an entry, and tells which resource it is about.
    pub(crate) fn write(&mut self, entry: EngineEntry) -> Option<Resource> {
        match entry {
            EngineEntry::Grant(saved) => {
                let resource = saved.claim.resource.clone();
                self.grants.insert(saved.row, *saved);
                Some(resource)
            }
            EngineEntry::GrantEnded { row } => {
                self.grants.remove(&row).map(|saved| saved.claim.resource)
            }
            EngineEntry::Waiter(saved) => {
                let resource = saved.claim.resource.clone();
                self.waiters.insert(saved.row, *saved);
                Some(resource)
            }
            EngineEntry::WaiterEnded { row } => {
                self.waiters.remove(&row).map(|saved| saved.claim.resource)
            }
            EngineEntry::Limit { resource, limit } => {
                self.limits.insert(resource.clone(), limit);
                Some(resource)
            }
            EngineEntry::LimitEnded { resource } => {
                self.limits.remove(&resource);
                Some(resource)
            }
            EngineEntry::Session(record) => {
                self.sessions.retain(|known| known.owner.session != record.owner.session);
                self.sessions.push(*record);
                None
            }
            EngineEntry::SessionEnded(session) => {
                self.sessions.retain(|known| known.owner.session != session);
                None
            }
            EngineEntry::Routes { tenant, version } => {
                self.routes.insert(tenant, version);
                None
            }
            EngineEntry::RoutesEnded { tenant } => {
                self.routes.remove(&Some(tenant));
                None
            }
            EngineEntry::History(change) => {
                self.changes.insert(change.row, *change);
                None
            }
            EngineEntry::HistoryEnded { row } => {
                self.changes.remove(&row);
                None
            }
        }
    }

    /// Everything, as a new engine reads it.
    pub(crate) fn saved(&self) -> EngineSaved {
        EngineSaved {
            grants: self.grants.values().cloned().collect(),
            waiters: self.waiters.values().cloned().collect(),
            limits: self.limits.iter().map(|(name, limit)| (name.clone(), *limit)).collect(),
            sessions: self.sessions.clone(),
            routes: self.routes.iter().map(|(name, version)| (name.clone(), *version)).collect(),
            changes: self.changes.values().cloned().collect(),
        }
    }

    /// Every resource that somebody holds or waits for.
    pub(crate) fn resources(&self) -> Vec<Resource> {
        let grants = self.grants.values().map(|saved| &saved.claim.resource);
        let waiters = self.waiters.values().map(|saved| &saved.claim.resource);
        let mut all: Vec<_> = grants.chain(waiters).cloned().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Its content, for people.
    pub(crate) fn names(&self) -> Vec<String> {
        let grants = self
            .grants
            .values()
            .map(|saved| format!("grant {} of {}", saved.claim.id, saved.claim.resource));
        let waiters = self
            .waiters
            .values()
            .map(|saved| format!("waiter {} of {}", saved.claim.id, saved.claim.resource));
        let limits = self.limits.keys().map(|resource| format!("limit of {resource}"));
        let sessions =
            self.sessions.iter().map(|record| format!("session {}", record.owner.session));
        grants.chain(waiters).chain(limits).chain(sessions).collect()
    }
}
