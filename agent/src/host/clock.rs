//! Instants that go on counting while the machine sleeps.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
const COUNTS_SLEEP: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(target_os = "linux")]
const STOPS_IN_SLEEP: ClockId = ClockId::CLOCK_MONOTONIC;
// On macOS it is CLOCK_MONOTONIC that goes on in sleep; see clock_gettime(3) there.
#[cfg(target_os = "macos")]
const COUNTS_SLEEP: ClockId = ClockId::CLOCK_MONOTONIC;
#[cfg(target_os = "macos")]
const STOPS_IN_SLEEP: ClockId = ClockId::from_raw(libc::CLOCK_UPTIME_RAW);

/// The present instant.
pub fn now() -> Boottime {
    Boottime(read(COUNTS_SLEEP))
}

/// µs since 1970 by the wall clock; 0 while that clock stands before 1970. Only for what people
/// read and for token floors, never for a deadline: it can be set.
#[expect(clippy::disallowed_methods, reason = "this is where the rest of the house gets it")]
pub fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// How long the machine has slept since boot. A difference between two calls says that it slept in
/// between; differences below [`SLEEP_MIN`] are imprecision.
pub fn suspended_total() -> Duration {
    let mut best = (u64::MAX, 0);
    // Two clocks cannot be read at once: being descheduled in between would look like sleep.
    for _ in 0..TRIES {
        let before = read(STOPS_IN_SLEEP);
        let counting = read(COUNTS_SLEEP);
        let width = read(STOPS_IN_SLEEP).saturating_sub(before);
        if width < best.0 {
            best = (width, counting.saturating_sub(before + width / 2));
        }
        if width < 10_000 {
            break;
        }
    }
    Duration::from_nanos(best.1)
}

/// A growth of [`suspended_total`] that means sleep.
pub const SLEEP_MIN: Duration = Duration::from_millis(20);
const TRIES: u32 = 16;

#[expect(clippy::expect_used, reason = "these clocks exist wherever this compiles")]
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("a clock that every supported system has");
    nanos(Duration::from(time))
}

/// An instant of CLOCK_BOOTTIME (Linux) or CLOCK_MONOTONIC (macOS), in ns since boot.
///
/// `std::time::Instant` stops while the machine sleeps; a deadline that matters to other hosts
/// must not.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boottime(u64);

impl Boottime {
    /// The instant of boot; also what a page shows for *not held*.
    pub const ZERO: Boottime = Boottime(0);

    /// The instant that many ns after boot.
    pub const fn from_nanos(ns: u64) -> Boottime {
        Boottime(ns)
    }

    /// ns since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Boottime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This long before; not before boot.
    #[must_use]
    pub fn before(self, by: Duration) -> Boottime {
        Boottime(self.0.saturating_sub(nanos(by)))
    }
}

impl Add<Duration> for Boottime {
    type Output = Boottime;

    fn add(self, by: Duration) -> Boottime {
        Boottime(self.0.saturating_add(nanos(by)))
    }
}

impl Sub<Boottime> for Boottime {
    type Output = Duration;

    fn sub(self, earlier: Boottime) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Boottime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1_000)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on() {
        let earlier = now();
        assert!(earlier > Boottime::ZERO);
        assert!(now() >= earlier);
    }

    #[test]
    fn sleep_does_not_grow_while_awake() {
        let before = suspended_total();
        for _ in 0..1000 {
            assert!(suspended_total().abs_diff(before) < SLEEP_MIN);
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let instant = Boottime::from_nanos(5);
        assert_eq!(instant.before(Duration::from_secs(1)), Boottime::ZERO);
        assert_eq!(instant.since(Boottime::from_nanos(9)), Duration::ZERO);
        assert_eq!((instant + Duration::MAX).as_nanos(), u64::MAX);
        assert_eq!(instant + Duration::from_nanos(2) - instant, Duration::from_nanos(2));
    }
}
