//! How late beats are sent.

use std::time::Duration;

use tenure_wire::LatenessStatus;

/// How many of the last beats the quantiles speak of.
const WINDOW: usize = 4096;

/// The lateness of the last beats, in µs.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    recent: Vec<u32>,
    next: usize,
    beats: u64,
    max_us: u64,
}

impl Lateness {
    /// Notes a beat.
    pub(super) fn note(&mut self, late: Duration) {
        let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.beats += 1;
        self.max_us = self.max_us.max(late_us);
        let recent_us = u32::try_from(late_us).unwrap_or(u32::MAX);
        if self.recent.len() < WINDOW {
            self.recent.push(recent_us);
        } else {
            self.recent[self.next] = recent_us;
            self.next = (self.next + 1) % WINDOW;
        }
    }

    /// The figures in `/v1/status`.
    pub(super) fn status(&self) -> LatenessStatus {
        let mut sorted = self.recent.clone();
        sorted.sort_unstable();
        let quantile = |per_mille: usize| {
            let last = sorted.len().saturating_sub(1);
            let rank = (sorted.len() * per_mille).div_ceil(1000).saturating_sub(1).min(last);
            sorted.get(rank).copied().map_or(0, u64::from)
        };
        LatenessStatus {
            beats: self.beats,
            max_us: self.max_us,
            p50_us: quantile(500),
            p999_us: quantile(999),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_speak_of_the_last_window_and_the_maximum_of_all() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.status(), LatenessStatus::default());
        lateness.note(Duration::from_micros(9_000_000));
        for late in 1..=WINDOW as u64 {
            lateness.note(Duration::from_micros(late));
        }
        let status = lateness.status();
        assert_eq!((status.beats, status.max_us), (WINDOW as u64 + 1, 9_000_000));
        assert_eq!((status.p50_us, status.p999_us), (2048, 4092));
    }
}
