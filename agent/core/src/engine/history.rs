//! The past of each resource, for people who ask later. Nothing goes by it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::Engine;
use super::journal::Entry;
use crate::model::{HISTORY_KEPT, HISTORY_MAX, HistoryEntry, Resource};
use crate::time::Boottime;

/// Most changes of all resources together, about 500 bytes each; beyond, the oldest is forgotten.
pub const CHANGES_MAX: usize = 8192;

/// A change as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedChange {
    /// Its row: grows with every change.
    pub row: u64,
    /// When it happened.
    pub at: Boottime,
    pub entry: HistoryEntry,
}

/// The last changes of all resources.
#[derive(Debug, Default)]
pub(super) struct Histories {
    /// By row, which is the order in which they were told.
    changes: BTreeMap<u64, SavedChange>,
    of: HashMap<Resource, VecDeque<u64>>,
    pub(super) next_row: u64,
}

impl Histories {
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = u64> {
        self.changes.keys().copied()
    }

    pub(super) fn get(&self, row: u64) -> Option<&SavedChange> {
        self.changes.get(&row)
    }

    pub(super) fn freeze(&self) -> Vec<SavedChange> {
        self.changes.values().cloned().collect()
    }

    pub(super) fn thaw(changes: Vec<SavedChange>, next_row: u64) -> Histories {
        let mut histories = Histories { next_row, ..Histories::default() };
        changes.into_iter().for_each(|change| histories.insert(change));
        histories
    }

    fn insert(&mut self, change: SavedChange) {
        self.next_row = self.next_row.max(change.row + 1);
        self.of.entry(change.entry.resource.clone()).or_default().push_back(change.row);
        self.changes.insert(change.row, change);
    }

    fn remove(&mut self, row: u64) {
        let Some(change) = self.changes.remove(&row) else { return };
        let resource = &change.entry.resource;
        if let Some(rows) = self.of.get_mut(resource) {
            rows.retain(|other| *other != row);
            if rows.is_empty() {
                self.of.remove(resource);
            }
        }
    }

    /// The changes of a resource, in the order in which they were told.
    fn changes_of(&self, resource: &Resource) -> impl Iterator<Item = &SavedChange> {
        self.of.get(resource).into_iter().flatten().filter_map(|row| self.changes.get(row))
    }

    /// The row that has to go for another of this resource: that of the oldest change, however late it was told.
    fn surplus(&self, resource: &Resource) -> Option<u64> {
        let rows = self.of.get(resource).filter(|rows| rows.len() > HISTORY_MAX)?;
        let changes = rows.iter().filter_map(|row| self.changes.get(row));
        changes.min_by_key(|change| (change.at, change.row)).map(|change| change.row)
    }
}

impl Engine {
    pub(super) fn record(&mut self, now: Boottime, entries: Vec<HistoryEntry>) {
        for mut entry in entries {
            if self.histories.changes_of(&entry.resource).any(|known| known.entry.is_same(&entry)) {
                continue;
            }
            let at = now.before(entry.ago);
            entry.ago = std::time::Duration::ZERO;
            let resource = entry.resource.clone();
            let change = SavedChange { row: self.histories.next_row, at, entry };
            self.persist(Entry::History(Box::new(change.clone())));
            self.histories.insert(change);
            if let Some(row) = self.histories.surplus(&resource) {
                self.forget_change(row);
            }
        }
        while let Some((row, at)) =
            self.histories.changes.first_key_value().map(|(r, c)| (*r, c.at))
        {
            if self.histories.len() <= CHANGES_MAX && at + HISTORY_KEPT > now {
                break;
            }
            self.forget_change(row);
        }
    }

    fn forget_change(&mut self, row: u64) {
        self.histories.remove(row);
        self.persist(Entry::HistoryEnded { row });
    }

    /// The last changes of a resource, newest first.
    pub fn history(&self, now: Boottime, resource: &Resource) -> Vec<HistoryEntry> {
        let changes = self.histories.changes_of(resource);
        let mut kept: Vec<_> = changes.filter(|change| change.at + HISTORY_KEPT > now).collect();
        kept.sort_by_key(|change| std::cmp::Reverse((change.at, change.row)));
        let told = kept.into_iter().map(|SavedChange { at, entry, .. }| HistoryEntry {
            ago: now.since(*at),
            ..entry.clone()
        });
        told.collect()
    }
}
