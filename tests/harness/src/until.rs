//! Waiting for conditions.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// How long anything may take before a test gives up on it. Not a measure of speed: long enough for
/// a machine that does ten other things.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Now, in ns of CLOCK_BOOTTIME: the clock of `valid_until_boottime_ns`.
pub fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("this kernel has no CLOCK_BOOTTIME");
    u64::try_from(Duration::from(now).as_nanos()).expect("this machine has run for centuries")
}

/// Looks again and again until there is something, and returns it.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = boottime_ns() + u64::try_from(DEADLINE.as_nanos()).unwrap_or(u64::MAX);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(boottime_ns() < give_up, "waited {DEADLINE:?} in vain for {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Looks again and again until the condition holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}
