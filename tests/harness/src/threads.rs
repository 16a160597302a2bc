//! Work on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Makes a call for each item, so many at a time. Results have the order of the items.
///
/// # Panics
///
/// If a call does.
pub fn each<T: Sync, R: Send>(items: &[T], threads: u64, call: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let take = || {
            let at = next.fetch_add(1, Ordering::Relaxed);
            Some((at, call(items.get(at)?)))
        };
        std::iter::from_fn(take).collect::<Vec<_>>()
    };
    let mut results = thread::scope(|scope| {
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(take)).collect();
        let ended = running.into_iter().flat_map(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ended.collect::<Vec<_>>()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
