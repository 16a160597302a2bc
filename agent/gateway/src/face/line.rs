//! A connection, as a runner's lease knows it: whether it is still there.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_host::clock;
use uuid::{Builder, Uuid};

use super::activity::Activity;

/// A connection.
#[derive(Debug)]
pub(super) struct Line {
    /// Unlike that of any other connection of any gateway.
    pub(super) id: Uuid,
    lost: OnceLock<Boottime>,
    activity: Arc<Activity>,
}

/// Notes the end of a connection when it is dropped.
pub(super) struct LineEnd(Arc<Line>);

impl Line {
    /// A line that begins, and its end.
    pub(super) fn begin(activity: Arc<Activity>) -> (Arc<Line>, LineEnd) {
        let mut id = [0; 16];
        // Without random bytes it is like others, and tells processes of one name apart no more.
        let _ = getrandom::fill(&mut id);
        let id = Builder::from_random_bytes(id).into_uuid();
        let line = Arc::new(Line { id, lost: OnceLock::new(), activity });
        (Arc::clone(&line), LineEnd(line))
    }

    /// When it ended; `None` while it is there.
    pub(super) fn lost_at(&self) -> Option<Boottime> {
        self.lost.get().copied()
    }

    /// Lets it be quiet for so long.
    pub(super) fn may_be_quiet(&self, quiet: Duration) {
        self.activity.may_be_quiet(quiet);
    }
}

impl Drop for LineEnd {
    fn drop(&mut self) {
        let _ = self.0.lost.set(clock::now());
    }
}
