//! An event of the run.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::time::TrueTime;

struct Entry<T> {
    at: TrueTime,
    order: u64,
    // Apart from the heap, which moves its entries.
    what: Box<T>,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed, because the heap gives its greatest first.
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

/// Happenings in the order of true time; those of one instant in the order of planning.
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Entry<T>>,
    next: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { heap: BinaryHeap::new(), next: 0 }
    }
}

impl<T> Queue<T> {
    /// Plans a happening.
    pub(crate) fn push(&mut self, at: TrueTime, what: T) {
        self.heap.push(Entry { at, order: self.next, what: Box::new(what) });
        self.next += 1;
    }

    /// Takes the next happening.
    pub(crate) fn pop(&mut self) -> Option<(TrueTime, T)> {
        self.heap.pop().map(|entry| (entry.at, *entry.what))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_instant_keeps_the_order_of_planning() {
        let mut queue = Queue::default();
        let at = TrueTime::default() + Duration::from_secs(1);
        queue.push(at, "b");
        queue.push(at, "c");
        queue.push(TrueTime::default(), "a");
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, ["a", "b", "c"]);
    }
}
