//! Pure. A budget of bytes, in all, for each principal and for each peer address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_stores::gateway::scope::{Mark, MarkMap};

/// The part of a budget, and of an address's share, that callers without a key may take: one in so many.
const UNPROVEN_PART: usize = 8;
/// The part of a budget, and of an address's share, that is left to those who take little: one in so many.
const LEFT_PART: usize = 8;
/// Those who take no more than so many bytes take little: most calls have less.
const LITTLE: usize = 64 << 10;

/// The bounds of a budget, bytes.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    pub all: usize,
    pub per_principal: usize,
    pub per_address: usize,
}

/// The settings that give the bounds of a budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) what: &'static str,
    pub(super) all: &'static str,
    pub(super) per_principal: &'static str,
    pub(super) per_address: &'static str,
}

/// Bytes that are in memory for requests at the same time.
#[derive(Debug)]
pub(in crate::face) struct Budget {
    names: Names,
    shares: Shares,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Bytes of callers that have shown no good key, counted in all, too.
    unproven: usize,
    by_principal: MarkMap<usize>,
    by_address: HashMap<IpAddr, usize>,
}

/// The caller that bytes are counted for; without a principal it has shown no good key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::face) struct Payer {
    pub(in crate::face) principal: Option<Mark>,
    pub(in crate::face) address: IpAddr,
}

/// Bytes that are taken; dropping it gives them back.
#[derive(Debug)]
pub(in crate::face) struct Charge {
    budget: Arc<Budget>,
    payer: Payer,
    bytes: usize,
}

/// A budget that has no room for what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::face) struct OverBudget {
    what: &'static str,
    /// The setting that gives the bound.
    pub(in crate::face) limit: &'static str,
    /// True if it is the bound of one caller, false if that of all.
    pub(in crate::face) is_own: bool,
    wanted: usize,
    taken: usize,
    max: usize,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverBudget { what, limit, wanted, taken, max, .. } = self;
        write!(
            f,
            "{wanted} more bytes of {what} beside {taken} are more than {max}, which is the share of this caller in \
             {limit}; wait until others are done, or ask the gateway's administrator to raise {limit}"
        )
    }
}

impl Budget {
    pub(super) fn new(names: Names, shares: Shares) -> Arc<Budget> {
        Arc::new(Budget { names, shares, taken: Mutex::default() })
    }

    /// Nothing yet, for a payer.
    pub(in crate::face) fn charge(self: &Arc<Self>, payer: Payer) -> Charge {
        Charge { budget: Arc::clone(self), payer, bytes: 0 }
    }

    fn take(&self, payer: Payer, bytes: usize) -> Result<(), OverBudget> {
        let Shares { all, per_principal, per_address } = self.shares;
        let Taken { all: of_all, unproven, by_principal, by_address } = &mut *self.taken();
        let own_entry = payer.principal.map(|mark| by_principal.entry(mark));
        let own = own_entry.as_ref().map_or(0, count);
        let address_entry = by_address.entry(payer.address);
        let of_address = count(&address_entry);
        let Names { what, .. } = self.names;
        let check = |limit, is_own, taken: usize, max: usize| match taken.saturating_add(bytes) {
            sum if sum <= max => Ok(()),
            _ => Err(OverBudget { what, limit, is_own, wanted: bytes, taken, max }),
        };
        // Otherwise those who take much keep everybody from calling, as long as they are together.
        let left = if own + bytes > LITTLE { LEFT_PART } else { usize::MAX };
        if payer.principal.is_some() {
            check(self.names.per_principal, true, own, per_principal)?;
            check(self.names.per_address, true, of_address, per_address - per_address / left)?;
        } else {
            // The rest of an address is for those callers behind it that have a key.
            let max = per_address / UNPROVEN_PART;
            check(self.names.per_address, true, of_address, max)?;
            check(self.names.all, false, *unproven, all / UNPROVEN_PART)?;
        }
        check(self.names.all, false, *of_all, all - all / left)?;
        *of_all += bytes;
        *address_entry.or_default() += bytes;
        match own_entry {
            Some(own) => *own.or_default() += bytes,
            None => *unproven += bytes,
        }
        Ok(())
    }

    fn give_back(&self, payer: Payer, bytes: usize) {
        let mut taken = self.taken();
        taken.all -= bytes;
        lower(&mut taken.by_address, payer.address, bytes);
        match payer.principal {
            Some(mark) => lower(&mut taken.by_principal, mark, bytes),
            None => taken.unproven -= bytes,
        }
    }

