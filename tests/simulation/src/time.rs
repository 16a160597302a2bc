//! True time, which nobody in a run can see, and the clocks that they see instead.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use tenure_core::time::Boottime;

/// An instant of true time, ns since the run began.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrueTime(u64);

impl TrueTime {
    /// ns since the run began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: TrueTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for TrueTime {
    type Output = TrueTime;

    fn add(self, by: Duration) -> TrueTime {
        TrueTime(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for TrueTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1_000)
    }
}

/// A machine's BOOTTIME clock: an offset, and a rate that is not quite right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    offset_ns: u64,
    drift_ppm: i64,
    /// When its machine was booted, ns of true time.
    since_ns: u64,
}

impl Clock {
    /// A clock that showed `offset` when the run began, and gains `drift_ppm` µs per second.
    pub(crate) const fn new(offset_ns: u64, drift_ppm: i64) -> Clock {
        Clock { offset_ns, drift_ppm, since_ns: 0 }
    }

    /// Its machine is booted: it shows zero.
    pub(crate) fn boot(&mut self, now: TrueTime) {
        (self.offset_ns, self.since_ns) = (0, now.0);
    }

    pub(crate) fn at(&self, now: TrueTime) -> Boottime {
        Boottime::from_nanos(self.offset_ns + self.elapsed(now.0.saturating_sub(self.since_ns)))
    }

    /// The first instant at which it shows `shown` or later.
    pub(crate) fn when(&self, shown: Boottime) -> TrueTime {
        let elapsed = shown.as_nanos().saturating_sub(self.offset_ns);
        let guess = u128::from(elapsed) * 1_000_000 / self.rate();
        let mut at = u64::try_from(guess).unwrap_or(u64::MAX);
        while at > 0 && self.elapsed(at - 1) >= elapsed {
            at -= 1;
        }
        while self.elapsed(at) < elapsed && at < u64::MAX {
            at += 1;
        }
        TrueTime(at.saturating_add(self.since_ns))
    }

    fn rate(&self) -> u128 {
        (1_000_000 + i128::from(self.drift_ppm)).unsigned_abs()
    }

    fn elapsed(&self, true_ns: u64) -> u64 {
        u64::try_from(u128::from(true_ns) * self.rate() / 1_000_000).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_and_its_inverse_agree() {
        for drift_ppm in [-4000, -1, 0, 1, 2000, 4000] {
            let clock = Clock::new(7_000_000_123, drift_ppm);
            for ns in [0, 1, 999, 1_000_000_007, 120_000_000_000] {
                let shown = clock.at(TrueTime(ns));
                let first = clock.when(shown);
                assert_eq!(clock.at(first), shown, "drift {drift_ppm}, {ns} ns");
                assert!(first <= TrueTime(ns), "drift {drift_ppm}, {ns} ns");
                let later = shown + Duration::from_nanos(1);
                assert!(clock.at(clock.when(later)) >= later, "drift {drift_ppm}, {ns} ns");
            }
        }
    }

    #[test]
    fn an_instant_before_boot_is_long_past() {
        assert_eq!(Clock::new(5, 0).when(Boottime::ZERO), TrueTime(0));
    }
}
