//! Pure. What a proxy has refused, until it is tried again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::time::Boottime;

use super::queue::Waiting;

/// How long a mailbox waits after its first refusal; doubles with each up to [`RETRY_MAX`].
pub(super) const RETRY_MIN: Duration = Duration::from_secs(1);
pub(super) const RETRY_MAX: Duration = Duration::from_secs(60);
/// The least time between two retries that are refused, so that a proxy that refuses everything is left in peace.
pub(super) const REST: Duration = Duration::from_millis(10);

/// The mailboxes whose latest state the proxy has refused, by when they are tried again.
#[derive(Debug, Default)]
pub(super) struct Refused {
    due: BTreeSet<(Boottime, Arc<str>)>,
    waiting: HashMap<Arc<str>, (Boottime, Waiting)>,
    /// No retry before.
    rests_until: Option<Boottime>,
}

impl Refused {
    /// Takes a refusal.
    pub(super) fn put(&mut self, now: Boottime, mailbox: Arc<str>, mut sent: Waiting) {
        if sent.refusals > 0 {
            self.rests_until = Some(now + REST);
        }
        let at = now + RETRY_MIN.saturating_mul(1 << sent.refusals.min(8)).min(RETRY_MAX);
        sent.refusals = sent.refusals.saturating_add(1);
        self.remove(&mailbox);
        self.due.insert((at, Arc::clone(&mailbox)));
        self.waiting.insert(mailbox, (at, sent));
    }

    /// Forgets a refusal: the mailbox is told something else.
    pub(super) fn remove(&mut self, mailbox: &Arc<str>) {
        if let Some((at, _)) = self.waiting.remove(mailbox) {
            self.due.remove(&(at, Arc::clone(mailbox)));
        }
    }

    /// When the first is to be tried again.
    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        let (at, _) = self.due.first()?;
        Some(self.rests_until.map_or(*at, |until| until.max(*at)))
    }

    /// The first that is due.
    pub(super) fn take_due(&mut self, now: Boottime) -> Option<(Arc<str>, Waiting)> {
        self.poll_timeout().filter(|at| *at <= now)?;
        let (_, mailbox) = self.due.pop_first()?;
        let (_, waiting) = self.waiting.remove(&mailbox)?;
        Some((mailbox, waiting))
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}
