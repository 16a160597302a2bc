//! PURE. What an agent concludes from calls that a gateway does not answer in time.
//!
//! How long a beat waits depends on the shortest ttl in it, and a store that is slow for one gateway is as slow for the
//! others. So after a late call the agent probes the gateway, which answers a probe without its store. A gateway that
//! hangs, or is cut off, gives no answer, and is left. A gateway that answers is kept, unless its calls are late again
//! and again, as with a bad way to the store. The next gateway is kept for twice as many late calls.

use std::time::Duration;

use tenure_core::time::Boottime;

/// How long a gateway may take to answer a probe, if it never took longer …
const ANSWER_MIN: Duration = Duration::from_millis(250);
/// … and how many times as long as it took to let the agent in.
const ANSWER_TIMES: u32 = 2;
/// Late calls in a row after which a gateway is left all the same, at first and at most.
const LATE_MIN: u32 = 4;
const LATE_MAX: u32 = 64;
/// Calls are late in a row if no more time is between two of them.
const ROW: Duration = Duration::from_secs(10);

/// The late calls of an agent.
#[derive(Debug)]
pub(super) struct Lateness {
    last: Option<Boottime>,
    count: u32,
    most: u32,
    /// The gateway that has to answer a probe.
    doubted: Option<usize>,
    /// How long the gateway in use took to let the agent in.
    took: Duration,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { last: None, count: 0, most: LATE_MIN, doubted: None, took: Duration::ZERO }
    }
}

impl Lateness {
    /// Notes a late call to the gateway in use. True if the agent should leave the gateway without a probe.
    pub(super) fn is_too_often(&mut self, now: Boottime, gateway: usize) -> bool {
        if self.last.replace(now).is_none_or(|last| now.since(last) > ROW) {
            self.count = 0;
            self.most = LATE_MIN;
        }
        self.count += 1;
        if self.count < self.most {
            self.doubted = Some(gateway);
            return false;
        }
        self.count = 0;
        self.most = (self.most * 2).min(LATE_MAX);
        true
    }

    /// How long a gateway may take to let the agent in, `most` at most.
    pub(super) fn patience(&self, gateway: usize, most: Duration) -> Duration {
        match self.doubted == Some(gateway) {
            true => (self.took * ANSWER_TIMES).max(ANSWER_MIN).min(most),
            false => most,
        }
    }

    /// Notes how long a gateway took to let the agent in; `None` if it did not.
    pub(super) fn answered(&mut self, gateway: usize, took: Option<Duration>) {
        self.doubted.take_if(|doubted| *doubted == gateway);
        if let Some(took) = took {
            self.took = took;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Boottime {
        Boottime::from_nanos(ms * 1_000_000)
    }

    const MOST: Duration = Duration::from_secs(2);

    #[test]
    fn a_gateway_is_asked_for_itself_after_a_late_call_and_has_less_time_for_that() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.patience(1, MOST), MOST);
        assert!(!lateness.is_too_often(at(1000), 1));
        assert_eq!(lateness.patience(1, MOST), ANSWER_MIN);
        assert_eq!(lateness.patience(0, MOST), MOST, "the others have all the time");
        lateness.answered(1, Some(Duration::from_millis(300)));
        assert_eq!(lateness.patience(1, MOST), MOST);
        assert!(!lateness.is_too_often(at(1400), 1));
        assert_eq!(lateness.patience(1, MOST), Duration::from_millis(600), "its way is long");
    }

    #[test]
    fn where_no_gateway_is_better_each_is_kept_for_twice_as_many_late_calls() {
        let mut lateness = Lateness::default();
        let late = |from: u64, lateness: &mut Lateness| {
            (0..200).filter(|n| lateness.is_too_often(at(from + n * 375), 0)).collect::<Vec<_>>()
        };
        assert_eq!(late(1000, &mut lateness), [3, 11, 27, 59, 123, 187]);
        assert_eq!(late(900_000, &mut lateness)[0], 3, "that was long ago");
    }
}
