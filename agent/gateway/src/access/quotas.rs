//! Quotas of each principal, unless its key says otherwise, and the bytes that all of them keep together.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Caller;
use super::bounds::{Denied, KeyBounds};
use super::reads::{Reader, Reads};

/// The defaults for each principal.
#[derive(Debug, Clone, Copy)]
pub struct Quotas {
    pub sessions: usize,
    /// Waiting ones counted.
    pub holds: usize,
    pub waiters: usize,
    /// Calls at a time; as many with beats come on top.
    pub calls: usize,
    pub streams: usize,
    pub proxies: usize,
    /// Bytes of records in the store.
    pub bytes: usize,
    /// Rows that it reads in a second, in the long run.
    pub rows_per_second: usize,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas {
            sessions: 20_000,
            holds: 100_000,
            waiters: 50_000,
            calls: 512,
            streams: 1024,
            proxies: 64,
            bytes: 64 << 20,
            rows_per_second: 5_000,
        }
    }
}

/// A bound of what a principal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The word for it: of the key, or else the setting.
    name: &'static str,
    max: usize,
}

impl Quota {
    fn of(
        own: Option<usize>,
        of_key: &'static str,
        setting: &'static str,
        default: usize,
    ) -> Quota {
        match own {
            Some(max) => Quota { name: of_key, max },
            None => Quota { name: setting, max: default },
        }
    }

    pub fn number(self) -> usize {
        self.max
    }

    /// Refuses one more than there may be.
    pub(super) fn judge(self, what: &str, count: usize) -> Result<(), Denied> {
        if count < self.max { Ok(()) } else { Err(self.denied(what, count)) }
    }

    /// The refusal of one more.
    pub fn denied(self, what: &str, count: usize) -> Denied {
        let what = format!("one more {what}, beside {count},");
        Denied::quota(self.name, what, self.max)
    }
}

/// The quotas of principals, the bytes that all of them keep, and their reads.
#[derive(Debug, Clone)]
pub struct Allowance {
    defaults: Quotas,
    kept_max: usize,
    kept: Arc<AtomicUsize>,
    pub reads: Arc<Reads>,
}

impl Allowance {
    pub fn new(defaults: Quotas, kept_max: usize) -> Allowance {
        Allowance { defaults, kept_max, kept: Arc::default(), reads: Arc::default() }
    }

    pub(super) fn sessions(&self, bounds: &KeyBounds) -> Quota {
        let (own, default) = (bounds.scope.sessions_max, self.defaults.sessions);
        Quota::of(own, "sessions_max", "limits.sessions_per_principal", default)
    }

    pub(super) fn holds(&self, bounds: &KeyBounds) -> Quota {
        let (own, default) = (bounds.scope.holds_max, self.defaults.holds);
        Quota::of(own, "holds_max", "limits.holds_per_principal", default)
    }

    pub(super) fn waiters(&self, bounds: &KeyBounds) -> Quota {
        let (own, default) = (bounds.waiters_max, self.defaults.waiters);
        Quota::of(own, "waiters_max", "limits.waiters_per_principal", default)
    }

    pub(super) fn calls(&self, bounds: &KeyBounds) -> Quota {
        let (own, default) = (bounds.calls_max, self.defaults.calls);
        Quota::of(own, "calls_max", "limits.calls_per_principal", default)
    }

    pub fn streams(&self, bounds: &KeyBounds) -> Quota {
        let (own, default) = (bounds.streams_max, self.defaults.streams);
        Quota::of(own, "streams_max", "limits.streams_per_principal", default)
    }

    pub fn proxies(&self, bounds: &KeyBounds) -> Quota {
        let (own, default) = (bounds.proxies_max, self.defaults.proxies);
        Quota::of(own, "proxies_max", "limits.proxies_per_principal", default)
    }

    /// A caller as one that reads. Callers that show nothing are one principal: one of them would have all others wait.
    pub fn reader(&self, caller: &Caller) -> Reader {
        let default = u32::try_from(self.defaults.rows_per_second).ok().and_then(NonZeroU32::new);
        let rows_per_second = caller.bounds.rows_per_second.or(default);
        let rows_per_second = rows_per_second.filter(|_| !caller.is_anybody());
        Reader { mark: caller.principal.mark, rows_per_second }
    }

    /// Judges so many bytes more, beside those that a principal keeps.
    ///
    /// # Errors
    ///
    /// With the bound of the principal, or of all.
    pub(super) fn judge_bytes(
        &self,
        bounds: &KeyBounds,
        own: usize,
        bytes: usize,
    ) -> Result<(), Denied> {
        let (of_key, default) = (bounds.bytes_max, self.defaults.bytes);
        let quota = Quota::of(of_key, "bytes_max", "limits.bytes_kept_per_principal", default);
        let all = Quota { name: "limits.bytes_kept", max: self.kept_max };
        for (quota, taken) in [(quota, own), (all, self.kept.load(Relaxed))] {
            if taken.saturating_add(bytes) > quota.max {
                let what = format!("a record of {bytes} bytes, beside {taken} bytes of others,");
                return Err(Denied::quota(quota.name, what, quota.max));
            }
        }
        Ok(())
    }

    /// The bytes that all keep, for an account to count in.
    pub(super) fn kept(&self) -> &Arc<AtomicUsize> {
        &self.kept
    }
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance::new(Quotas::default(), 512 << 20)
    }
}

/// Bytes of the records of a principal in the store.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) own: usize,
    /// Those of all principals, which these are counted in.
    all: Option<Arc<AtomicUsize>>,
}

impl Kept {
    /// Counts them among those of all from now on.
    pub(super) fn join(&mut self, all: &Arc<AtomicUsize>) {
        if self.all.is_none() {
            all.fetch_add(self.own, Relaxed);
            self.all = Some(Arc::clone(all));
        }
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.own += bytes;
        if let Some(all) = &self.all {
            all.fetch_add(bytes, Relaxed);
        }
    }

    pub(super) fn remove(&mut self, bytes: usize) {
        self.own -= bytes;
        if let Some(all) = &self.all {
            all.fetch_sub(bytes, Relaxed);
        }
    }
}

/// A principal that is forgotten leaves its part to others.
impl Drop for Kept {
    fn drop(&mut self) {
        self.remove(self.own);
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::super::{Access, KeyId};
    use super::*;

    #[test]
    fn rows_are_paced_by_the_key_or_else_the_setting_and_not_without_a_key() {
        let quotas = Quotas { rows_per_second: 70, ..Quotas::default() };
        let allowance = Allowance::new(quotas, 1 << 20);
        let mut caller = Access::anybody().caller(&Request::new(())).unwrap();
        let rate = |caller: &_| allowance.reader(caller).rows_per_second.map(NonZeroU32::get);
        assert_eq!(rate(&caller), None);
        caller.key = KeyId::parse("abcd2345");
        assert_eq!(rate(&caller), Some(70));
        let rows_per_second = NonZeroU32::new(9);
        caller.bounds = Arc::new(KeyBounds { rows_per_second, ..KeyBounds::default() });
        assert_eq!(rate(&caller), Some(9));
    }
}
