//! The parts of a host that outlive its agent.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::model::{ClaimId, SessionId};
use tenure_core::time::Boottime;

use super::super::storage::{Ailment, Place, Storage};
use super::super::time::Clock;

/// The content of a slot of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSlot {
    pub(crate) hold: ClaimId,
    /// Until when.
    pub(crate) valid_until: Boottime,
}

/// The host of an agent: its clock, its files and its processes.
pub(crate) struct Machine {
    pub(crate) clock: Clock,
    pub(crate) storage: Storage,
    /// Grows with everything that is wrong with its disks.
    ails: u64,
    /// Pages by session.
    pub(crate) pages: BTreeMap<SessionId, BTreeMap<u32, PageSlot>>,
    /// Processes that live.
    pub(crate) processes: BTreeSet<u32>,
}

impl Machine {
    /// A host on which nothing runs.
    pub(crate) fn new(clock: Clock, storage: Storage) -> Machine {
        Machine { clock, storage, ails: 0, pages: BTreeMap::new(), processes: BTreeSet::new() }
    }

    /// Something is wrong with a directory from now on; the number of this fault.
    pub(crate) fn ail(&mut self, place: Place, ailment: Ailment) -> u64 {
        self.storage.ail(place, ailment);
        self.ails += 1;
        self.ails
    }

    /// The fault with that number is over, unless there was another one since.
    pub(crate) fn recover(&self, ails: u64) {
        if self.ails == ails {
            self.storage.heal();
        }
    }
}
