//! Pure. When the time of each route is up, as far as a store does not tell of that by itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tenure_core::time::Boottime;

/// When the time of each route is up.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    pub(super) due: BTreeSet<(Boottime, Arc<str>)>,
    at: HashMap<Arc<str>, Boottime>,
}

impl Expiries {
    pub(super) fn set(&mut self, mailbox: &Arc<str>, at: Option<Boottime>) {
        let before = match at {
            Some(at) => self.at.insert(Arc::clone(mailbox), at),
            None => self.at.remove(mailbox),
        };
        if let Some(before) = before {
            self.due.remove(&(before, Arc::clone(mailbox)));
        }
        self.due.extend(at.map(|at| (at, Arc::clone(mailbox))));
    }
}
