//! The clock of valid-untils.

use nix::time::{ClockId, clock_gettime};

/// Goes on counting while the machine sleeps; read without a system call on kernels since 5.3.
#[cfg(not(target_os = "macos"))]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
/// Apple's monotonic clock goes on counting while the machine sleeps; Linux's does not.
#[cfg(target_os = "macos")]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Now, in ns since boot, sleep included: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on macOS.
///
/// Should the clock ever fail, the answer is the end of time, so that nothing counts as held.
///
/// ```
/// let earlier = tenure::page::boottime_ns();
/// assert!(earlier <= tenure::page::boottime_ns());
/// ```
pub fn boottime_ns() -> u64 {
    const NS_PER_S: u64 = 1_000_000_000;
    let Ok(now) = clock_gettime(CLOCK) else { return u64::MAX };
    match (u64::try_from(now.tv_sec()), u64::try_from(now.tv_nsec())) {
        (Ok(s), Ok(ns)) => s.saturating_mul(NS_PER_S).saturating_add(ns),
        _ => u64::MAX,
    }
}
