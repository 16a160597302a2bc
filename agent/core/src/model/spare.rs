//! Room of tables and queues that nothing needs any more.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

use indexmap::IndexMap;

/// Room for so many entries is kept in any case.
pub const KEPT: usize = 1024;
/// A table gives room back when it could hold so many times what it does.
const TIMES: usize = 8;

/// To be called after entries were taken out. What it costs was paid for by as many removals.
pub fn shrink_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.capacity() > KEPT * TIMES && map.len() < map.capacity() / TIMES {
        map.shrink_to((map.len() * 2).max(KEPT));
    }
}

/// The same for a table whose entries have numbers.
pub fn shrink_index_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut IndexMap<K, V, S>) {
    if map.capacity() > KEPT * TIMES && map.len() < map.capacity() / TIMES {
        map.shrink_to((map.len() * 2).max(KEPT));
    }
}

/// The same for a queue.
pub fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > KEPT * TIMES && queue.len() < queue.capacity() / TIMES {
        queue.shrink_to((queue.len() * 2).max(KEPT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_leaves_no_room_behind() {
        let mut map: HashMap<usize, usize> = (0..100_000).map(|number| (number, number)).collect();
        let mut index_map: IndexMap<usize, usize> = (0..100_000).map(|it| (it, it)).collect();
        let mut queue: VecDeque<usize> = (0..100_000).collect();
        let mut shrinks = 0;
        for number in 0..100_000 {
            let before = map.capacity();
            map.remove(&number);
            shrink_map(&mut map);
            shrinks += usize::from(map.capacity() < before / 2);
            index_map.swap_remove(&number);
            shrink_index_map(&mut index_map);
            queue.pop_front();
            shrink_queue(&mut queue);
        }
        assert!(index_map.capacity() < KEPT * TIMES * 2);
        assert!(map.capacity() < KEPT * TIMES * 2 && queue.capacity() < KEPT * TIMES * 2);
        assert!(shrinks < 10, "{shrinks}");
    }
}
