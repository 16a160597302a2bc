//! A connection, as a runner's lease knows it: whether it is still there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_host::clock;
use uuid::{Builder, Uuid};

use super::activity::Activity;
use crate::mailbox::Told;

/// Most mailboxes of others that a connection was told of, about 80 bytes each. With more it is denied those that are not here.
const TOLD_MAX: usize = 4096;

/// A connection.
#[derive(Debug)]
pub(super) struct Line {
    /// Unlike that of any other connection of any gateway.
    pub(super) id: Uuid,
    lost: OnceLock<Boottime>,
    activity: Arc<Activity>,
    told: Mutex<HashMap<Uuid, Told>>,
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
        let line = Arc::new(Line { id, lost: OnceLock::new(), activity, told: Mutex::default() });
        (Arc::clone(&line), LineEnd(line))
    }

    /// When it ended; `None` while it is there.
    pub(super) fn lost_at(&self) -> Option<Boottime> {
        self.lost.get().copied()
    }

    /// What it was told of a mailbox of another.
    pub(super) fn told(&self, matter: Uuid) -> Option<Told> {
        let all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = all.len() >= TOLD_MAX;
        all.get(&matter).copied().or_else(|| is_full.then_some(Told::Denied))
    }

    /// Notes what it is told; `None` if the mailbox is its own.
    pub(super) fn tell(&self, matter: Uuid, told: Option<Told>) {
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            None => {
                all.remove(&matter);
            }
            Some(told) if all.len() < TOLD_MAX || all.contains_key(&matter) => {
                all.insert(matter, told);
            }
            Some(_) => {}
        }
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
