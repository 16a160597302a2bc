//! A queue that knows everybody's place in it.
//!
//! Waiters join by their order, leave from anywhere, and ask for their places: each takes a time that
//! grows with the logarithm of the length, whatever orders clients choose. The tree is balanced by
//! weight (Adams, *Implementing Sets Efficiently in a Functional Language*, 1992) with the factors of
//! Hirai and Yamamoto (*Balancing weight-balanced trees*, 2011).

use std::cmp::Ordering;

use super::ClaimId;

/// A side outweighs the other by this at most.
const OUTWEIGHS_MAX: usize = 3;
/// From this on the inner part of a side is too heavy to be moved as a whole.
const INNER_MAX: usize = 2;

/// Waiters in the order of their keys, the least first. Each key is there once.
#[derive(Debug)]
pub struct Queue<K> {
    root: Link<K>,
}

type Link<K> = Option<Box<Node<K>>>;

#[derive(Debug)]
struct Node<K> {
    key: K,
    claim: ClaimId,
    /// Length of all beneath it and itself.
    len: usize,
    before: Link<K>,
    after: Link<K>,
}

impl<K> Default for Queue<K> {
    fn default() -> Queue<K> {
        Queue { root: None }
    }
}

impl<K: Ord + Copy> Queue<K> {
    /// How many wait.
    pub fn len(&self) -> usize {
        len(&self.root)
    }

    /// True if nobody waits.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub fn insert(&mut self, key: K, claim: ClaimId) {
        insert(&mut self.root, key, claim);
    }

    pub fn remove(&mut self, key: K) -> Option<ClaimId> {
        remove(&mut self.root, key)
    }

    pub fn get(&self, key: K) -> Option<ClaimId> {
        let mut down = self.root.as_deref();
        while let Some(node) = down {
            down = match key.cmp(&node.key) {
                Ordering::Less => node.before.as_deref(),
                Ordering::Equal => return Some(node.claim),
                Ordering::Greater => node.after.as_deref(),
            };
        }
        None
    }

    /// The next one.
    pub fn front(&self) -> Option<(K, ClaimId)> {
        let mut node = self.root.as_deref()?;
        while let Some(before) = node.before.as_deref() {
            node = before;
        }
        Some((node.key, node.claim))
    }

    /// Next first.
    pub fn iter(&self) -> impl Iterator<Item = (K, ClaimId)> {
        self.iter_after(None)
    }

    /// The entries after a key, or all entries without one; next first.
    pub fn iter_after(&self, key: Option<K>) -> impl Iterator<Item = (K, ClaimId)> {
        let mut path: Vec<&Node<K>> = Vec::new();
        let mut down = self.root.as_deref();
        while let Some(node) = down.filter(|_| key.is_some()) {
            down = match key < Some(node.key) {
                true => {
                    path.push(node);
                    node.before.as_deref()
                }
                false => node.after.as_deref(),
            };
        }
        std::iter::from_fn(move || {
            while let Some(node) = down {
                path.push(node);
                down = node.before.as_deref();
            }
            let node = path.pop()?;
            down = node.after.as_deref();
            Some((node.key, node.claim))
        })
    }

    /// 1 is next; 0 if it is not there.
    pub fn position(&self, key: K) -> u64 {
        let mut ahead = 0;
        let mut down = self.root.as_deref();
        while let Some(node) = down {
            match key.cmp(&node.key) {
                Ordering::Less => down = node.before.as_deref(),
                Ordering::Equal => return (ahead + len(&node.before) + 1) as u64,
                Ordering::Greater => {
                    ahead += len(&node.before) + 1;
                    down = node.after.as_deref();
                }
            }
        }
        0
    }
}

impl<K> Node<K> {
    fn count(&mut self) {
        self.len = len(&self.before) + 1 + len(&self.after);
    }
}

fn len<K>(link: &Link<K>) -> usize {
    link.as_ref().map_or(0, |node| node.len)
}

fn weight<K>(link: &Link<K>) -> usize {
    len(link) + 1
}

fn insert<K: Ord + Copy>(link: &mut Link<K>, key: K, claim: ClaimId) {
    match link {
        None => *link = Some(Box::new(Node { key, claim, len: 1, before: None, after: None })),
        Some(node) => {
            debug_assert!(key != node.key, "each key is there once");
            insert(if key < node.key { &mut node.before } else { &mut node.after }, key, claim);
            balance(link);
        }
    }
}

fn remove<K: Ord + Copy>(link: &mut Link<K>, key: K) -> Option<ClaimId> {
    let node = link.as_mut()?;
    let removed = match key.cmp(&node.key) {
        Ordering::Less => remove(&mut node.before, key),
        Ordering::Greater => remove(&mut node.after, key),
        Ordering::Equal => {
            let mut node = link.take()?;
            *link = match take_first(&mut node.after) {
                None => node.before,
                Some(mut next) => {
                    (next.before, next.after) = (node.before, node.after);
                    Some(next)
                }
            };
            Some(node.claim)
        }
    };
    balance(link);
    removed
}

