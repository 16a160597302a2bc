//! How many of something each user has.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<u32, usize>);

impl Tally {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn of(&self, uid: u32) -> usize {
        self.0.get(&uid).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, uid: u32, by: usize) {
        if by > 0 {
            *self.0.entry(uid).or_default() += by;
        }
    }

    pub(super) fn remove(&mut self, uid: u32, by: usize) {
        if let Some(count) = self.0.get_mut(&uid) {
            *count -= by;
            if *count == 0 {
                self.0.remove(&uid);
            }
        }
    }
}
