//! Maps that iterate in the same order in every run.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

/// A hash map without a random seed, so that a simulation can be replayed. Keys must not be chosen
/// by clients where it matters; maps by name are `BTreeMap`s.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
