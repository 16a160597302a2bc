//! Instants.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
    fn arithmetic_saturates() {
        let instant = Boottime::from_nanos(5);
        assert_eq!(instant.before(Duration::from_secs(1)), Boottime::ZERO);
        assert_eq!(instant.since(Boottime::from_nanos(9)), Duration::ZERO);
        assert_eq!((instant + Duration::MAX).as_nanos(), u64::MAX);
        assert_eq!(instant + Duration::from_nanos(2) - instant, Duration::from_nanos(2));
    }
}
