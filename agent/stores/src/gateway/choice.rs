//! PURE. Which of several gateways an agent uses, and the store that they must share.
//!
//! An agent stays with a gateway until that fails. Then it goes to another one by chance: agents that lost the same
//! gateway do not all come to the same next one, and none comes back when the first one does.

use std::sync::Arc;

use tenure_core::time::Boottime;

use super::scope::Mark;

/// The store and the principal of a gateway: equal at all those of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The kind and the id of the store.
    pub(super) store: String,
    /// The mark of the agent's principal: without it a gateway does not find the agent's claims.
    pub(super) mark: Mark,
}

/// A gateway that is not to be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Away {
    pub(super) since: Boottime,
    pub(super) why: Arc<str>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    away: Option<Away>,
    /// Its last word of itself.
    said: Option<Identity>,
}

/// The gateways, by their number, and the one in use.
#[derive(Debug)]
pub(super) struct Choice {
    known: Vec<Known>,
    used: usize,
    /// The identity of the gateways that were used.
    identity: Option<Identity>,
}

/// A gateway serves something else than the one that was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Differs {
    pub(super) from: usize,
    /// The store is the same, and the agent's key belongs to somebody else there.
    pub(super) is_principal: bool,
}

impl Choice {
    /// So many gateways, at least one, of which nothing is known; one by chance is to be used.
    pub(super) fn new(count: usize, chance: u32) -> Choice {
        let known = vec![Known::default(); count.max(1)];
        Choice { used: pick(known.len(), chance), known, identity: None }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn away(&self, gateway: usize) -> Option<&Away> {
        self.known.get(gateway)?.away.as_ref()
    }

    /// The gateway to try next, after these: the one in use, then one by chance, those last that failed before.
    pub(super) fn next(&self, tried: &[usize], chance: u32) -> Option<usize> {
        if !tried.contains(&self.used) {
            return Some(self.used);
        }
        let left = (0..self.known.len()).filter(|gateway| !tried.contains(gateway));
        let (good, bad): (Vec<_>, Vec<_>) = left.partition(|it| self.away(*it).is_none());
        let from = if good.is_empty() { bad } else { good };
        from.get(pick(from.len(), chance)).copied()
    }

    /// A gateway could not be used. If it is the one in use, another one is from now on.
    pub(super) fn failed(&mut self, gateway: usize, now: Boottime, why: &str, chance: u32) {
        if let Some(known) = self.known.get_mut(gateway) {
            let since = known.away.as_ref().map_or(now, |away| away.since);
            known.away = Some(Away { since, why: why.into() });
        }
        if gateway == self.used
            && let Some(next) = self.next(&[gateway], chance)
        {
            self.used = next;
        }
    }

    /// A gateway lets the agent in, and says what it serves. What was known of its being away is over.
    ///
    /// A store that was replaced is taken once all gateways name the new one: a single one that does may have been
    /// started with another store by mistake.
    ///
    /// # Errors
    ///
    /// When others serve something else.
    pub(super) fn met(&mut self, gateway: usize, identity: Identity) -> Result<(), Differs> {
        let Some(known) = self.known.get_mut(gateway) else { return Ok(()) };
        known.said = Some(identity.clone());
        let agrees = |known: &Known| known.said.as_ref() == Some(&identity);
        let is_replaced = self.known.iter().all(agrees);
        let other = match &self.identity {
            Some(used) if *used != identity && !is_replaced => Some(used),
            Some(_) => None,
            // The first one: those that were looked at must agree.
            None => self.known.iter().filter_map(|it| it.said.as_ref()).find(|it| **it != identity),
        };
        if let Some(other) = other {
            let is_principal = other.store == identity.store;
            let from = self.known.iter().position(|known| known.said.as_ref() == Some(other));
            return Err(Differs { from: from.unwrap_or(self.used), is_principal });
        }
        if let Some(known) = self.known.get_mut(gateway) {
            known.away = None;
        }
        self.identity = Some(identity);
        Ok(())
    }

    /// Notes what a gateway says of itself before any is used.
    pub(super) fn looked_at(&mut self, gateway: usize, identity: Identity) {
        if let Some(known) = self.known.get_mut(gateway) {
            known.said = Some(identity);
        }
    }

    /// True until one was used.
    pub(super) fn is_first(&self) -> bool {
        self.identity.is_none()
    }

    /// The store of a gateway, by its own word.
    pub(super) fn store(&self, gateway: usize) -> &str {
        let said = self.known.get(gateway).and_then(|known| known.said.as_ref());
        said.map_or("unknown", |said| &said.store)
    }

    /// Uses a gateway from now on.
    pub(super) fn take(&mut self, gateway: usize) {
        self.used = gateway.min(self.known.len().saturating_sub(1));
    }
}

fn pick(count: usize, chance: u32) -> usize {
    usize::try_from(chance).unwrap_or_default().checked_rem(count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Boottime {
        Boottime::from_nanos(s * 1_000_000_000)
    }

    fn of(store: &str) -> Identity {
        Identity { store: store.to_owned(), mark: Mark::of("p") }
    }

    #[test]
    fn agents_begin_with_gateways_by_chance_and_stay() {
        let mut begun: Vec<_> = (0..6).map(|chance| Choice::new(3, chance).used()).collect();
        begun.sort_unstable();
        assert_eq!(begun, [0, 0, 1, 1, 2, 2]);
        let mut choice = Choice::new(3, 1);
        choice.failed(0, at(1), "refused", 0);
        choice.met(0, of("s")).unwrap();
        assert_eq!((choice.used(), choice.next(&[], 7)), (1, Some(1)), "nobody comes back");
    }

    #[test]
    fn one_that_fails_is_left_for_those_that_have_not() {
        let mut choice = Choice::new(3, 0);
        choice.failed(2, at(1), "refused", 0);
        for chance in 0..4 {
            let mut choice = Choice { known: choice.known.clone(), used: 0, identity: None };
            choice.failed(0, at(2), "it hung up", chance);
            assert_eq!(choice.used(), 1);
            assert_eq!(choice.away(0).map(|away| &*away.why), Some("it hung up"));
        }
        choice.failed(1, at(2), "silent", 0);
        assert_eq!(choice.used(), 0, "it was not in use");
        assert!([1, 2].contains(&choice.next(&[0], 0).unwrap()), "all have failed");
        assert_eq!(choice.next(&[0, 1, 2], 0), None, "each is tried once");
        choice.failed(1, at(9), "refused", 0);
        assert_eq!(choice.away(1).map(|away| away.since), Some(at(2)), "since the first failure");
    }

    #[test]
    fn a_single_gateway_is_used_whatever_happens() {
        let mut choice = Choice::new(1, 5);
        choice.failed(0, at(1), "refused", 3);
        assert_eq!((choice.used(), choice.next(&[], 0), choice.next(&[0], 0)), (0, Some(0), None));
    }

    #[test]
    fn gateways_with_separate_stores_are_not_mixed() {
        let mut choice = Choice::new(2, 0);
        choice.met(0, of("redis 1")).unwrap();
        let differs = choice.met(1, of("redis 2")).unwrap_err();
        assert_eq!(differs, Differs { from: 0, is_principal: false });
        choice.met(0, of("redis 1")).unwrap();

        let mut choice = Choice::new(2, 0);
        choice.looked_at(1, of("redis 2"));
        choice.met(0, of("redis 1")).unwrap_err();
        assert!(choice.is_first(), "neither is used");
        choice.looked_at(1, of("redis 1"));
        choice.met(0, of("redis 1")).unwrap();

        let other = Identity { mark: Mark::of("q"), ..of("redis 1") };
        assert!(choice.met(1, other).unwrap_err().is_principal);
    }

    #[test]
    fn a_store_that_was_replaced_is_taken_once_all_name_it() {
        let mut choice = Choice::new(3, 0);
        for gateway in 0..3 {
            choice.met(gateway, of("old")).unwrap();
        }
        choice.met(1, of("new")).unwrap_err();
        choice.met(0, of("new")).unwrap_err();
        choice.met(2, of("new")).unwrap();
        choice.met(0, of("new")).unwrap();
        choice.met(1, of("old")).unwrap_err();
    }
}
