//! Deadlines, armed lazily.
//!
//! A renewal moves a deadline without touching this table. A popped deadline is compared with the
//! true one and armed again if that is later, so that a beat costs nothing here and each claim
//! comes up about once per ttl.
//!
//! Invariant: everything that can expire is armed exactly once, never later than it is due.

use std::collections::BTreeSet;

use crate::model::{ClaimId, SessionId};
use crate::time::Boottime;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Claim(ClaimId),
    Session(SessionId),
}

/// Deadlines that are likely to move are looked at on a grid of this, ns.
const GRID_NS: u64 = 32_000_000;

/// When to look whether a deadline has moved. Those of thousands of claims meet on a grid, which saves
/// a wake-up for each; what has not moved by then is armed exactly.
pub(super) fn look_at(now: Boottime, deadline: Boottime) -> Boottime {
    let early = Boottime::from_nanos(deadline.as_nanos() / GRID_NS * GRID_NS);
    if early > now { early } else { deadline }
}

/// A set and not a heap: what ends early is taken out, or claims released within a long ttl would
/// pile up.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Boottime, Timer)>);

impl Timers {
    pub(super) fn arm(&mut self, at: Boottime, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn disarm(&mut self, at: Boottime, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(super) fn next(&self) -> Option<Boottime> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Boottime) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
