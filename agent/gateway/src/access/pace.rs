//! Bounds on requests and on rows per second, by the virtual scheduling algorithm (ITU-T I.371, annex A): one
//! instant is all that is kept.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_core::time::Boottime;

/// As many requests as come in this time are let through at once.
const BURST: Duration = Duration::from_secs(1);

/// When the next request is due, of one that keeps to its rate.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<Boottime>);

impl Pace {
    /// Lets one request through.
    ///
    /// # Errors
    ///
    /// With how long to wait, when it comes too early.
    pub(super) fn take(&mut self, now: Boottime, per_second: u32) -> Result<(), Duration> {
        // One that may do nothing is asked to come again, since its bound may be widened.
        let Some(period) = BURST.checked_div(per_second) else { return Err(BURST) };
        let due = self.0.map_or(now, |due| due.max(now));
        let early = (due + period).since(now).saturating_sub(BURST);
        if early.is_zero() {
            self.0 = Some(due + period);
            return Ok(());
        }
        Err(early)
    }
}

/// As many rows as in this time are read at once, by a principal that has read none before.
const ROWS_BURST: Duration = Duration::from_secs(5);
/// Most time that it waits beyond that. An answer may have any number of rows.
const ROWS_LATE_MAX: Duration = Duration::from_secs(2);

/// When the rows that a principal has read are paid for, if it keeps to its rate.
#[derive(Debug, Default)]
pub(super) struct RowPace(Option<Boottime>);

impl RowPace {
    /// How long to wait before the next read.
    pub(super) fn wait(&self, now: Boottime) -> Duration {
        let ahead = self.0.map_or(Duration::ZERO, |due| due.since(now));
        ahead.saturating_sub(ROWS_BURST)
    }

    /// Counts the rows of an answer.
    pub(super) fn add(&mut self, now: Boottime, rows: usize, per_second: NonZeroU32) {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let time = Duration::from_secs(rows.into()) / per_second.get();
        let due = self.0.map_or(now, |due| due.max(now)) + time;
        self.0 = Some(due.min(now + ROWS_BURST + ROWS_LATE_MAX));
    }

    /// True if nothing would be different without it.
    pub(super) fn is_over(&self, now: Boottime) -> bool {
        self.0.is_none_or(|due| due <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Boottime = Boottime::from_nanos(5_000_000_000);

    #[test]
    fn as_many_as_in_a_second_come_at_once_and_then_one_in_each_period() {
        for per_second in [1, 3, 10, 1000] {
            let mut pace = Pace::default();
            let period = BURST / per_second;
            for at in [NOW, NOW + BURST * 60] {
                for _ in 0..per_second {
                    pace.take(at, per_second).unwrap();
                }
                let wait = pace.take(at, per_second).unwrap_err();
                assert!(wait <= period && !wait.is_zero(), "{wait:?}");
                pace.take(at + wait, per_second).unwrap();
                pace.take(at + wait, per_second).unwrap_err();
            }
        }
        assert_eq!(Pace::default().take(NOW, 0), Err(BURST));
    }

    #[test]
    fn so_many_rows_are_read_at_once_and_then_so_many_in_a_second() {
        for per_second in [1, 5_000, 10_000_000] {
            let rate = NonZeroU32::new(per_second).unwrap();
            let page = per_second.div_ceil(5);
            let mut pace = RowPace::default();
            pace.add(NOW, 5 * per_second as usize, rate);
            assert!(pace.wait(NOW).is_zero() && !pace.is_over(NOW));
            let (mut now, mut rows) = (NOW, 0);
            while now < NOW + Duration::from_secs(60) {
                now = now + pace.wait(now);
                pace.add(now, page as usize, rate);
                rows += page;
            }
            assert!((60 * per_second..=61 * per_second).contains(&rows), "{rows} of {per_second}");
            pace.add(now, usize::MAX, rate);
            let wait = pace.wait(now);
            assert_eq!(wait, ROWS_LATE_MAX, "no answer costs more");
            assert!(pace.is_over(now + wait + ROWS_BURST));
        }
    }
}
