//! The rows of a journal that is written anew, by whoever has them in memory.

use tenure_core::keeper::Keeper;

use crate::{Upstream, journal};

/// Everything that the journal must have.
pub struct LiveRows<'a> {
    keeper: Option<&'a Keeper>,
    upstream: &'a dyn Upstream,
}

impl<'a> LiveRows<'a> {
    /// The rows that these have in memory.
    pub fn new(keeper: &'a Keeper, upstream: &'a dyn Upstream) -> LiveRows<'a> {
        LiveRows { keeper: Some(keeper), upstream }
    }

    /// The rows of a store without a keeper.
    pub fn of_store(upstream: &'a dyn Upstream) -> LiveRows<'a> {
        LiveRows { keeper: None, upstream }
    }
}

impl journal::Rows for LiveRows<'_> {
    fn keys(&self) -> Vec<journal::Key> {
        let own = self.keeper.map(Keeper::rows).unwrap_or_default();
        let own = own.into_iter().map(journal::Key::Keeper);
        own.chain(self.upstream.rows().into_iter().map(journal::Key::Engine)).collect()
    }

    fn write(&self, key: &journal::Key, into: &mut dyn FnMut(journal::Entry)) {
        let entry = match key {
            journal::Key::Keeper(key) => {
                self.keeper.and_then(|keeper| keeper.row(*key)).map(journal::Entry::Keeper)
            }
            journal::Key::Engine(key) => self.upstream.row(key).map(journal::Entry::Engine),
        };
        entry.into_iter().for_each(into);
    }

    fn count(&self) -> usize {
        self.keeper.map_or(0, Keeper::rows_count) + self.upstream.rows_count()
    }
}
