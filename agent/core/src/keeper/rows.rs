//! All rows that the journal must have, for one that is written anew.

use super::Keeper;
use super::journal::{Entry, Key};

impl Keeper {
    /// The keys of all rows. Takes time in proportion to their number.
    pub fn rows(&self) -> Vec<Key> {
        let sessions = self.sessions.keys().copied().map(Key::Session);
        let holds = self.holds.keys().chain(self.pending.keys()).copied().map(Key::Hold);
        sessions.chain(holds).chain(self.ended.rows()).collect()
    }

    /// About how many there are.
    pub fn rows_count(&self) -> usize {
        self.sessions.len() + self.holds.len() + self.pending.releases() + self.ended.len()
    }

    /// A row as it is now; `None` if it has ended, or is none of the journal's.
    pub fn row(&self, key: Key) -> Option<Entry> {
        match key {
            Key::Session(id) => {
                Some(Entry::Session(Box::new(self.sessions.get(&id)?.saved.clone())))
            }
            Key::EndedHold(id) => self.ended.hold_row(id),
            Key::EndedSession(id) => self.ended.session_row(id),
            Key::Hold(id) => {
                let pending = self.pending.hold(id);
                let hold = self.holds.get(&id).or(pending)?;
                let mut saved = hold.saved();
                saved.departing = pending.is_some();
                hold.known_to_journal().then(|| Entry::Hold(Box::new(saved)))
            }
        }
    }
}
