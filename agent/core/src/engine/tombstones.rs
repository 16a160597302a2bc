//! Marks of what has ended, so that late copies of it are refused.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{GoneReason, Revocation, spare};
use crate::time::Boottime;

/// How many marks one step drops at most; until their turn comes they count as dropped.
const DROPPED_PER_STEP: usize = 4096;

#[derive(Debug)]
pub(super) struct Tombstones<Id> {
    keep: Duration,
    count_max: usize,
    marks: HashMap<Id, (GoneReason, Boottime)>,
    /// The words that came with some of the marks; they go with them.
    explained: HashMap<Id, Arc<Revocation>>,
    /// In the order in which they end. May name a mark that was replaced by a later one.
    order: VecDeque<(Boottime, Id)>,
    /// When to look again. Not the first end: one look per `keep` is enough.
    look_at: Option<Boottime>,
}

/// Tombstones in an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marks<Id> {
    marks: Vec<(Id, GoneReason, Boottime)>,
    #[serde(default = "Vec::new")]
    explained: Vec<(Id, Arc<Revocation>)>,
    order: VecDeque<(Boottime, Id)>,
    look_at: Option<Boottime>,
}

impl<Id: Copy + Eq + Ord + Hash> Tombstones<Id> {
    pub(super) fn new(keep: Duration, count_max: usize) -> Tombstones<Id> {
        let marks = Marks {
            marks: Vec::new(),
            explained: Vec::new(),
            order: VecDeque::new(),
            look_at: None,
        };
        Tombstones::thaw(keep, count_max, marks)
    }

    pub(super) fn freeze(&self) -> Marks<Id> {
        let marks = self.marks.iter().map(|(id, (reason, until))| (*id, *reason, *until));
        let mut marks: Vec<_> = marks.collect();
        marks.sort_unstable_by_key(|(id, ..)| *id);
        let explained = self.explained.iter().map(|(id, words)| (*id, Arc::clone(words)));
        let mut explained: Vec<_> = explained.collect();
        explained.sort_unstable_by_key(|(id, _)| *id);
        Marks { marks, explained, order: self.order.clone(), look_at: self.look_at }
    }

    pub(super) fn thaw(keep: Duration, count_max: usize, marks: Marks<Id>) -> Tombstones<Id> {
        let Marks { marks, explained, order, look_at } = marks;
        let marks = marks.into_iter().map(|(id, reason, until)| (id, (reason, until))).collect();
        let explained = explained.into_iter().collect();
        Tombstones { keep, count_max, marks, explained, order, look_at }
    }

    pub(super) fn get(&self, now: Boottime, id: Id) -> Option<GoneReason> {
        self.marks.get(&id).filter(|(_, until)| now < *until).map(|(reason, _)| *reason)
    }

    /// Adds words to a mark that is there.
    pub(super) fn explain(&mut self, id: Id, words: Arc<Revocation>) {
        if self.marks.contains_key(&id) {
            self.explained.insert(id, words);
        }
    }

    /// The words that came with a mark.
    pub(super) fn explanation(&self, id: Id) -> Option<Arc<Revocation>> {
        self.explained.get(&id).cloned()
    }

    /// Marks it as ended. The first reason stays, except that expiry gives way: an expired
    /// claim may be claimed again, and one released after that must not.
    pub(super) fn insert(&mut self, now: Boottime, id: Id, reason: GoneReason) {
        self.drop_due(now);
        let reason = match self.get(now, id) {
            None | Some(GoneReason::Expired) => reason,
            Some(first) => first,
        };
        let until = now + self.keep;
        self.marks.insert(id, (reason, until));
        self.order.push_back((until, id));
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
        let Some((until, id)) = self.order.pop_front() else { return };
        if self.marks.get(&id).is_some_and(|(_, current)| *current == until) {
            self.marks.remove(&id);
            self.explained.remove(&id);
        }
        spare::shrink_map(&mut self.explained);
        spare::shrink_map(&mut self.marks);
        spare::shrink_queue(&mut self.order);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }
}
