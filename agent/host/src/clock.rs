//! Instants that go on counting while the machine sleeps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use tenure_core::time::Boottime;

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
    Boottime::from_nanos(read(COUNTS_SLEEP))
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
    u64::try_from(Duration::from(time).as_nanos()).unwrap_or(u64::MAX)
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
}
