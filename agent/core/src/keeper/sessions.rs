//! Sessions of all users, and the indexes over them.

use std::collections::BTreeSet;

use tenure_wire::page::SLOTS;

use super::ends::Ends;
use super::journal::SavedSession;
use super::map::BoxMap;
use super::session::Session;
use super::settings::Settings;
use super::tally::Tally;
use crate::model::{SessionId, spare};
use crate::time::Boottime;

#[derive(Debug)]
pub(super) struct Sessions {
    by_id: BoxMap<SessionId, Session>,
    by_uid: Tally,
    /// All of them by user and id.
    order: BTreeSet<(u32, SessionId)>,
    /// Slots of all pages beyond those that each has anyway.
    extra_slots: usize,
    /// The same of each user's.
    extra_slots_by_uid: Tally,
    first_event: u64,
    pub(super) ends: Ends,
}

/// Slots of a page beyond those that each has anyway.
pub(super) fn extra(holds: u32) -> usize {
    holds.saturating_sub(SLOTS) as usize
}

impl Sessions {
    pub(super) fn new(now: Boottime) -> Sessions {
        Sessions {
            by_id: BoxMap::default(),
            by_uid: Tally::default(),
            order: BTreeSet::new(),
            extra_slots: 0,
            extra_slots_by_uid: Tally::default(),
            // µs since boot: numbers go on growing when the agent is started again.
            first_event: now.as_nanos() / 1000 + 1,
            ends: Ends::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
            && self.by_uid.is_empty()
            && self.order.is_empty()
            && self.extra_slots == 0
            && self.extra_slots_by_uid.is_empty()
            && self.ends.is_empty()
    }

    pub(super) fn get(&self, id: &SessionId) -> Option<&Session> {
        self.by_id.get(id).map(|session| &**session)
    }

    pub(super) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        self.by_id.get_mut(id).map(|session| &mut **session)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &SessionId> {
        self.by_id.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Session> {
        self.by_id.values().map(|session| &**session)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.by_id.values_mut().map(|session| &mut **session)
    }

    /// Sessions of the users in that range by user and id.
    pub(super) fn range(
        &self,
        from: (u32, SessionId),
        to: (u32, SessionId),
    ) -> impl Iterator<Item = &Session> {
        self.order.range(from..=to).filter_map(|(_, id)| self.get(id))
    }

    /// The user of a session; root's for one that is gone, of which nobody else is told.
    pub(super) fn user_of(&self, id: SessionId) -> u32 {
        self.get(&id).map_or(0, |session| session.saved.uid)
    }

    pub(super) fn count_of(&self, uid: u32) -> usize {
        self.by_uid.of(uid)
    }

    pub(super) fn extra_slots(&self) -> usize {
        self.extra_slots
    }

    pub(super) fn extra_slots_of(&self, uid: u32) -> usize {
        self.extra_slots_by_uid.of(uid)
    }

    pub(super) fn insert(&mut self, saved: SavedSession, settings: &Settings) {
        let (id, uid, extra) = (saved.id, saved.uid, extra(saved.holds));
        self.by_uid.add(uid, 1);
        self.extra_slots += extra;
        self.extra_slots_by_uid.add(uid, extra);
        self.order.insert((uid, id));
        self.by_id.insert(id, Box::new(Session::new(saved, settings, self.first_event)));
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        spare::shrink_map(&mut self.by_id);
        let (uid, extra) = (session.saved.uid, extra(session.saved.holds));
        self.by_uid.remove(uid, 1);
        self.extra_slots -= extra;
        self.extra_slots_by_uid.remove(uid, extra);
        self.order.remove(&(uid, id));
        Some(*session)
    }
}
