//! Maps that iterate in the same order in every run.

use std::collections::HashMap;
#[cfg(not(test))]
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

#[cfg(test)]
use counted::Counted as DefaultHasher;
#[cfg(test)]
pub(crate) use counted::looked_up;

/// A hash map without a random seed, so that a simulation can be replayed. Keys must not be chosen
/// by clients where it matters; maps by name are `BTreeMap`s.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// Counts how often something is looked up, as a measure of work that no busy machine distorts.
#[cfg(test)]
mod counted {
    use std::cell::Cell;
    use std::collections::hash_map::DefaultHasher;
    use std::hash::Hasher;

    thread_local! {
        static LOOKED_UP: Cell<u64> = const { Cell::new(0) };
    }

    /// How often this thread has looked something up.
    pub(crate) fn looked_up() -> u64 {
        LOOKED_UP.get()
    }

    #[derive(Default)]
    pub(crate) struct Counted(DefaultHasher);

    impl Hasher for Counted {
        fn write(&mut self, bytes: &[u8]) {
            self.0.write(bytes);
        }

        fn finish(&self) -> u64 {
            LOOKED_UP.set(LOOKED_UP.get() + 1);
            self.0.finish()
        }
    }
}
