//! Pure. Those that make way for others when there are too many, by address: who has been there longest first.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// One of them: its place in the order in which they came, and its number.
pub(super) type Entry = (u64, u64);

/// Those that can be displaced. Of the address that has the most, the one that has been there longest goes first, so that
/// a flood from few addresses displaces itself.
#[derive(Debug, Default)]
pub(super) struct Displaceable {
    by_address: HashMap<IpAddr, BTreeSet<Entry>>,
    /// How many each address has, and its first one: the last is displaced next.
    weights: BTreeSet<(usize, Reverse<Entry>, IpAddr)>,
    count: usize,
}

impl Displaceable {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn len_of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).map_or(0, BTreeSet::len)
    }

    pub(super) fn insert(&mut self, address: IpAddr, entry: Entry) {
        self.change(address, |entries| entries.insert(entry));
    }

    pub(super) fn remove(&mut self, address: IpAddr, entry: Entry) -> bool {
        self.change(address, |entries| entries.remove(&entry))
    }

    /// Takes out the one of an address that has been there longest.
    pub(super) fn displace_of(&mut self, address: IpAddr) -> Option<Entry> {
        let entry = self.by_address.get(&address)?.first().copied()?;
        self.remove(address, entry).then_some(entry)
    }

    /// Takes out the one that has been there longest, of the address that has the most.
    pub(super) fn displace(&mut self) -> Option<Entry> {
        let (_, _, address) = self.weights.last().copied()?;
        self.displace_of(address)
    }

    fn change(
        &mut self,
        address: IpAddr,
        change: impl FnOnce(&mut BTreeSet<Entry>) -> bool,
    ) -> bool {
        let entries = self.by_address.entry(address).or_default();
        let before = entries.len();
        if let Some(first) = entries.first() {
            self.weights.remove(&(before, Reverse(*first), address));
        }
        let is_changed = change(entries);
        let after = entries.len();
        match entries.first() {
            Some(first) => {
                self.weights.insert((after, Reverse(*first), address));
            }
            None => {
                self.by_address.remove(&address);
            }
        }
        self.count = self.count + after - before;
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, host])
    }

    #[test]
    fn the_longest_of_the_address_with_the_most_goes_first() {
        let mut line = Displaceable::default();
        for (since, host) in [(1, 9), (2, 1), (3, 1), (4, 1), (5, 2)] {
            line.insert(address(host), (since, 0));
        }
        assert_eq!((line.len(), line.len_of(address(1))), (5, 3));
        let gone: Vec<_> = std::iter::from_fn(|| line.displace()).map(|(since, _)| since).collect();
        assert_eq!(gone, [2, 3, 1, 4, 5], "then the longest of all");
        assert!(line.by_address.is_empty() && line.weights.is_empty() && line.len() == 0);
    }

    #[test]
    fn those_that_leave_are_forgotten() {
        let mut line = Displaceable::default();
        line.insert(address(1), (1, 0));
        line.insert(address(1), (2, 0));
        assert!(line.remove(address(1), (1, 0)) && !line.remove(address(1), (1, 0)));
        assert!(!line.remove(address(2), (2, 0)));
        assert_eq!(line.displace_of(address(1)), Some((2, 0)));
        assert_eq!((line.displace_of(address(1)), line.displace()), (None, None));
        assert!(line.by_address.is_empty() && line.weights.is_empty());
    }
}
