//! Pure. Messages that several gateways hear, and each relays, are told once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_stores::gateway::scope::Mark;

/// A copy comes no later after the first one.
const COPIES_WITHIN: Duration = Duration::from_secs(5);
/// Messages that are remembered; beyond, the earliest is forgotten, and a late copy of it told again.
const REMEMBERED_MAX: usize = 4096;

/// A message to a principal.
type Key = (Mark, u64);

/// The messages that were told a short while ago.
#[derive(Debug, Default)]
pub(super) struct Once {
    hasher: RandomState,
    told: HashMap<Key, Copies>,
    /// The keys of all that, as they came.
    order: VecDeque<(Boottime, Key)>,
}

#[derive(Debug, Default)]
struct Copies {
    /// How many copies of it each gateway heard.
    by: BTreeMap<u64, u32>,
    told: u32,
}

impl Once {
    /// True if what this gateway heard is to be told. A message that was sent twice comes twice from each of them.
    pub(super) fn is_news(&mut self, now: Boottime, mark: Mark, by: u64, line: &[u8]) -> bool {
        while let Some((at, key)) = self.order.front()
            && (now.since(*at) > COPIES_WITHIN || self.order.len() > REMEMBERED_MAX)
        {
            self.told.remove(key);
            self.order.pop_front();
        }
        let key = (mark, self.hasher.hash_one(line));
        let copies = self.told.entry(key).or_insert_with(|| {
            self.order.push_back((now, key));
            Copies::default()
        });
        let of_this = copies.by.entry(by).or_default();
        *of_this += 1;
        let is_news = *of_this > copies.told;
        copies.told = copies.told.max(*of_this);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_other_gateways_are_told_once_and_repetitions_again() {
        let (mark, mut once) = (Mark::of("alpha"), Once::default());
        let now = Boottime::ZERO;
        assert!(once.is_news(now, mark, 1, b"hello"));
        assert!(!once.is_news(now, mark, 2, b"hello"));
        assert!(once.is_news(now, mark, 2, b"hello"), "it was sent twice");
        assert!(!once.is_news(now, mark, 1, b"hello"));
        assert!(once.is_news(now, mark, 1, b"other"));
        assert!(once.is_news(now, Mark::of("beta"), 2, b"hello"));
        let later = now + COPIES_WITHIN * 2;
        assert!(once.is_news(later, mark, 1, b"hello"));
        assert_eq!(once.told.len(), 1);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mark, mut once) = (Mark::of("alpha"), Once::default());
        for number in 0..2 * REMEMBERED_MAX {
            assert!(once.is_news(Boottime::ZERO, mark, 1, &number.to_be_bytes()));
        }
        assert!(once.told.len() <= REMEMBERED_MAX + 1 && once.order.len() == once.told.len());
    }
}
