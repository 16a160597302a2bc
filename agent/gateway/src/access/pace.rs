//! A bound on requests per second, by the virtual scheduling algorithm (ITU-T I.371, annex A): one
//! instant is all that is kept.

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
}
