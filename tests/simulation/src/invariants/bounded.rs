//! I10: memory is bounded by configured limits whatever programs do.
//! I13: so is the work of one turn, however many wait.

use super::Verdict;

/// Most look-ups and effects of a turn: it takes in something new for 5 ms, and ends what it has begun by then, which is
/// about a call's renewals at most.
const WORK_MAX: u64 = 20_000;

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

    /// A turn looked up and did so much.
    pub(crate) fn works(&self, host: usize, work: u64) -> Verdict {
        if work <= WORK_MAX {
            return Ok(());
        }
        Err(format!("host {host} looked up and did {work} in one turn; the limit is {WORK_MAX}"))
    }
}