fn take_first<K>(link: &mut Link<K>) -> Link<K> {
    if link.as_ref()?.before.is_none() {
        let mut first = link.take()?;
        *link = first.after.take();
        return Some(first);
    }
    let first = take_first(&mut link.as_mut()?.before);
    balance(link);
    first
}

/// Counts anew after one waiter has joined or left on one side, and moves weight to the other.
fn balance<K>(link: &mut Link<K>) {
    let Some(node) = link else { return };
    let (before, after) = (weight(&node.before), weight(&node.after));
    if after > OUTWEIGHS_MAX * before {
        let inner_heavy =
            |heavy: &Node<K>| weight(&heavy.before) >= INNER_MAX * weight(&heavy.after);
        if node.after.as_deref().is_some_and(inner_heavy) {
            turn_right(&mut node.after);
        }
        turn_left(link);
    } else if before > OUTWEIGHS_MAX * after {
        let inner_heavy =
            |heavy: &Node<K>| weight(&heavy.after) >= INNER_MAX * weight(&heavy.before);
        if node.before.as_deref().is_some_and(inner_heavy) {
            turn_left(&mut node.before);
        }
        turn_right(link);
    } else {
        node.count();
    }
}

fn turn_left<K>(link: &mut Link<K>) {
    let Some(mut down) = link.take() else { return };
    *link = match down.after.take() {
        None => Some(down),
        Some(mut up) => {
            down.after = up.before.take();
            down.count();
            up.before = Some(down);
            up.count();
            Some(up)
        }
    };
}

fn turn_right<K>(link: &mut Link<K>) {
    let Some(mut down) = link.take() else { return };
    *link = match down.before.take() {
        None => Some(down),
        Some(mut up) => {
            down.before = up.after.take();
            down.count();
            up.after = Some(down);
            up.count();
            Some(up)
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(key: u64) -> ClaimId {
        ClaimId(uuid::Uuid::from_u128(u128::from(key)))
    }

    fn depth<K>(link: &Link<K>) -> u32 {
        link.as_ref().map_or(0, |node| 1 + depth(&node.before).max(depth(&node.after)))
    }

    /// As many steps as a change or a question may take.
    fn depth_max(len: usize) -> u32 {
        (2.5 * ((len + 1) as f64).log2()).ceil() as u32
    }

    #[test]
    fn work_grows_with_the_logarithm_whatever_the_order() {
        const N: u64 = 10_000;
        let orders: [fn(u64) -> u64; 4] = [
            |i| i,
            |i| N - i,
            // From both ends to the middle.
            |i| if i % 2 == 0 { i } else { 2 * N - i },
            |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20,
        ];
        for order in orders {
            let mut queue = Queue::default();
            for i in 0..N {
                queue.insert(order(i), claim(i));
            }
            assert_eq!(queue.len() as u64, N);
            assert!(depth(&queue.root) <= depth_max(queue.len()));
            for i in (0..N).rev().filter(|i| i % 8 != 0) {
                assert_eq!(queue.remove(order(i)), Some(claim(i)));
            }
            assert!(depth(&queue.root) <= depth_max(queue.len()));
            while let Some((key, _)) = queue.front() {
                queue.remove(key);
                assert!(depth(&queue.root) <= depth_max(queue.len()));
            }
        }
    }

    proptest! {
        #[test]
        fn places_are_those_of_a_plain_list(
            steps in proptest::collection::vec((0u8..3, 0u64..200), 1..600),
        ) {
            let mut queue = Queue::default();
            let mut plain: Vec<u64> = Vec::new();
            for (step, pick) in steps {
                if step < 2 || plain.is_empty() {
                    if let Err(place) = plain.binary_search(&pick) {
                        plain.insert(place, pick);
                        queue.insert(pick, claim(pick));
                    }
                } else {
                    let gone = plain.remove(pick as usize % plain.len());
                    prop_assert_eq!(queue.remove(gone), Some(claim(gone)));
                    prop_assert_eq!(queue.remove(gone), None);
                    prop_assert_eq!(queue.position(gone), 0);
                }
                prop_assert_eq!(queue.len(), plain.len());
                prop_assert_eq!(queue.get(pick).is_some(), plain.binary_search(&pick).is_ok());
                prop_assert!(queue.iter().map(|(key, _)| key).eq(plain.iter().copied()));
                prop_assert_eq!(queue.front().map(|(key, _)| key), plain.first().copied());
                for (index, key) in plain.iter().enumerate() {
                    prop_assert_eq!(queue.position(*key), index as u64 + 1);
                }
            }
        }
    }
}
