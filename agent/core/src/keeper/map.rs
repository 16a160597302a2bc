//! Maps that iterate in the same order in every run, and count how often something is looked up.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map without a random seed, so that a simulation can be replayed. Keys must not be chosen
/// by clients where it matters; maps by name are `BTreeMap`s.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Counted>>;

/// A map that keeps its room when it shrinks, and therefore has pointers for rows.
pub(super) type BoxMap<K, V> = Map<K, Box<V>>;

thread_local! {
    static LOOKED_UP: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has looked something up: a measure of work that no busy machine distorts.
pub fn looked_up() -> u64 {
    LOOKED_UP.get()
}

#[derive(Default)]
pub(super) struct Counted(DefaultHasher);

impl Hasher for Counted {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn finish(&self) -> u64 {
        LOOKED_UP.set(LOOKED_UP.get() + 1);
        self.0.finish()
    }
}
