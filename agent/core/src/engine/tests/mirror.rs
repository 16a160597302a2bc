//! A journal in memory.

use std::collections::BTreeMap;

use super::super::SavedChange;
use super::super::journal::{Entry, Saved, SavedGrant, SavedWaiter};
use crate::model::{Resource, SessionId, SessionRecord};

#[derive(Debug, Default)]
pub(super) struct Mirror {
    pub(super) grants: BTreeMap<u64, SavedGrant>,
    pub(super) waiters: BTreeMap<u64, SavedWaiter>,
    limits: BTreeMap<Resource, u32>,
    sessions: Vec<(SessionId, SessionRecord)>,
    routes: BTreeMap<Option<std::sync::Arc<str>>, u64>,
    changes: BTreeMap<u64, SavedChange>,
}

impl Mirror {
    pub(super) fn write(&mut self, entry: Entry) {
        match entry {
            Entry::Grant(grant) => {
                self.grants.insert(grant.row, *grant);
            }
            Entry::GrantEnded { row } => assert!(self.grants.remove(&row).is_some()),
            Entry::Waiter(waiter) => {
                let (row, claim) = (waiter.row, waiter.claim.id);
                let former = self.waiters.insert(row, *waiter);
                assert!(former.is_none_or(|former| former.claim.id == claim));
            }
            Entry::WaiterEnded { row } => assert!(self.waiters.remove(&row).is_some()),
            Entry::Limit { resource, limit } => {
                self.limits.insert(resource, limit);
            }
            Entry::LimitEnded { resource } => assert!(self.limits.remove(&resource).is_some()),
            Entry::Session(record) => {
                self.sessions.retain(|(id, _)| *id != record.owner.session);
                self.sessions.push((record.owner.session, *record));
            }
            Entry::SessionEnded(id) => self.sessions.retain(|(known, _)| *known != id),
            Entry::Routes { tenant, version } => {
                let before = self.routes.insert(tenant, version);
                assert!(before.is_none_or(|before| before <= version));
            }
            Entry::RoutesEnded { tenant } => {
                self.routes.remove(&Some(tenant));
            }
            Entry::History(change) => {
                assert!(self.changes.insert(change.row, *change).is_none());
            }
            Entry::HistoryEnded { row } => assert!(self.changes.remove(&row).is_some()),
        }
    }

    pub(super) fn saved(&self) -> Saved {
        Saved {
            grants: self.grants.values().cloned().collect(),
            waiters: self.waiters.values().cloned().collect(),
            limits: self.limits.clone().into_iter().collect(),
            sessions: self.sessions.iter().map(|(_, record)| record.clone()).collect(),
            routes: self.routes.clone().into_iter().collect(),
            changes: self.changes.values().cloned().collect(),
        }
    }

    /// Everything except what outlives its users on purpose.
    pub(super) fn is_empty(&self) -> bool {
        self.grants.is_empty()
            && self.waiters.is_empty()
            && self.limits.is_empty()
            && self.sessions.is_empty()
            && self.routes.keys().all(Option::is_none)
    }
}
