//! I10: memory is bounded by configured limits whatever programs do.

use super::Verdict;

/// Compares sizes with their limits.
#[derive(Default)]
pub(crate) struct Bounded;

impl Bounded {
    /// There are `count` of `what`, and must be at most `max`.
    pub(crate) fn within(&self, host: usize, what: &str, count: usize, max: usize) -> Verdict {
        if count <= max {
            return Ok(());
        }
        Err(format!("host {host} has {count} {what}; the limit is {max}"))
    }
}
