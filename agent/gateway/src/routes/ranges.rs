//! Pure. Which partitions are whose: the range advises where to place new mailboxes.

use std::ops::RangeInclusive;

/// Partitions, of which every proxy has one at least.
const PARTITIONS: usize = 256;
/// Most proxies of a tenant.
pub const PROXIES_MAX: usize = PARTITIONS;

/// The range of each proxy, in the order of their ids: 256/n each, and the rest for the last one. `None` with more
/// than [`PROXIES_MAX`].
pub fn ranges<'a>(
    proxies: impl IntoIterator<Item = &'a str>,
) -> Option<Vec<(&'a str, RangeInclusive<u8>)>> {
    let mut proxies = Vec::from_iter(proxies);
    proxies.sort_unstable();
    proxies.dedup();
    let each = match proxies.len() {
        0 => return Some(Vec::new()),
        count @ 1..=PROXIES_MAX => PARTITIONS / count,
        _ => return None,
    };
    let last = proxies.len() - 1;
    let partition = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    let range = |(index, proxy)| {
        let end = if index == last { PARTITIONS - 1 } else { (index + 1) * each - 1 };
        (proxy, partition(index * each)..=partition(end))
    };
    Some(proxies.into_iter().enumerate().map(range).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_one_proxy_whatever_their_number() {
        for count in 1..=PROXIES_MAX {
            let ids: Vec<_> = (0..count).rev().map(|id| format!("proxy-{id:03}")).collect();
            let twice = ids.iter().chain(&ids).map(String::as_str);
            let found = ranges(twice).unwrap();
            assert_eq!(found.len(), count);
            assert!(found.is_sorted_by(|(a, _), (b, _)| a < b));
            let all: Vec<u8> = found.iter().flat_map(|(_, range)| range.clone()).collect();
            assert_eq!(all, Vec::from_iter(0..=u8::MAX), "each once, in order: {count}");
            let each = PARTITIONS / count;
            let (_, last) = found.last().unwrap();
            assert!(found[..count - 1].iter().all(|(_, range)| range.len() == each));
            assert_eq!(last.len(), PARTITIONS - each * (count - 1));
        }
    }

    #[test]
    fn there_are_no_more_proxies_than_partitions() {
        let ids: Vec<_> = (0..=PROXIES_MAX).map(|id| id.to_string()).collect();
        assert_eq!(ranges(ids.iter().map(String::as_str)), None);
        assert_eq!(ranges([]), Some(Vec::new()));
        let four = ranges(["d", "b", "a", "c"]).unwrap();
        assert_eq!(four, [("a", 0..=63), ("b", 64..=127), ("c", 128..=191), ("d", 192..=255)]);
    }
}
