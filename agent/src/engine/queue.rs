//! A queue that knows everybody's place in it.
//!
//! Waiters leave from anywhere, and every beat of one asks for its place: both take a time that
//! grows with the logarithm of the length (Fenwick, *A New Data Structure for Cumulative Frequency
//! Tables*, 1994).

use crate::model::ClaimId;

/// Places of waiters that have left are taken out together once there are this many, and more than
/// waiters.
const VACANT_MIN: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By row, which grows. `None` where a waiter has left.
    places: Vec<(u64, Option<ClaimId>)>,
    /// Fenwick tree over `places`: entry `i - 1` counts the waiters in the places `i - lowbit(i)..i`.
    counts: Vec<u32>,
    /// All places before this one are vacant.
    head: usize,
    len: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a waiter at the end. Its row must be greater than all before.
    pub(super) fn push(&mut self, row: u64, claim: ClaimId) {
        debug_assert!(self.places.last().is_none_or(|(last, _)| *last < row));
        self.places.push((row, Some(claim)));
        self.len += 1;
        let end = self.places.len();
        let mut count = 1;
        let mut step = 1;
        while step < lowbit(end) {
            count += self.counts[end - step - 1];
            step *= 2;
        }
        self.counts.push(count);
    }

    pub(super) fn front(&self) -> Option<(u64, ClaimId)> {
        self.iter().next()
    }

    /// Next first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, ClaimId)> {
        self.places[self.head..].iter().filter_map(|(row, claim)| Some((*row, (*claim)?)))
    }

    /// 1 is next; 0 if it is not there.
    pub(super) fn position(&self, row: u64) -> u64 {
        let Some(place) = self.find(row) else { return 0 };
        let mut count = 0;
        let mut end = place + 1;
        while end > 0 {
            count += u64::from(self.counts[end - 1]);
            end -= lowbit(end);
        }
        count
    }

    pub(super) fn remove(&mut self, row: u64) -> Option<ClaimId> {
        let place = self.find(row)?;
        let claim = self.places[place].1.take();
        self.len -= 1;
        let mut end = place + 1;
        while end <= self.counts.len() {
            self.counts[end - 1] -= 1;
            end += lowbit(end);
        }
        while self.places.get(self.head).is_some_and(|(_, claim)| claim.is_none()) {
            self.head += 1;
        }
        if self.places.len() - self.len > VACANT_MIN.max(self.len) {
            self.close_ranks();
        }
        claim
    }

    fn find(&self, row: u64) -> Option<usize> {
        let place = self.places.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        self.places[place].1.is_some().then_some(place)
    }

    fn close_ranks(&mut self) {
        let places = std::mem::take(&mut self.places);
        *self = Queue::default();
        for (row, claim) in places {
            if let Some(claim) = claim {
                self.push(row, claim);
            }
        }
    }
}

const fn lowbit(number: usize) -> usize {
    number & number.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_are_those_of_a_plain_list(
            steps in proptest::collection::vec((0u8..3, 0usize..200), 1..600),
        ) {
            let mut queue = Queue::default();
            let mut plain: Vec<u64> = Vec::new();
            let mut row = 0;
            for (step, pick) in steps {
                if step < 2 || plain.is_empty() {
                    row += 1 + pick as u64 % 3;
                    queue.push(row, ClaimId(uuid::Uuid::from_u128(u128::from(row))));
                    plain.push(row);
                } else {
                    let gone = plain.remove(pick % plain.len());
                    prop_assert!(queue.remove(gone).is_some());
                    prop_assert!(queue.remove(gone).is_none());
                    prop_assert_eq!(queue.position(gone), 0);
                }
                prop_assert_eq!(queue.len(), plain.len());
                prop_assert_eq!(queue.front().map(|(row, _)| row), plain.first().copied());
                for (index, row) in plain.iter().enumerate() {
                    prop_assert_eq!(queue.position(*row), index as u64 + 1);
                }
            }
        }
    }
}
