//! The clock of valid-untils.

use std::time::Duration;

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

/// This process reads another clock than the agent, so that valid-untils mean nothing to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this program's clock is {:.1} s {} the agent's: a time namespace; run both in the same one",
    .by.as_secs_f64(),
    if *ahead { "ahead of" } else { "behind" }
)]
pub struct ClocksDiffer {
    /// By how much at least.
    pub by: Duration,
    /// True if the clock here is ahead of the agent's; else it is behind, and the more dangerous: a
    /// hold would look valid here after its end.
    pub ahead: bool,
}

/// Checks that this process reads the clock of the agent. Whoever acts by a page or a valid-until must
/// do so once, and refuse to go on otherwise: a process in another time namespace shares the agent's
/// boot, but not its clock.
///
/// `asked_at_ns` is [`boottime_ns`] of just before the request whose answer told `valid_ms` and
/// `valid_until_ns`. A difference shorter than the answer took is not seen.
///
/// # Errors
///
/// [`ClocksDiffer`].
///
/// ```
/// use tenure::page::{boottime_ns, check_clock};
///
/// let asked_at = boottime_ns();
/// // The answer: valid for 30 s from its making on.
/// let (valid_ms, valid_until_ns) = (30_000, boottime_ns() + 30_000_000_000);
/// assert!(check_clock(asked_at, valid_ms, valid_until_ns).is_ok());
/// assert!(check_clock(asked_at, valid_ms, valid_until_ns + 300_000_000_000).is_err());
/// ```
pub fn check_clock(
    asked_at_ns: u64,
    valid_ms: u64,
    valid_until_ns: u64,
) -> Result<(), ClocksDiffer> {
    /// Answers count whole ms.
    const ROUNDING_NS: u64 = 2_000_000;
    const NS_PER_MS: u64 = 1_000_000;
    // The agent read its clock after the one instant and before the other.
    let earliest = asked_at_ns.saturating_add(valid_ms.saturating_mul(NS_PER_MS));
    let latest = boottime_ns()
        .saturating_add(valid_ms.saturating_mul(NS_PER_MS))
        .saturating_add(ROUNDING_NS);
    let differ = |ns, ahead| Err(ClocksDiffer { by: Duration::from_nanos(ns), ahead });
    if valid_until_ns > latest {
        differ(valid_until_ns - latest, false)
    } else if valid_until_ns < earliest && valid_ms > 0 {
        differ(earliest - valid_until_ns, true)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn another_clock_is_told_from_a_slow_answer() {
        let now = boottime_ns();
        assert_eq!(check_clock(now - S, 30_000, now + 30 * S), Ok(()));
        // The answer took a second on its way.
        assert_eq!(check_clock(now - 2 * S, 30_000, now + 29 * S), Ok(()));
        // It was over when it was told.
        assert_eq!(check_clock(now, 0, now - S), Ok(()));
        let behind = check_clock(now, 30_000, now + 330 * S).expect_err("another clock");
        assert!(!behind.ahead && behind.by <= Duration::from_secs(300), "{behind}");
        assert!(behind.to_string().contains(" s behind the agent's: a time namespace"), "{behind}");
        let ahead = check_clock(now, 30_000, now - 270 * S).expect_err("another clock");
        assert_eq!((ahead.ahead, ahead.by), (true, Duration::from_secs(300)));
        assert!(ahead.to_string().contains("is 300.0 s ahead of the agent's"), "{ahead}");
    }
}
