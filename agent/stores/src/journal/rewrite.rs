//! Writing the journal anew: when it is tried again, how long it will be, and how far it is.

use std::time::Duration;

use tenure_core::time::Boottime;

use super::Key;
use super::format::Mark;

/// Length of a row before any was counted.
const ROW_GUESS: u64 = 512;
/// How long after a failure the next attempt is made: doubled each time, up to the second.
const RETRY: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The rewriting of a log, now and the next time.
#[derive(Debug, Default)]
pub(super) struct Rewriting {
    pub(super) under_way: Option<Rewrite>,
    pub(super) retry: Retry,
    /// Somebody removed the log: it is due, however short.
    pub(super) is_gone: bool,
    /// The live rows, as of the last time when this agent wrote it anew.
    pub(super) live: Live,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Live {
    pub(super) bytes: u64,
    pub(super) rows: u64,
}

impl Live {
    /// How long a log of so many rows would be.
    pub(super) fn length_of(self, rows: u64) -> u64 {
        let row = self.bytes.checked_div(self.rows).map_or(ROW_GUESS, |row| row.max(1));
        rows.saturating_mul(row)
    }
}

/// A log on its way.
#[derive(Debug)]
pub(super) struct Rewrite {
    pub(super) mark: Mark,
    pub(super) rows: u64,
    /// Renewals were left out since it was begun, perhaps of rows that it has already.
    pub(super) lacks_renewals: bool,
    /// The keys of rows that are still to be written.
    pub(super) keys: std::vec::IntoIter<Key>,
}

#[derive(Debug, Default)]
pub(super) struct Retry {
    pub(super) failures: u32,
    pub(super) at: Option<Boottime>,
}

impl Retry {
    pub(super) fn after_failure(&mut self, now: Boottime) {
        let wait = RETRY.saturating_mul(1 << self.failures.min(10)).min(RETRY_MAX);
        self.failures += 1;
        self.at = Some(now + wait);
    }

    pub(super) fn is_due(&self, now: Boottime) -> bool {
        self.at.is_none_or(|at| at <= now)
    }
}
