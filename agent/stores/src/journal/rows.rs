//! The rows of a journal that is written anew, by whoever has them in memory.

use tenure_core::keeper::Keeper;

use crate::{Upstream, journal};

/// Everything that the journal must have.
pub struct LiveRows<'a> {
    keeper: &'a Keeper,
    upstream: &'a dyn Upstream,
}

impl<'a> LiveRows<'a> {
    /// The rows that these have in memory.
    pub fn new(keeper: &'a Keeper, upstream: &'a dyn Upstream) -> LiveRows<'a> {
        LiveRows { keeper, upstream }
    }
}

impl journal::Rows for LiveRows<'_> {
    fn keys(&self) -> Vec<journal::Key> {
        let own = self.keeper.rows().into_iter().map(journal::Key::Keeper);
        own.chain(self.upstream.rows().into_iter().map(journal::Key::Engine)).collect()
    }

    fn write(&self, key: &journal::Key, into: &mut dyn FnMut(journal::Entry)) {
        let entry = match key {
            journal::Key::Keeper(key) => self.keeper.row(*key).map(journal::Entry::Keeper),
            journal::Key::Engine(key) => self.upstream.row(key).map(journal::Entry::Engine),
        };
        entry.into_iter().for_each(into);
    }

    fn count(&self) -> usize {
        self.keeper.rows_count() + self.upstream.rows_count()
    }
}
