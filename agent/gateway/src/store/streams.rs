//! Open change streams, by principal.

use std::time::Duration;

use bytes::Bytes;
use tenure_core::time::Boottime;
use tenure_stores::gateway::scope::{Mark, MarkMap};
use tokio::sync::broadcast;

/// News that wait for the slowest stream of a principal; one that is further behind misses some, and is told so.
/// A principal with streams costs some 10 KiB for them.
pub(super) const NEWS_MAX: usize = 256;
/// How often it is looked which principals have no stream any more.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The principals with streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    of: MarkMap<broadcast::Sender<Bytes>>,
    sweep_at: Option<Boottime>,
}

impl Streams {
    /// One more stream of a principal.
    pub(super) fn open(&mut self, now: Boottime, mark: Mark) -> broadcast::Receiver<Bytes> {
        self.sweep_at.get_or_insert(now + SWEEP_EVERY);
        self.of.entry(mark).or_insert_with(|| broadcast::channel(NEWS_MAX).0).subscribe()
    }

    pub(super) fn has(&self, mark: Mark) -> bool {
        self.of.contains_key(&mark)
    }

    /// Tells the streams of a principal, if it has any.
    pub(super) fn tell(&self, mark: Mark, line: Bytes) {
        if let Some(streams) = self.of.get(&mark) {
            // The last one may have just ended.
            let _ = streams.send(line);
        }
    }

    pub(super) fn tell_everybody(&self, line: &Bytes) {
        for streams in self.of.values() {
            let _ = streams.send(line.clone());
        }
    }

    /// When [`Streams::take_left`] may have something.
    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        self.sweep_at
    }

    /// The principals whose last stream has ended.
    pub(super) fn take_left(&mut self, now: Boottime) -> Vec<Mark> {
        if self.sweep_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let left = self.of.extract_if(|_, streams| streams.receiver_count() == 0);
        let left = left.map(|(mark, _)| mark).collect();
        self.sweep_at = (!self.of.is_empty()).then(|| now + SWEEP_EVERY);
        left
    }
}
