//! Marks of ended claims, so that late copies of them are refused.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{ClaimId, GoneReason, spare};
use crate::time::Boottime;

/// How many marks one step drops at most; until their turn comes they count as dropped.
const DROPPED_PER_STEP: usize = 4096;

#[derive(Debug)]
pub(super) struct Tombstones {
    keep: Duration,
    count_max: usize,
    marks: HashMap<ClaimId, (GoneReason, Boottime)>,
    /// In the order in which they end. May name a mark that was replaced by a later one.
    order: VecDeque<(Boottime, ClaimId)>,
    /// When to look again. Not the first end: one look per `keep` is enough.
    look_at: Option<Boottime>,
}

/// Tombstones in an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marks {
    marks: Vec<(ClaimId, GoneReason, Boottime)>,
    order: VecDeque<(Boottime, ClaimId)>,
    look_at: Option<Boottime>,
}

impl Tombstones {
    pub(super) fn new(keep: Duration, count_max: usize) -> Tombstones {
        Tombstones::thaw(keep, count_max, Marks::default())
    }

    pub(super) fn freeze(&self) -> Marks {
        let marks = self.marks.iter().map(|(claim, (reason, until))| (*claim, *reason, *until));
        let mut marks: Vec<_> = marks.collect();
        marks.sort_unstable_by_key(|(claim, ..)| *claim);
        Marks { marks, order: self.order.clone(), look_at: self.look_at }
    }

    pub(super) fn thaw(keep: Duration, count_max: usize, marks: Marks) -> Tombstones {
        let Marks { marks, order, look_at } = marks;
        let marks = marks.into_iter().map(|(claim, reason, until)| (claim, (reason, until)));
        Tombstones { keep, count_max, marks: marks.collect(), order, look_at }
    }

    pub(super) fn get(&self, now: Boottime, claim: ClaimId) -> Option<GoneReason> {
        self.marks.get(&claim).filter(|(_, until)| now < *until).map(|(reason, _)| *reason)
    }

    /// Marks a claim as ended. The first reason stays, except that expiry gives way: an expired
    /// claim may be claimed again, and one released after that must not.
    pub(super) fn insert(&mut self, now: Boottime, claim: ClaimId, reason: GoneReason) {
        self.drop_due(now);
        let reason = match self.get(now, claim) {
            None | Some(GoneReason::Expired) => reason,
            Some(first) => first,
        };
        let until = now + self.keep;
        self.marks.insert(claim, (reason, until));
        self.order.push_back((until, claim));
        if self.order.len() > self.count_max {
            self.drop_first();
        }
        self.look_at.get_or_insert(until);
    }

    pub(super) fn next(&self) -> Option<Boottime> {
        self.look_at
    }

    pub(super) fn handle_timeout(&mut self, now: Boottime) {
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.drop_due(now);
        if self.order.is_empty() {
            self.look_at = None;
        } else {
            self.look_at = Some(if self.has_due(now) { now } else { now + self.keep });
        }
    }

    fn drop_due(&mut self, now: Boottime) {
        for _ in 0..DROPPED_PER_STEP {
            if !self.has_due(now) {
                return;
            }
            self.drop_first();
        }
    }

    fn has_due(&self, now: Boottime) -> bool {
        self.order.front().is_some_and(|(until, _)| *until <= now)
    }

    fn drop_first(&mut self) {
        let Some((until, claim)) = self.order.pop_front() else { return };
        if self.marks.get(&claim).is_some_and(|(_, current)| *current == until) {
            self.marks.remove(&claim);
        }
        spare::shrink_map(&mut self.marks);
        spare::shrink_queue(&mut self.order);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }
}
