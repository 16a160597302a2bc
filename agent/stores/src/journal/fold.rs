//! PURE: changes, one after the other, become what they amount to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tenure_core::engine::SavedChange;
use tenure_core::engine::journal::{
    Entry as EngineEntry, Saved as EngineSaved, SavedGrant, SavedWaiter,
};
use tenure_core::keeper::journal::{
    Entry as KeeperEntry, Saved as KeeperSaved, SavedEnd, SavedHold, SavedSession,
};
use tenure_core::model::{Claim, Resource, SessionId, SessionRecord};
use tenure_core::time::Boottime;

use super::Entry;

/// The sum of a journal so far.
#[derive(Debug, Default)]
pub(super) struct Fold {
    sessions: HashMap<SessionId, SavedSession>,
    holds: BTreeMap<u64, SavedHold>,
    remembered: Vec<SavedEnd>,
    grants: BTreeMap<u64, SavedGrant>,
    waiters: BTreeMap<u64, SavedWaiter>,
    limits: HashMap<Resource, u32>,
    /// By the order in which they were announced.
    announced: BTreeMap<u64, SessionRecord>,
    places: HashMap<SessionId, u64>,
    next_place: u64,
    routes: BTreeMap<Option<Arc<str>>, u64>,
    changes: BTreeMap<u64, SavedChange>,
    /// Names that many rows share are kept once.
    names: HashSet<Arc<str>>,
}

impl Fold {
    pub(super) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Keeper(entry) => self.apply_keeper(entry),
            Entry::Engine(entry) => self.apply_engine(entry),
        }
    }

    fn apply_keeper(&mut self, entry: KeeperEntry) {
        match entry {
            KeeperEntry::Session(mut session) => {
                let names = [
                    &mut session.name,
                    &mut session.surface,
                    &mut session.tenant,
                    &mut session.project,
                ];
                names.into_iter().for_each(|name| share(&mut self.names, name));
                self.sessions.insert(session.id, *session);
            }
            KeeperEntry::SessionEnded(id) => drop(self.sessions.remove(&id)),
            KeeperEntry::Hold(mut hold) => {
                share_all(&mut self.names, &mut hold.claim);
                let beaten = self.holds.get(&hold.row).map(|former| former.valid_until);
                hold.valid_until = hold.valid_until.max(beaten.unwrap_or(Boottime::ZERO));
                self.holds.insert(hold.row, *hold);
            }
            KeeperEntry::Valid { row, valid_until } => {
                if let Some(hold) = self.holds.get_mut(&row) {
                    hold.valid_until = hold.valid_until.max(valid_until);
                }
            }
            KeeperEntry::HoldEnded { row, .. } => drop(self.holds.remove(&row)),
            KeeperEntry::Remembered(end) => self.remembered.push(end),
        }
    }

    fn apply_engine(&mut self, entry: EngineEntry) {
        match entry {
            EngineEntry::Grant(mut grant) => {
                share_all(&mut self.names, &mut grant.claim);
                self.grants.insert(grant.row, *grant);
            }
            EngineEntry::GrantEnded { row } => drop(self.grants.remove(&row)),
            EngineEntry::Waiter(mut waiter) => {
                share_all(&mut self.names, &mut waiter.claim);
                self.waiters.insert(waiter.row, *waiter);
            }
            EngineEntry::WaiterEnded { row } => drop(self.waiters.remove(&row)),
            EngineEntry::Limit { resource, limit } => drop(self.limits.insert(resource, limit)),
            EngineEntry::LimitEnded { resource } => drop(self.limits.remove(&resource)),
            EngineEntry::Session(record) => {
                let id = record.owner.session;
                let place = self.next_place;
                self.next_place += 1;
                if let Some(former) = self.places.insert(id, place) {
                    self.announced.remove(&former);
                }
                self.announced.insert(place, *record);
            }
            EngineEntry::SessionEnded(id) => {
                if let Some(place) = self.places.remove(&id) {
                    self.announced.remove(&place);
                }
            }
            EngineEntry::Routes { tenant, version } => drop(self.routes.insert(tenant, version)),
            EngineEntry::RoutesEnded { tenant } => drop(self.routes.remove(&Some(tenant))),
            EngineEntry::History(change) => drop(self.changes.insert(change.row, *change)),
            EngineEntry::HistoryEnded { row } => drop(self.changes.remove(&row)),
        }
    }

    /// The rows that both rooms take up.
    ///
    /// # Errors
    ///
    /// A contradiction, which no agent has written.
    pub(super) fn finish(self) -> Result<(KeeperSaved, EngineSaved), String> {
        let mut sessions: Vec<_> = self.sessions.into_values().collect();
        sessions.sort_unstable_by_key(|session| session.id);
        let mut remembered = self.remembered;
        remembered.sort_by_key(SavedEnd::until);
        let keeper =
            KeeperSaved { sessions, holds: self.holds.into_values().collect(), remembered };
        let engine = EngineSaved {
            grants: self.grants.into_values().collect(),
            waiters: self.waiters.into_values().collect(),
            limits: self.limits.into_iter().collect(),
            sessions: self.announced.into_values().collect(),
            routes: self.routes.into_iter().collect(),
            changes: self.changes.into_values().collect(),
        };
        keeper.check()?;
        engine.check()?;
        Ok((keeper, engine))
    }
}

fn share_all(names: &mut HashSet<Arc<str>>, claim: &mut Claim) {
    let shared = [
        &mut claim.resource.tenant,
        &mut claim.resource.name,
        &mut claim.owner.host,
        &mut claim.owner.name,
    ];
    shared.into_iter().for_each(|name| share(names, name));
}

fn share(names: &mut HashSet<Arc<str>>, name: &mut Arc<str>) {
    match names.get(name) {
        Some(known) => *name = Arc::clone(known),
        None => drop(names.insert(Arc::clone(name))),
    }
}
