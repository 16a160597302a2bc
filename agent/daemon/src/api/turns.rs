//! Long answers are made a few at a time for each user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many long answers are made for a user at the same time; more of them wait their turn.
const TURNS_PER_UID: usize = 4;
/// Users that are remembered without any answer under way.
const IDLE_MAX: usize = 256;

/// The users who have a long answer made.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<u32, Weak<Semaphore>>>);

impl Turns {
    /// Waits for a turn; the permit ends it. Turns are short: they last until the answer is made, not
    /// until it is read.
    pub(super) async fn turn(&self, uid: u32) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it, so that there always is a permit some time.
        self.of(uid).acquire_owned().await.ok()
    }

    fn of(&self, uid: u32) -> Arc<Semaphore> {
        // No code panics while it holds the lock.
        let mut by_uid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if by_uid.len() > IDLE_MAX {
            by_uid.retain(|_, turns| turns.strong_count() > 0);
        }
        if let Some(turns) = by_uid.get(&uid).and_then(Weak::upgrade) {
            return turns;
        }
        let turns = Arc::new(Semaphore::new(TURNS_PER_UID));
        by_uid.insert(uid, Arc::downgrade(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_user_waits_for_itself_alone() {
        let turns = Turns::default();
        let mut mine = Vec::new();
        for _ in 0..TURNS_PER_UID {
            mine.push(turns.turn(1000).await);
        }
        assert_eq!(turns.of(1000).available_permits(), 0);
        assert!(turns.turn(1001).await.is_some());
        mine.pop();
        assert!(turns.turn(1000).await.is_some());
    }
}
