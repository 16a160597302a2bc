//! Repeated lines.

use std::time::{Duration, Instant};

/// Lets some lines of a sort through in each interval and counts the rest, so that one cause does
/// not fill the log.
#[derive(Debug)]
pub struct Repeats {
    began: Option<Instant>,
    passed: u32,
    withheld: u64,
}

/// How long an interval lasts.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many lines of a sort an interval lets through.
pub(super) const LINES_MAX: u32 = 20;

impl Repeats {
    /// A sort of which nothing has been logged yet.
    pub const fn new() -> Repeats {
        Repeats { began: None, passed: 0, withheld: 0 }
    }

    /// Decides about logging one more: `Some` with how many were withheld since the last one that
    /// was logged.
    #[expect(clippy::disallowed_methods, reason = "only paces log lines")]
    pub fn admit(&mut self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.duration_since(began) >= INTERVAL) {
            self.began = Some(now);
            self.passed = 0;
        }
        if self.passed == LINES_MAX {
            self.withheld += 1;
            return None;
        }
        self.passed += 1;
        Some(std::mem::take(&mut self.withheld))
    }
}

impl Default for Repeats {
    fn default() -> Repeats {
        Repeats::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant does")]
    fn the_first_of_an_interval_tells_of_the_withheld() {
        let mut repeats = Repeats::new();
        let start = Instant::now();
        for _ in 0..LINES_MAX {
            assert_eq!(repeats.admit_at(start), Some(0));
        }
        assert_eq!(repeats.admit_at(start), None);
        assert_eq!(repeats.admit_at(start + INTERVAL / 2), None);
        assert_eq!(repeats.admit_at(start + INTERVAL), Some(2));
        assert_eq!(repeats.admit_at(start + INTERVAL), Some(0));
    }
}
