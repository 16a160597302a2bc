//! Places that are counted by who has them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Places of which each key may have some. The table is no longer than the number of places that are taken.
#[derive(Debug)]
pub(super) struct Places<K: Hash + Eq + Copy + Debug> {
    taken: Mutex<HashMap<K, usize>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct PlaceOf<K: Hash + Eq + Copy + Debug> {
    places: Arc<Places<K>>,
    key: K,
}

impl<K: Hash + Eq + Copy + Debug> Places<K> {
    pub(super) fn new() -> Arc<Places<K>> {
        Arc::new(Places { taken: Mutex::default() })
    }

    /// One more place, of `max`.
    ///
    /// # Errors
    ///
    /// With how many this key has, if it has all that it may have.
    pub(super) fn take(self: &Arc<Self>, key: K, max: usize) -> Result<PlaceOf<K>, usize> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(&key).copied().unwrap_or(0);
        if count >= max {
            return Err(count);
        }
        taken.insert(key, count + 1);
        Ok(PlaceOf { places: Arc::clone(self), key })
    }
}

impl<K: Hash + Eq + Copy + Debug> PlaceOf<K> {
    /// How many places its key has.
    pub(super) fn count(&self) -> usize {
        let taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.get(&self.key).copied().unwrap_or(0)
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
        let places = Places::new();
        let mut held: Vec<_> = (0..2).map(|_| places.take("a", 2).unwrap()).collect();
        assert_eq!(places.take("a", 2).unwrap_err(), 2);
        let other = places.take("b", 2).unwrap();
        assert_eq!((held[0].count(), other.count()), (2, 1));
        held.pop();
        assert!(places.take("a", 2).is_ok());
        drop((held, other));
        assert!(places.taken.lock().unwrap().is_empty());
    }
}
