//! The claims that occupy resources: who has one, and who waits for it.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use indexmap::IndexMap;

use super::claims::Tracked;
use super::holders::Holders;
use crate::model::{ClaimId, Queue, Resource, SessionId, spare};

/// A place in a queue: the higher priority first, then whoever claimed first.
pub(super) type Place = (Reverse<i32>, u64);

/// The claims of one resource.
#[derive(Debug, Default)]
pub(super) struct Occupation {
    /// An exclusive resource has one at most; during a lease's grace that is its former one.
    pub(super) holders: Holders,
    pub(super) queue: Queue<Place>,
    /// Waiters of a lease by session: its former holder's goes first in its grace.
    by_session: BTreeSet<(SessionId, Place)>,
    /// Semaphore only.
    pub(super) limit: Option<Limit>,
}

/// The limit of a semaphore.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    /// In force for everybody: that of the latest claim.
    pub(super) permits: u32,
    /// True if the journal has a row for it. It needs one only when users disagree; else any of
    /// their claims tells.
    pub(super) is_saved: bool,
}

impl Occupation {
    /// One of a semaphore.
    pub(super) fn of_permits(limit: Limit) -> Occupation {
        Occupation { limit: Some(limit), ..Occupation::default() }
    }

    pub(super) fn permits(&self) -> Option<u32> {
        self.limit.map(|limit| limit.permits)
    }

    /// True if one more may have it besides those who do.
    pub(super) fn has_room(&self) -> bool {
        self.holders.len() < self.permits().map_or(1, |permits| permits as usize)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.holders.len() == 0 && self.queue.is_empty()
    }

    pub(super) fn join(&mut self, waiter: &Tracked) {
        let place = waiter.place();
        self.queue.insert(place, waiter.id());
        if waiter.is_of_lease() {
            self.by_session.insert((waiter.claim.owner.session, place));
        }
    }

    pub(super) fn leave(&mut self, waiter: &Tracked) {
        let place = waiter.place();
        self.queue.remove(place);
        self.by_session.remove(&(waiter.claim.owner.session, place));
    }

    /// The first waiter of a lease that is of that session.
    pub(super) fn first_of(&self, session: SessionId) -> Option<ClaimId> {
        let from = (session, (Reverse(i32::MAX), 0));
        let (of, place) = self.by_session.range(from..).next()?;
        (*of == session).then(|| self.queue.get(*place))?
    }
}

/// The occupied resources. One that is not in the table is free.
#[derive(Debug, Default)]
pub(super) struct Occupations {
    /// In an order in which a walk from its end meets everything that stays, whatever else goes.
    by_resource: IndexMap<Resource, Occupation>,
    /// Those with a waiter to be granted that waits for tokens, the end of a quarantine, or the next
    /// step.
    pub(super) blocked: BTreeSet<Resource>,
}

impl Occupations {
    pub(super) fn get(&self, resource: &Resource) -> Option<&Occupation> {
        self.by_resource.get(resource)
    }

    pub(super) fn get_mut(&mut self, resource: &Resource) -> Option<&mut Occupation> {
        self.by_resource.get_mut(resource)
    }

    pub(super) fn get_or_insert(
        &mut self,
        resource: &Resource,
        make: impl FnOnce() -> Occupation,
    ) -> &mut Occupation {
        self.by_resource.entry(resource.clone()).or_insert_with(make)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Resource, &Occupation)> {
        self.by_resource.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.by_resource.len()
    }

    /// Those with these numbers.
    pub(super) fn numbered(&self, numbers: Range<usize>) -> impl Iterator<Item = &Resource> {
        self.by_resource.get_range(numbers).into_iter().flat_map(|some| some.keys())
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_resource.is_empty()
    }

    pub(super) fn remove(&mut self, resource: &Resource) {
        self.by_resource.swap_remove(resource);
        spare::shrink_index_map(&mut self.by_resource);
        self.blocked.remove(resource);
    }

    /// Everybody who waits may be granted something.
    pub(super) fn block_all(&mut self) {
        let waited_for = self.by_resource.iter().filter(|(_, it)| !it.queue.is_empty());
        self.blocked.extend(waited_for.map(|(resource, _)| resource.clone()));
    }
}
