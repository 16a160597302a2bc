//! PURE. Whether a store takes writes.
//!
//! A call that fails proves little: its key may belong to another program, its row may be locked, its tenant may be
//! closed to this agent. So it only raises a doubt. Then a write of the agent's own, which has no effect, tells whether
//! the store refuses all writes, and later tells when it takes them again. Without a doubt nothing is tried.

use std::time::Duration;

use tenure_core::time::Boottime;

use super::reach::Reach;

/// Time between two tries, which bounds the load of a fleet on a full store.
pub(super) const TRY_EVERY: Duration = Duration::from_secs(2);
/// Unanswered tries in a row that count as a refusal: a single one may be late for any reason.
const SILENT_MAX: u32 = 2;
/// The beginning of the error of a store that refuses writes.
pub const REFUSES_WRITES: &str = "it refuses writes: ";

/// The reason for which a tried write was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The store refuses writes, in its own words.
    #[error("{0}")]
    Refused(String),
    /// The outcome is unknown.
    #[error("{0}")]
    Silent(String),
}

/// The outcome of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    Taken,
    /// The store's own words.
    Refused(String),
    /// The write was sent, and not answered.
    Silent(String),
    /// There was no connection; the links report that.
    NotSent,
}

/// The state of a store's writes.
#[derive(Debug)]
pub(super) struct Writes {
    reach: Reach,
    /// Why a write failed last, or why a try was refused. Tries go on while there is one.
    doubt: Option<String>,
    is_refused: bool,
    try_at: Boottime,
    is_trying: bool,
    /// Tries in a row without an answer.
    silent: u32,
}

impl Writes {
    pub(super) fn new(now: Boottime) -> Writes {
        let mut reach = Reach::new(now);
        reach.change(now, true);
        Writes { reach, doubt: None, is_refused: false, try_at: now, is_trying: false, silent: 0 }
    }

    /// A write failed.
    pub(super) fn doubt(&mut self, cause: &str) {
        // The words of a refusal stay, so that the status does not change with every call.
        self.doubt.get_or_insert_with(|| cause.to_owned());
    }

    /// The reason for a try that is due now, if one is.
    pub(super) fn take(&mut self, now: Boottime) -> Option<String> {
        self.poll_timeout().filter(|at| *at <= now)?;
        self.is_trying = true;
        self.try_at = now + TRY_EVERY;
        self.doubt.clone()
    }

    /// Takes the outcome of a try. True if the store takes writes from now on, or no more.
    pub(super) fn conclude(&mut self, now: Boottime, outcome: WriteOutcome) -> bool {
        self.is_trying = false;
        let before = self.is_refused;
        match outcome {
            WriteOutcome::Taken => {
                self.doubt = None;
                self.is_refused = false;
                self.silent = 0;
            }
            WriteOutcome::Refused(cause) => {
                self.doubt = Some(cause);
                self.is_refused = true;
                self.silent = 0;
            }
            WriteOutcome::Silent(cause) => {
                self.silent = self.silent.saturating_add(1);
                if self.silent >= SILENT_MAX {
                    self.doubt = Some(format!("several in a row had no answer ({cause})"));
                    self.is_refused = true;
                }
            }
            WriteOutcome::NotSent => {}
        }
        self.reach.change(now, !self.is_refused);
        before != self.is_refused
    }

    /// The reason for which the store refuses writes, if it does.
    pub(super) fn refusal(&self) -> Option<String> {
        let cause = self.doubt.as_ref().filter(|_| self.is_refused)?;
        Some(format!("{REFUSES_WRITES}{cause}"))
    }

    /// Since when the store takes writes, or refuses them.
    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        (self.doubt.is_some() && !self.is_trying).then_some(self.try_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Boottime {
        Boottime::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn a_call_that_fails_has_a_write_tried_and_only_that_decides() {
        let mut writes = Writes::new(at(1));
        assert_eq!((writes.poll_timeout(), writes.take(at(9))), (None, None), "nothing failed");
        writes.doubt("READONLY");
        assert_eq!(writes.take(at(10)).as_deref(), Some("READONLY"));
        writes.doubt("READONLY");
        assert_eq!(writes.take(at(11)), None, "one at a time");
        assert_eq!(writes.refusal(), None);
        assert!(!writes.conclude(at(11), WriteOutcome::Taken));
        assert_eq!((writes.refusal(), writes.poll_timeout()), (None, None));
    }

    #[test]
    fn a_refusal_lasts_until_a_write_is_taken() {
        let mut writes = Writes::new(at(1));
        writes.doubt("OOM");
        assert_eq!(writes.take(at(10)).as_deref(), Some("OOM"));
        assert!(
            writes.conclude(at(10), WriteOutcome::Refused("OOM command not allowed".to_owned()))
        );
        writes.doubt("another");
        let refusal = writes.refusal();
        assert_eq!(refusal.as_deref(), Some("it refuses writes: OOM command not allowed"));
        assert_eq!((writes.reach().is_reached, writes.reach().since), (false, at(10)));
        // The next try needs no failed call, and a lost connection changes nothing.
        assert_eq!((writes.take(at(11)), writes.poll_timeout()), (None, Some(at(12))));
        assert!(writes.take(at(12)).is_some());
        assert!(!writes.conclude(at(12), WriteOutcome::NotSent) && writes.refusal().is_some());
        assert!(writes.take(at(14)).is_some());
        assert!(writes.conclude(at(15), WriteOutcome::Taken));
        assert_eq!((writes.refusal(), writes.poll_timeout()), (None, None));
        let outage = writes.reach().outage.expect("it was away");
        assert_eq!((outage.began, outage.ended), (at(10), at(15)));
    }

    #[test]
    fn one_try_without_an_answer_is_none_and_two_are_a_refusal() {
        let mut writes = Writes::new(at(1));
        let silent = || WriteOutcome::Silent("no answer".to_owned());
        writes.doubt("no answer");
        assert!(writes.take(at(10)).is_some() && !writes.conclude(at(12), silent()));
        assert!(writes.take(at(12)).is_some() && !writes.conclude(at(12), WriteOutcome::Taken));
        writes.doubt("no answer");
        assert!(writes.take(at(14)).is_some() && !writes.conclude(at(16), silent()));
        assert!(writes.take(at(16)).is_some() && writes.conclude(at(18), silent()));
        assert!(writes.refusal().is_some());
    }
}
