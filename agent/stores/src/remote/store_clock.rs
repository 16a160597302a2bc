//! Pure. The store's clock as a connection's answers tell of it, and instants of ours for those of it.
//!
//! Two clocks are never compared. An answer tells only that this clock had come so far when the store's had, and
//! from there on counts time that passed.

use std::time::Duration;

use tenure_core::time::Boottime;

/// An answer tells for so long. Whoever keeps a connection up asks more often.
const TELLS_FOR: Duration = Duration::from_secs(30);
/// Of two clocks one may be slower than the other by this part.
const DRIFT_PART: u32 = 200;

/// What is known of a store's clock. Each connection has one of its own: another one may lead to another server.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreClock {
    answered: Option<Answered>,
}

#[derive(Debug, Clone, Copy)]
struct Answered {
    sent_at: Boottime,
    /// The store's time after that, from whatever beginning.
    store: Duration,
}

impl StoreClock {
    /// A call that was sent at `sent_at` or later was answered with the store's time.
    pub fn answered(&mut self, sent_at: Boottime, store: Duration) {
        self.answered = Some(Answered { sent_at, store });
    }

    /// An instant of our clock that is no later than the store's `until`. That was at most `left` away when it was told,
    /// which was before `now`. `None` if nothing recent is known of the store's clock.
    pub fn not_after(&self, now: Boottime, until: Duration, left: Duration) -> Option<Boottime> {
        let Answered { sent_at, store } = self.answered?;
        if now.since(sent_at) > TELLS_FOR {
            return None;
        }
        let later = until.saturating_sub(store);
        // The second is the earlier one only if the store's clock was set forward since it answered.
        Some((sent_at + (later - later / DRIFT_PART)).min(now + left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(seconds: u64) -> Boottime {
        Boottime::ZERO + s(seconds)
    }

    #[test]
    fn what_is_heard_late_ends_no_later() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.not_after(at(100), s(1000), s(5)), None, "nothing was answered");
        clock.answered(at(100), s(1000));
        // Ten seconds after the answer, and heard of at once, late, and very late.
        let until = at(100) + (s(15) - s(15) / DRIFT_PART);
        for heard in [110, 114, 120] {
            assert_eq!(clock.not_after(at(heard), s(1015), s(5)), Some(until), "{heard}");
        }
        assert_eq!(clock.not_after(at(131), s(1036), s(5)), None, "long since answered");
        clock.answered(at(131), s(1031));
        assert!(clock.not_after(at(131), s(1036), s(5)) > Some(at(135)));
    }

    #[test]
    fn a_clock_that_is_set_prolongs_nothing() {
        let mut clock = StoreClock::default();
        clock.answered(at(100), s(1000));
        let forward = clock.not_after(at(101), s(1006 + 3600), s(5));
        assert_eq!(forward, Some(at(106)));
        let back = clock.not_after(at(101), s(6), s(5));
        assert_eq!(back, Some(at(100)), "nothing at all");
    }
}
