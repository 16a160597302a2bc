//! Entries for the history: of the agents that have the claims, and no more than the gateway knows of these.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{ClaimId, HistoryEntry, Resource};
use tenure_core::time::Boottime;
use tenure_wire::Happened;

/// Claims of a principal that have ended and are remembered, about 200 bytes each.
const ENDED_MAX: usize = 1024;
/// For how long after its end, or its ttl, a claim is remembered: as long as an agent tries to tell of it.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// Entries that the history has of a claim, and the grant that bounds them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    /// `None` if this gateway did not see the grant.
    pub(super) granted_at: Option<Boottime>,
    grant: bool,
    end: bool,
}

impl Told {
    /// The entry as far as it agrees with the claim; `None` if the history was told of that already.
    fn vouch(
        &mut self,
        now: Boottime,
        mut entry: HistoryEntry,
        by: Option<&Arc<str>>,
    ) -> Option<HistoryEntry> {
        let was_told = std::mem::replace(self.of(entry.what), true);
        if let Some(granted_at) = self.granted_at {
            let most = now.since(granted_at);
            entry.held = entry.held.min(most);
            entry.ago = entry.ago.min(most);
        }
        entry.end.by = by.cloned();
        (!was_told).then_some(entry)
    }

    fn of(&mut self, what: Happened) -> &mut bool {
        match what {
            Happened::Granted => &mut self.grant,
            Happened::Released | Happened::Lost => &mut self.end,
        }
    }
}

/// A claim that was held, as the history may be told of it.
pub(super) struct Held<'a> {
    pub(super) token: u64,
    pub(super) told: &'a mut Told,
    /// The caller that took it away, in the gateway's words.
    pub(super) by: Option<&'a Arc<str>>,
}

impl Held<'_> {
    /// The entry, if it is about this grant and new.
    pub(super) fn vouch(self, now: Boottime, entry: HistoryEntry) -> Option<HistoryEntry> {
        if self.token == entry.token { self.told.vouch(now, entry, self.by) } else { None }
    }

    /// Takes back that the history was told of it.
    pub(super) fn untell(self, what: Happened) {
        *self.told.of(what) = false;
    }
}

/// The claims that have ended lately.
#[derive(Debug, Default)]
pub(super) struct Past {
    claims: HashMap<ClaimId, Ended>,
    /// Oldest first.
    order: VecDeque<ClaimId>,
    seed: RandomState,
}

#[derive(Debug)]
struct Ended {
    /// The resource's hash. Its texts lie where the request left them, so that each would keep a page of memory from being
    /// given back.
    resource: u64,
    token: u64,
    forget_at: Boottime,
    told: Told,
    by: Option<Arc<str>>,
}

impl Past {
    /// Remembers a claim that was held and would have lasted until then.
    pub(super) fn add(
        &mut self,
        id: ClaimId,
        resource: &Resource,
        token: u64,
        until: Boottime,
        told: Told,
    ) {
        let resource = self.seed.hash_one(resource);
        let ended = Ended { resource, token, forget_at: until + REMEMBERED, told, by: None };
        if self.claims.insert(id, ended).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > ENDED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.claims.remove(&oldest);
        }
    }

    /// Notes who took a claim away.
    pub(super) fn revoked(&mut self, id: ClaimId, by: &str) {
        if let Some(ended) = self.claims.get_mut(&id) {
            ended.by = Some(by.into());
        }
    }

    /// A claim of that resource that is remembered.
    pub(super) fn get(
        &mut self,
        now: Boottime,
        id: ClaimId,
        resource: &Resource,
    ) -> Option<Held<'_>> {
        let Past { claims, seed, .. } = self;
        let Ended { token, told, by, .. } = claims
            .get_mut(&id)
            .filter(|ended| ended.forget_at > now && ended.resource == seed.hash_one(resource))?;
        Some(Held { token: *token, told, by: by.as_ref() })
    }

    /// Forgets what is over.
    pub(super) fn sweep(&mut self, now: Boottime) {
        while let Some(oldest) = self.order.front()
            && self.claims.get(oldest).is_none_or(|ended| ended.forget_at <= now)
        {
            self.claims.remove(oldest);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::model::{Ending, Holder, Owner, SessionId};
    use tenure_wire::Kind;
    use uuid::Uuid;

    use super::*;

    const S: Duration = Duration::from_secs(1);
    const NOW: Boottime = Boottime::from_nanos(1_000_000_000_000);

    fn resource(name: &str) -> Resource {
        Resource { tenant: "t".into(), kind: Kind::Leader, name: name.into() }
    }

    fn entry(name: &str, token: u64, what: Happened) -> HistoryEntry {
        let session = SessionId(Uuid::nil());
        HistoryEntry {
            resource: resource(name),
            claim: ClaimId(Uuid::nil()),
            owner: Owner { session, host: "h".into(), name: "n".into() },
            token,
            what,
            holder: Holder::default(),
            end: Ending { by: Some("root on db1".into()), ..Ending::default() },
            held: S * 1000,
            ago: S * 1000,
        }
    }

    fn vouch(past: &mut Past, now: Boottime, entry: HistoryEntry) -> Option<HistoryEntry> {
        past.get(now, entry.claim, &entry.resource)?.vouch(now, entry)
    }

    #[test]
    fn a_claim_is_told_of_once_as_the_gateway_knows_it() {
        let mut past = Past::default();
        let id = ClaimId(Uuid::nil());
        let told = Told { granted_at: Some(NOW), ..Told::default() };
        past.add(id, &resource("a"), 7, NOW + S, told);
        let later = NOW + S * 3;
        assert_eq!(vouch(&mut past, later, entry("b", 7, Happened::Lost)), None);
        assert_eq!(vouch(&mut past, later, entry("a", 8, Happened::Lost)), None);
        past.revoked(id, "ops at 10.0.0.1");
        let lost = vouch(&mut past, later, entry("a", 7, Happened::Lost)).unwrap();
        assert_eq!((lost.held, lost.ago), (S * 3, S * 3));
        assert_eq!(lost.end.by.as_deref(), Some("ops at 10.0.0.1"));
        for what in [Happened::Lost, Happened::Released] {
            assert_eq!(vouch(&mut past, later, entry("a", 7, what)), None);
        }
        past.get(later, id, &resource("a")).unwrap().untell(Happened::Lost);
        assert!(vouch(&mut past, later, entry("a", 7, Happened::Released)).is_some());
        assert!(vouch(&mut past, later, entry("a", 7, Happened::Granted)).is_some());
    }

    #[test]
    fn the_past_is_bounded_in_number_and_time() {
        let mut past = Past::default();
        for number in 0..=ENDED_MAX as u128 {
            let id = ClaimId(Uuid::from_u128(number));
            past.add(id, &resource("a"), 1, NOW, Told::default());
        }
        assert_eq!((past.claims.len(), past.order.len()), (ENDED_MAX, ENDED_MAX));
        let mut has = |now, id| past.get(now, id, &resource("a")).is_some();
        assert!(!has(NOW, ClaimId(Uuid::nil())));
        let last = ClaimId(Uuid::from_u128(ENDED_MAX as u128));
        assert!(has(NOW, last) && !has(NOW + REMEMBERED, last));
        past.sweep(NOW + REMEMBERED);
        assert!(past.claims.is_empty() && past.order.is_empty());
    }
}
