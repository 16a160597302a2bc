//! Pure. How often the connection to a proxy breaks, and whether that is to be said.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::time::Boottime;

/// A connection breaks often if it does so many times within [`OF_LATE`]: a proxy that is started again breaks it once.
const OFTEN: usize = 3;
pub(super) const OF_LATE: Duration = Duration::from_secs(600);
/// It is said of a proxy so often at most.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// Most breaks that are counted.
const COUNTED_MAX: usize = 1000;

/// The breaks of the connection to one proxy.
#[derive(Debug, Default)]
pub(super) struct Breaks {
    of_late: VecDeque<Boottime>,
    said_at: Option<Boottime>,
}

impl Breaks {
    /// Counts breaks of this moment; how many there were of late, if that is to be said now.
    pub(super) fn count(&mut self, now: Boottime, breaks: usize) -> Option<usize> {
        self.of_late.extend(std::iter::repeat_n(now, breaks.min(COUNTED_MAX)));
        let is_over = |at: &Boottime| now.since(*at) >= OF_LATE;
        while self.of_late.len() > COUNTED_MAX || self.of_late.front().is_some_and(is_over) {
            self.of_late.pop_front();
        }
        let is_said = self.said_at.is_some_and(|at| now.since(at) < SAID_EVERY);
        if breaks == 0 || is_said || self.of_late.len() < OFTEN {
            return None;
        }
        self.said_at = Some(now);
        Some(self.of_late.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_often_is_said_once_a_minute() {
        let begin = Boottime::from_nanos(1_000_000_000);
        let mut breaks = Breaks::default();
        let said: Vec<_> = (1..=10)
            .filter_map(|number| {
                let at = begin + Duration::from_secs(20 * number);
                breaks.count(at, 1).map(|count| (number, count))
            })
            .collect();
        assert_eq!(said, [(3, 3), (6, 6), (9, 9)]);
        assert_eq!(breaks.count(begin + OF_LATE, 0), None, "nothing broke");
    }

    #[test]
    fn what_breaks_seldom_is_not_said_and_the_count_has_a_bound() {
        let begin = Boottime::from_nanos(1_000_000_000);
        let mut breaks = Breaks::default();
        for number in 1..100 {
            assert_eq!(breaks.count(begin + number * OF_LATE / 2, 1), None);
        }
        let later = begin + 100 * OF_LATE;
        assert_eq!(breaks.count(later, usize::MAX), Some(COUNTED_MAX));
    }
}
