//! Entries by resource, each with a number by which timers name it.

use std::collections::BTreeMap;

use super::map::Map;
use crate::model::Resource;

#[derive(Debug)]
pub(super) struct Table<T> {
    entries: BTreeMap<Resource, T>,
    names: Map<u64, Resource>,
    next: u64,
}

impl<T> Table<T> {
    pub(super) fn new() -> Table<T> {
        Table { entries: BTreeMap::new(), names: Map::default(), next: 1 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.names.is_empty()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Resource> {
        self.entries.keys()
    }

    pub(super) fn get(&self, resource: &Resource) -> Option<&T> {
        self.entries.get(resource)
    }

    pub(super) fn get_mut(&mut self, resource: &Resource) -> Option<&mut T> {
        self.entries.get_mut(resource)
    }

    /// The entry of a resource, made with its number if there is none.
    pub(super) fn get_or_insert(
        &mut self,
        resource: &Resource,
        make: impl FnOnce(u64) -> T,
    ) -> &mut T {
        self.entries.entry(resource.clone()).or_insert_with(|| {
            let number = self.next;
            self.next += 1;
            self.names.insert(number, resource.clone());
            make(number)
        })
    }

    pub(super) fn resource(&self, number: u64) -> Option<Resource> {
        self.names.get(&number).cloned()
    }

    pub(super) fn remove(&mut self, resource: &Resource, number: u64) {
        self.names.remove(&number);
        self.entries.remove(resource);
    }
}