    /// No code panics while it holds the lock.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// Takes so many bytes more.
    ///
    /// # Errors
    ///
    /// When they do not fit; what was taken before stays taken.
    pub(in crate::face) fn grow(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.budget.take(self.payer, bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.payer, self.bytes);
        }
    }
}

fn count<K>(entry: &Entry<'_, K, usize>) -> usize {
    if let Entry::Occupied(entry) = entry { *entry.get() } else { 0 }
}

/// A count of nothing is forgotten, so that the table has those alone that have taken something.
fn lower<K: Hash + Eq, S: BuildHasher>(counts: &mut HashMap<K, usize, S>, key: K, by: usize) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= by;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names =
        Names { what: "w", all: "all", per_principal: "own", per_address: "address" };

    fn payer(principal: Option<&str>, host: u8) -> Payer {
        Payer { principal: principal.map(Mark::of), address: IpAddr::from([192, 0, 2, host]) }
    }

    fn taken(
        budget: &Arc<Budget>,
        payer: Payer,
        bytes: usize,
    ) -> Result<Charge, (&'static str, bool)> {
        let mut charge = budget.charge(payer);
        charge.grow(bytes).map_err(|over| (over.limit, over.is_own))?;
        Ok(charge)
    }

    #[test]
    fn each_has_its_share_and_gives_it_back() {
        let shares = Shares { all: 800, per_principal: 300, per_address: 400 };
        let budget = Budget::new(NAMES, shares);
        let first = taken(&budget, payer(Some("a"), 1), 300).unwrap();
        assert_eq!(taken(&budget, payer(Some("a"), 2), 1).unwrap_err(), ("own", true));
        assert_eq!(taken(&budget, payer(Some("b"), 1), 101).unwrap_err(), ("address", true));
        let second = taken(&budget, payer(Some("b"), 2), 300).unwrap();
        let third = taken(&budget, payer(Some("c"), 3), 200).unwrap();
        assert_eq!(taken(&budget, payer(Some("d"), 4), 1).unwrap_err(), ("all", false));
        drop((first, second, third));
        let left = budget.taken();
        assert!(left.by_principal.is_empty() && left.by_address.is_empty() && left.all == 0);
    }

    #[test]
    fn those_who_take_little_have_room_beside_those_who_take_much() {
        let all = 16 * LITTLE;
        let shares = Shares { all, per_principal: all, per_address: all };
        let budget = Budget::new(NAMES, shares);
        let much = taken(&budget, payer(Some("a"), 1), 14 * LITTLE).unwrap();
        assert_eq!(taken(&budget, payer(Some("a"), 1), 1).unwrap_err(), ("address", true));
        assert_eq!(taken(&budget, payer(Some("b"), 2), LITTLE + 1).unwrap_err(), ("all", false));
        taken(&budget, payer(Some("b"), 1), LITTLE).unwrap();
        drop(much);
    }

    #[test]
    fn callers_without_a_key_have_a_small_part_and_leave_the_rest() {
        let shares = Shares { all: 800, per_principal: 800, per_address: 400 };
        let budget = Budget::new(NAMES, shares);
        let mut held: Vec<_> =
            (1..3).map(|host| taken(&budget, payer(None, host), 50).unwrap()).collect();
        assert_eq!(taken(&budget, payer(None, 1), 1).unwrap_err(), ("address", true));
        assert_eq!(taken(&budget, payer(None, 3), 1).unwrap_err(), ("all", false));
        held.push(taken(&budget, payer(Some("a"), 1), 350).unwrap());
        held.push(taken(&budget, payer(Some("b"), 4), 350).unwrap());
        drop(held);
        assert_eq!(budget.taken().unproven, 0);
    }

    #[test]
    fn a_refusal_names_the_limit_and_both_numbers() {
        let shares = Shares { all: 800, per_principal: 300, per_address: 400 };
        let budget = Budget::new(NAMES, shares);
        let mut charge = budget.charge(payer(Some("a"), 1));
        charge.grow(200).unwrap();
        let text = charge.grow(101).unwrap_err().to_string();
        for part in ["101 more bytes of w", "beside 200", "more than 300", "raise own"] {
            assert!(text.contains(part), "{text}");
        }
        charge.grow(100).unwrap();
    }
}
