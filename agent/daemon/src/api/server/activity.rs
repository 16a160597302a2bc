//! The activity of a connection, and since when.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::api::Limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Phase {
    /// Connected, and nothing came yet.
    Fresh = 0,
    /// Part of a request's head came.
    Head = 1,
    Busy = 2,
    Answered = 3,
    /// An event stream is open; nothing comes after it.
    Streaming = 4,
    /// Waiting for the next request.
    Idle = 5,
}

impl Phase {
    fn from_bits(bits: u64) -> Phase {
        match bits & PHASE_MASK {
            0 => Phase::Fresh,
            1 => Phase::Head,
            2 => Phase::Busy,
            3 => Phase::Answered,
            4 => Phase::Streaming,
            _ => Phase::Idle,
        }
    }
}

const PHASE_BITS: u32 = 3;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;

/// The activity of a connection, and since when. Written by the connection, read by the sweep that
/// closes what is overdue: one store per change is cheaper than a timer per request, and hyper's
/// own timer cannot tell an idle connection from a slow head.
#[derive(Debug)]
pub(super) struct Activity {
    epoch: Instant,
    /// Phase in the low bits, ms since the epoch above.
    state: AtomicU64,
    /// ms since the epoch, plus one, when the client last took nothing; 0 when it takes.
    stalled: AtomicU64,
}

impl Activity {
    pub(super) fn new(epoch: Instant) -> Activity {
        let activity = Activity { epoch, state: AtomicU64::new(0), stalled: AtomicU64::new(0) };
        activity.enter(Phase::Fresh);
        activity
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX >> PHASE_BITS)
    }

    pub(super) fn phase(&self) -> Phase {
        Phase::from_bits(self.state.load(Ordering::Relaxed))
    }

    fn enter(&self, phase: Phase) {
        // Only some phases have a deadline or a rank; the others save the look at the clock.
        let since = match phase {
            Phase::Fresh | Phase::Head | Phase::Idle => self.now_ms(),
            Phase::Busy | Phase::Answered | Phase::Streaming => 0,
        };
        self.state.store(since << PHASE_BITS | phase as u64, Ordering::Relaxed);
    }

    /// The server wants to read: if an answer was given, it waits for the next request.
    pub(super) fn reading(&self) {
        if self.phase() == Phase::Answered {
            self.enter(Phase::Idle);
        }
    }

    pub(super) fn received(&self) {
        if matches!(self.phase(), Phase::Fresh | Phase::Idle) {
            self.enter(Phase::Head);
        }
    }

    pub(super) fn busy(&self) {
        self.enter(Phase::Busy);
    }

    /// The handler opened an event stream.
    pub(super) fn streaming(&self) {
        self.enter(Phase::Streaming);
    }

    pub(super) fn answered(&self) {
        if self.phase() != Phase::Streaming {
            self.enter(Phase::Answered);
        }
    }

    /// The client took bytes, or would not.
    pub(super) fn wrote(&self, is_stalled: bool) {
        let was_stalled = self.stalled.load(Ordering::Relaxed) != 0;
        match (was_stalled, is_stalled) {
            (false, true) => self.stalled.store(self.now_ms() + 1, Ordering::Relaxed),
            (true, false) => self.stalled.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// True if the client would not take what was written last.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed) != 0
    }

    /// Since when the connection has had no request, ms since the epoch; `None` while it has one.
    pub(super) fn idle_since_ms(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Relaxed);
        match Phase::from_bits(state) {
            Phase::Fresh | Phase::Head | Phase::Idle => Some(state >> PHASE_BITS),
            Phase::Busy | Phase::Answered | Phase::Streaming => None,
        }
    }

    /// True if the connection has taken longer than the limits allow.
    pub(super) fn is_overdue(&self, limits: &Limits) -> bool {
        let now = self.now_ms();
        let longer =
            |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_millis();
        let stalled = self.stalled.load(Ordering::Relaxed);
        if stalled != 0 && longer(stalled - 1, limits.write_timeout) {
            return true;
        }
        let limit = match self.phase() {
            Phase::Fresh | Phase::Head => limits.head_timeout,
            Phase::Idle => limits.idle_timeout,
            Phase::Busy | Phase::Answered | Phase::Streaming => return false,
        };
        self.idle_since_ms().is_some_and(|since| longer(since, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_a_request() {
        let activity = Activity::new(Instant::now());
        activity.reading();
        assert_eq!(activity.phase(), Phase::Fresh);
        activity.received();
        assert_eq!(activity.phase(), Phase::Head);
        assert!(activity.idle_since_ms().is_some());
        activity.busy();
        activity.received();
        assert_eq!(activity.phase(), Phase::Busy);
        assert!(activity.idle_since_ms().is_none());
        activity.answered();
        activity.reading();
        assert_eq!(activity.phase(), Phase::Idle);
        activity.busy();
        activity.streaming();
        activity.answered();
        activity.reading();
        assert_eq!(activity.phase(), Phase::Streaming);
    }

    #[test]
    fn what_takes_too_long_is_overdue() {
        let Some(epoch) = Instant::now().checked_sub(Duration::from_secs(100)) else { return };
        let limits = Limits::default();
        let activity = Activity::new(epoch);
        assert!(!activity.is_overdue(&limits));
        activity.state.store(94_000 << PHASE_BITS | Phase::Head as u64, Ordering::Relaxed);
        assert!(activity.is_overdue(&limits));
        activity.state.store(94_000 << PHASE_BITS | Phase::Idle as u64, Ordering::Relaxed);
        assert!(!activity.is_overdue(&limits));
        activity.state.store(39_000 << PHASE_BITS | Phase::Idle as u64, Ordering::Relaxed);
        assert!(activity.is_overdue(&limits));
        activity.streaming();
        assert!(!activity.is_overdue(&limits));
        activity.wrote(true);
        assert!(!activity.is_overdue(&limits));
        activity.stalled.store(80_000, Ordering::Relaxed);
        assert!(activity.is_overdue(&limits));
        activity.wrote(false);
        assert!(!activity.is_overdue(&limits));
    }
}
