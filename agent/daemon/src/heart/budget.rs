//! How many bytes wait to be read by clients, or come from them, at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::warn;

use crate::telemetry::{Metrics, Repeats};

/// Bytes of all users: of large heads and bodies that are being read, of long replies and of events
/// that wait for their readers.
pub const BUFFERED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Eighths of it that one user may take, so that no user has the others refused.
const EIGHTHS_PER_UID: usize = 3;
/// Eighths that root and the agent's own user have for themselves.
const EIGHTHS_RESERVED: usize = 1;

/// Bytes that wait for clients or come from them. Whoever is over a limit is refused, or cut off.
pub struct Budget {
    agent_uid: u32,
    max: usize,
    metrics: Arc<Metrics>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_uid: HashMap<u32, usize>,
    refused: Repeats,
}

/// Bytes that are taken; dropping it gives them back.
pub struct Charge {
    budget: Arc<Budget>,
    uid: u32,
    bytes: usize,
}

/// The limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// Its name.
    pub limit: &'static str,
    /// In bytes.
    pub max: usize,
}

impl Budget {
    /// So many bytes, all of them free. Refusals are counted in `metrics`.
    pub fn new(agent_uid: u32, max: usize, metrics: Arc<Metrics>) -> Arc<Budget> {
        Arc::new(Budget { agent_uid, max, metrics, taken: Mutex::default() })
    }

    /// No code panics while it holds the lock, and what it guards is right between any two calls.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes for a user.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    pub fn take(self: &Arc<Budget>, uid: u32, bytes: usize) -> Result<Charge, OverBudget> {
        let is_administrator = uid == 0 || uid == self.agent_uid;
        let (all_max, own_max) = match is_administrator {
            true => (self.max, self.max),
            false => {
                let eighth = self.max / 8;
                (self.max - EIGHTHS_RESERVED * eighth, EIGHTHS_PER_UID * eighth)
            }
        };
        let mut taken = self.taken();
        let own = taken.by_uid.get(&uid).copied().unwrap_or(0);
        let over = if own + bytes > own_max {
            Some(OverBudget { limit: "buffered_bytes_per_uid", max: own_max })
        } else if taken.total + bytes > all_max {
            Some(OverBudget { limit: "buffered_bytes", max: all_max })
        } else {
            None
        };
        if let Some(over) = over {
            let told = taken.refused.admit();
            drop(taken);
            self.metrics.refused(over.limit);
            if let Some(withheld) = told {
                warn!(limit = over.limit, uid, withheld, "refused: a limit is reached");
            }
            return Err(over);
        }
        taken.total += bytes;
        taken.by_uid.insert(uid, own + bytes);
        drop(taken);
        Ok(Charge { budget: Arc::clone(self), uid, bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut taken = self.budget.taken();
        taken.total -= self.bytes;
        if let Some(own) = taken.by_uid.get_mut(&self.uid) {
            *own -= self.bytes;
            if *own == 0 {
                taken.by_uid.remove(&self.uid);
            }
        }
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Charge").field("uid", &self.uid).field("bytes", &self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn a_user_takes_its_share_and_gives_it_back() {
        let metrics = Arc::new(Metrics::new());
        let budget = Budget::new(77, BUFFERED_BYTES_MAX, Arc::clone(&metrics));
        let mine: Vec<_> = (0..24).map(|_| budget.take(1000, MIB).unwrap()).collect();
        let over = budget.take(1000, 1).unwrap_err();
        assert_eq!(over, OverBudget { limit: "buffered_bytes_per_uid", max: 24 * MIB });
        let theirs = budget.take(1001, 24 * MIB).unwrap();
        let over = budget.take(1002, 9 * MIB).unwrap_err();
        assert_eq!(over, OverBudget { limit: "buffered_bytes", max: 56 * MIB });
        let others: Vec<_> = (1002..1010).map(|uid| budget.take(uid, MIB).unwrap()).collect();
        // Root and the agent's own user have a place whatever the others take.
        for uid in [0, 77] {
            budget.take(uid, 8 * MIB).unwrap();
        }
        drop((mine, theirs, others));
        let left = budget.taken();
        assert_eq!((left.total, left.by_uid.len()), (0, 0));
        let text = metrics.encode();
        for limit in ["buffered_bytes", "buffered_bytes_per_uid"] {
            let line = format!("tenured_refusals_total{{limit=\"{limit}\"}} 1");
            assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
        }
    }
}
