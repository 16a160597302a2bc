//! I7: a beat is sent at most 50 ms after it was due while its agent runs, and while nothing is
//! wrong no hold expires.

use std::time::Duration;

use tenure::wire::LostReason;
use tenure_core::model::{ClaimId, SessionId};
use tenure_core::time::Boottime;

use super::super::time::TrueTime;
use super::Verdict;

/// Limits of the design.
const LATE_MAX: Duration = Duration::from_millis(50);
/// Interruptions remembered per host; older ones are longer ago than any beat can be late.
const INTERRUPTIONS_MAX: usize = 16;

/// When each agent did not run.
#[derive(Default)]
pub(crate) struct BeatsInTime {
    interruptions: Vec<Vec<(Boottime, Boottime)>>,
}

impl BeatsInTime {
    /// The agent of that host did not run in between.
    pub(crate) fn interrupted(&mut self, host: usize, from: Boottime, to: Boottime) {
        if self.interruptions.len() <= host {
            self.interruptions.resize(host + 1, Vec::new());
        }
        let list = &mut self.interruptions[host];
        if list.len() == INTERRUPTIONS_MAX {
            list.remove(0);
        }
        // In order, so that those that overlap count once.
        let place = list.partition_point(|(earlier, _)| *earlier <= from);
        list.insert(place, (from, to));
    }

    /// The clock of that host begins anew.
    pub(crate) fn rebooted(&mut self, host: usize) {
        if let Some(list) = self.interruptions.get_mut(host) {
            list.clear();
        }
    }

    /// A hold is said to have run out; `believed` is what the pages of its host say is held.
    pub(crate) fn ran_out(
        &self,
        hold: ClaimId,
        reason: LostReason,
        believed: &[(SessionId, ClaimId, TrueTime)],
    ) -> Verdict {
        if believed.iter().all(|(_, claim, _)| *claim != hold) {
            return Ok(());
        }
        Err(format!("{hold} was lost ({reason}) while its page said that it was held"))
    }

    /// A hold was lost, well after the faults stopped.
    pub(crate) fn lost_in_calm(&self, hold: ClaimId, reason: LostReason) -> Verdict {
        match reason {
            LostReason::Expired | LostReason::Slept => Err(format!(
                "{hold} was lost ({reason}) although everything ran and the network was good"
            )),
            _ => Ok(()),
        }
    }

    /// A beat was sent.
    pub(crate) fn sent(&self, now: Boottime, host: usize, late: Duration) -> Verdict {
        if late <= LATE_MAX {
            return Ok(());
        }
        let due = now.before(late);
        let interruptions = self.interruptions.get(host).map_or(&[][..], Vec::as_slice);
        let mut stood_still = Duration::ZERO;
        let mut counted_to = due;
        for (from, to) in interruptions {
            let from = (*from).max(counted_to);
            stood_still += to.since(from);
            counted_to = counted_to.max(*to);
        }
        if late.saturating_sub(stood_still) <= LATE_MAX {
            return Ok(());
        }
        Err(format!(
            "host {host} sent a beat {late:?} after it was due; it stood still for {stood_still:?} \
             of that"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Boottime {
        Boottime::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn only_time_in_which_the_agent_ran_counts() {
        let mut beats = BeatsInTime::default();
        assert!(beats.sent(at(1000), 0, Duration::from_millis(50)).is_ok());
        assert!(beats.sent(at(1000), 0, Duration::from_millis(51)).is_err());
        beats.interrupted(0, at(300), at(500));
        beats.interrupted(0, at(100), at(600));
        assert!(beats.sent(at(610), 0, Duration::from_millis(540)).is_ok());
        assert!(beats.sent(at(610), 0, Duration::from_millis(580)).is_err());
    }
}
