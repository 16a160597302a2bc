//! How many event streams may be open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::model::{Full, Share};
use tenure_wire::{Code, Problem};
use tracing::warn;

use super::Limits;
use crate::telemetry::{Metrics, Repeats};

/// When somebody whose stream was refused should come again.
const RETRY_AFTER_MS: u64 = 1000;

/// Places for event streams: so many in all, and fewer for one user, so that no user takes every
/// place from the others.
pub struct Places {
    share: Share,
    agent_uid: u32,
    metrics: Arc<Metrics>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    refused: Repeats,
    total: usize,
    by_uid: HashMap<u32, usize>,
}

/// A stream's place; dropping it makes it free.
pub(super) struct Place {
    places: Arc<Places>,
    uid: u32,
}

impl Places {
    pub fn new(limits: &Limits, agent_uid: u32, metrics: Arc<Metrics>) -> Arc<Places> {
        Arc::new(Places { share: limits.streams, agent_uid, metrics, taken: Mutex::default() })
    }

    /// No code panics while it holds the lock, and what it guards is right between any two calls.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, or says which limit is reached.
    pub(super) fn take(self: &Arc<Places>, uid: u32) -> Result<Place, Box<Problem>> {
        let mut taken = self.taken();
        let of_user = taken.by_uid.get(&uid).copied().unwrap_or(0);
        let administrator = uid == 0 || uid == self.agent_uid;
        let (limit, detail) = match self.share.check(taken.total, of_user, administrator) {
            Ok(()) => {
                taken.total += 1;
                taken.by_uid.insert(uid, of_user + 1);
                self.metrics.streams.set(taken.total as u64);
                return Ok(Place { places: Arc::clone(self), uid });
            }
            Err(Full::User(max)) => {
                let detail = format!(
                    "uid {uid} has {max} event streams open, the most that \
                     limits.streams_per_uid_max allows; close some, or have the limit raised"
                );
                ("streams_per_uid", detail)
            }
            Err(Full::All(max)) => {
                let detail = format!(
                    "{max} event streams are open, the most that limits.streams_max allows; try \
                     again later, or have the limit raised"
                );
                ("streams", detail)
            }
        };
        let told = taken.refused.admit();
        drop(taken);
        self.metrics.refused(limit);
        if let Some(withheld) = told {
            warn!(limit, uid, withheld, "refused: a limit is reached");
        }
        Err(Box::new(Problem::new(Code::QuotaExceeded, detail).retry_after_ms(RETRY_AFTER_MS)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.total -= 1;
        if let Some(of_user) = taken.by_uid.get_mut(&self.uid) {
            *of_user -= 1;
            if *of_user == 0 {
                taken.by_uid.remove(&self.uid);
            }
        }
        self.places.metrics.streams.set(taken.total as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_takes_every_place() {
        let limits = Limits { streams: Share { max: 4, per_uid: 3 }, ..Limits::default() };
        let metrics = Arc::new(Metrics::new());
        let places = Places::new(&limits, 990, metrics.clone());
        let mut mine: Vec<_> = (0..3).map(|_| places.take(7).unwrap()).collect();
        let refused = |uid, expected: &str| {
            let problem = places.take(uid).err().unwrap();
            assert_eq!((problem.code, problem.status), (Code::QuotaExceeded, 429));
            assert!(problem.detail.contains(expected), "{problem}");
        };
        refused(7, "uid 7 has 3 event streams open, the most that limits.streams_per_uid_max");
        let theirs = places.take(8).unwrap();
        refused(9, "4 event streams are open, the most that limits.streams_max");
        assert_eq!(metrics.streams.get(), 4);
        mine.pop();
        mine.push(places.take(7).unwrap());
        drop((mine, theirs));
        assert_eq!(metrics.streams.get(), 0);
        assert!(places.taken().by_uid.is_empty());
    }
}
