//! Callers that a certificate names.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_host::clock;
use tenure_stores::gateway::scope::{Mark, MarkMap};
use uuid::Uuid;

use super::Principal;
use crate::tls::Names;

/// From so many principals on, those that have nothing are forgotten.
const SWEEP_FROM: usize = 1024;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// `None` if it showed no certificate, or one that names nobody.
    pub certified: Option<Certified>,
}

/// The owner of a certificate that an authority of clients vouches for.
#[derive(Debug, Clone)]
pub struct Certified {
    pub(super) name: Arc<str>,
    pub(super) mark: Mark,
    /// s since 1970.
    pub(super) expires_at: u64,
}

impl Certified {
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// `None` if that is no name of a principal.
    pub fn new(names: Names) -> Option<Certified> {
        let Names { principal, expires_at } = names;
        let is_name = Principal::is_name(&principal);
        is_name.then(|| Certified {
            mark: Mark::of(&principal),
            name: principal.into(),
            expires_at,
        })
    }
}

/// Principals that certificates named, with what they have. There are twice as many at most as have something
/// or are about to, or [`SWEEP_FROM`].
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Principals>);

#[derive(Debug, Default)]
struct Principals {
    by_mark: MarkMap<Arc<Principal>>,
    sweep_at: usize,
}

impl Known {
    pub(super) fn principal(&self, certified: &Certified) -> Arc<Principal> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(principal) = known.by_mark.get(&certified.mark) {
            return Arc::clone(principal);
        }
        if known.by_mark.len() >= known.sweep_at.max(SWEEP_FROM) {
            let now = clock::now();
            let is_used = |principal: &Arc<Principal>| {
                Arc::strong_count(principal) > 1 || !principal.account.is_empty(now)
            };
            known.by_mark.retain(|_, principal| is_used(principal));
            known.sweep_at = known.by_mark.len() * 2;
        }
        let principal = Arc::new(Principal::new(&certified.name));
        known.by_mark.insert(certified.mark, Arc::clone(&principal));
        principal
    }

    /// All of them.
    pub(super) fn principals(&self) -> Vec<Arc<Principal>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_mark.values().cloned().collect()
    }

    /// The owner of an id.
    pub(super) fn owner(&self, id: Uuid) -> Option<Arc<Principal>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_mark.get(&Mark::at_end_of(id)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certified(at: usize) -> Certified {
        let names = Names { principal: format!("p{at}"), expires_at: 1 };
        Certified::new(names).unwrap()
    }

    #[test]
    fn a_principal_is_the_same_while_it_is_used_and_forgotten_with_nothing() {
        let known = Known::default();
        let first = known.principal(&certified(0));
        for at in 1..SWEEP_FROM * 3 {
            known.principal(&certified(at));
        }
        assert!(Arc::ptr_eq(&first, &known.principal(&certified(0))));
        assert!(known.0.lock().unwrap().by_mark.len() <= SWEEP_FROM);
    }
}
