//! Places that are counted by who has them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Places of which each key may have so many. The table is no longer than the number of places that are taken.
#[derive(Debug)]
pub(super) struct Places<K: Hash + Eq + Copy + Debug> {
    max: usize,
    taken: Mutex<HashMap<K, usize>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct PlaceOf<K: Hash + Eq + Copy + Debug> {
    places: Arc<Places<K>>,
    key: K,
}

impl<K: Hash + Eq + Copy + Debug> Places<K> {
    pub(super) fn new(max: usize) -> Arc<Places<K>> {
        Arc::new(Places { max, taken: Mutex::default() })
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// `None` if this key has all that it may have.
    pub(super) fn take(self: &Arc<Self>, key: K) -> Option<PlaceOf<K>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(&key).copied().unwrap_or(0);
        if count >= self.max {
            return None;
        }
        taken.insert(key, count + 1);
        Some(PlaceOf { places: Arc::clone(self), key })
    }
}

impl<K: Hash + Eq + Copy + Debug> Drop for PlaceOf<K> {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = taken.entry(self.key) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_places_and_gives_them_back() {
        let places = Places::new(2);
        let mut held: Vec<_> = (0..2).map(|_| places.take("a").unwrap()).collect();
        assert!(places.take("a").is_none());
        let other = places.take("b").unwrap();
        held.pop();
        assert!(places.take("a").is_some());
        drop((held, other));
        assert!(places.taken.lock().unwrap().is_empty());
    }
}
