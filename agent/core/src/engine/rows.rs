//! All rows that the journal must have, for one that is written anew.

use super::Engine;
use super::journal::{Entry, Key};

impl Engine {
    /// The keys of all rows. Takes time in proportion to their number.
    pub fn rows(&self) -> Vec<Key> {
        let limits = self.resources.iter();
        let limits = limits.filter(|(_, it)| it.limit.is_some_and(|limit| limit.is_saved));
        let limits = limits.map(|(resource, _)| Key::Limit(Box::new(resource.clone())));
        let sessions = self.sessions.in_order().into_iter();
        let sessions = sessions.map(|announced| Key::Session(announced.record.owner.session));
        let claims = self.claims.ids().map(Key::Claim);
        let routes = self.routes.keys().map(Key::Routes);
        let changes = self.histories.rows().map(Key::History);
        limits.chain(sessions).chain(claims).chain(routes).chain(changes).collect()
    }

    /// About how many there are.
    pub fn rows_count(&self) -> usize {
        self.claims.len() + self.sessions.len() + self.histories.len()
    }

    /// A row as it is now; `None` if it has ended.
    pub fn row(&self, key: &Key) -> Option<Entry> {
        match key {
            Key::Claim(id) => Some(self.claims.get(*id)?.entry()),
            Key::Limit(resource) => {
                let limit = self.resources.get(resource)?.limit.filter(|limit| limit.is_saved)?;
                Some(Entry::Limit { resource: (**resource).clone(), limit: limit.permits })
            }
            Key::Session(id) => {
                let record = self.sessions.record(*id)?;
                Some(Entry::Session(Box::new(record.clone())))
            }
            Key::Routes(tenant) => {
                let version = self.routes.version(tenant.as_deref())?;
                Some(Entry::Routes { tenant: tenant.clone(), version })
            }
            Key::History(row) => Some(Entry::History(Box::new(self.histories.get(*row)?.clone()))),
        }
    }
}
