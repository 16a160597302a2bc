//! Holds of all sessions, waiting ones included, and the indexes over them.

use std::collections::BTreeMap;

use tenure_wire::Kind;

use super::hold::{Hold, HoldCounts, Stage};
use super::map::{BoxMap, Map};
use super::request::Ticket;
use super::tally::Tally;
use crate::model::{ClaimId, Resource, spare};

#[derive(Debug, Default)]
pub(super) struct Holds {
    by_id: BoxMap<ClaimId, Hold>,
    counts: HoldCounts,
    /// How many there are of each user's sessions.
    by_uid: Tally,
    /// The holder of each exclusive resource.
    occupied: BTreeMap<Resource, ClaimId>,
    /// Callers that wait for a hold.
    callers: Map<Ticket, ClaimId>,
    last_row: u64,
}

impl Holds {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
            && self.counts == HoldCounts::default()
            && self.by_uid.is_empty()
            && self.occupied.is_empty()
            && self.callers.is_empty()
    }

    pub(super) fn get(&self, id: &ClaimId) -> Option<&Hold> {
        self.by_id.get(id).map(|hold| &**hold)
    }

    pub(super) fn get_mut(&mut self, id: &ClaimId) -> Option<&mut Hold> {
        self.by_id.get_mut(id).map(|hold| &mut **hold)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ClaimId> {
        self.by_id.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Hold> {
        self.by_id.values().map(|hold| &**hold)
    }

    pub(super) fn is_held(&self, id: ClaimId) -> bool {
        self.get(&id).is_some_and(Hold::is_held)
    }

    pub(super) fn counts(&self) -> [[u64; 3]; 4] {
        self.counts.0
    }

    pub(super) fn count_of(&self, uid: u32) -> usize {
        self.by_uid.of(uid)
    }

    /// A row for a new hold.
    pub(super) fn new_row(&mut self) -> u64 {
        self.last_row += 1;
        self.last_row
    }

    /// Rows of new holds come after that one.
    pub(super) fn row_is_taken(&mut self, row: u64) {
        self.last_row = self.last_row.max(row);
    }

    /// Adds a hold of a session of that user.
    pub(super) fn insert(&mut self, uid: u32, hold: Hold) {
        self.by_uid.add(uid, 1);
        self.counts.add(&hold);
        self.by_id.insert(hold.id(), Box::new(hold));
    }

    pub(super) fn change(&mut self, id: ClaimId, stage: Stage) -> Option<&mut Hold> {
        let hold = self.by_id.get_mut(&id)?;
        self.counts.change(hold, stage);
        Some(hold)
    }

    /// Takes out a hold of a session of that user, if its session is there still.
    pub(super) fn remove(&mut self, id: ClaimId, uid: Option<u32>) -> Option<Hold> {
        let hold = self.by_id.remove(&id)?;
        spare::shrink_map(&mut self.by_id);
        self.counts.remove(&hold);
        if let Some(uid) = uid {
            self.by_uid.remove(uid, 1);
        }
        if self.occupied.get(&hold.claim.resource) == Some(&id) {
            self.occupied.remove(&hold.claim.resource);
        }
        Some(*hold)
    }

    /// The hold that has an exclusive resource.
    pub(super) fn occupant(&self, resource: &Resource) -> Option<&Hold> {
        self.get(self.occupied.get(resource)?)
    }

    /// Notes that a hold has its resource, if that has one holder at a time.
    pub(super) fn occupy(&mut self, id: ClaimId) {
        if let Some(hold) = self.by_id.get(&id)
            && hold.kind() != Kind::Semaphore
        {
            self.occupied.insert(hold.claim.resource.clone(), id);
        }
    }

    /// Notes that a caller waits for a hold.
    pub(super) fn add_caller(&mut self, ticket: Ticket, id: ClaimId) {
        if let Some(hold) = self.by_id.get_mut(&id) {
            hold.caller.tickets.push(ticket);
            self.callers.insert(ticket, id);
        }
    }

    /// A caller waits no longer; for the hold that it waited for.
    pub(super) fn remove_caller(&mut self, ticket: Ticket) -> Option<&mut Hold> {
        let id = self.callers.remove(&ticket)?;
        let hold = self.by_id.get_mut(&id)?;
        hold.caller.tickets.retain(|waiting| *waiting != ticket);
        Some(hold)
    }

    /// Takes the callers that wait for a hold.
    pub(super) fn take_callers(&mut self, id: ClaimId) -> Vec<Ticket> {
        let Some(hold) = self.by_id.get_mut(&id) else { return Vec::new() };
        let tickets = std::mem::take(&mut hold.caller.tickets);
        for ticket in &tickets {
            self.callers.remove(ticket);
        }
        tickets
    }

    /// Takes all callers, in the order in which they came.
    pub(super) fn take_all_callers(&mut self) -> Vec<Ticket> {
        let mut callers: Vec<_> = std::mem::take(&mut self.callers).into_keys().collect();
        callers.sort_unstable();
        for hold in self.by_id.values_mut() {
            hold.caller.tickets.clear();
        }
        callers
    }
}
