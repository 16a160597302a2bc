//! The places of connections: those whose caller has shown a good key, and strangers, of which there are fewer and who make
//! way for each other.
//!
//! A principal has a share of all places, and of those of each address. Its connections beyond a share are its surplus: they
//! go on as long as there are free places, and make way for any new connection.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_stores::gateway::scope::Mark;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::displaceable::{Displaceable, Entry};

/// How long a connection counts as a caller's after the last answer to it, at least: its key may have been revoked since.
const PROVEN_FOR: Duration = Duration::from_secs(300);

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open at once. Where no keys are asked for, more wait until one ends.
    pub connections: usize,
    /// Open at once from one address; more are closed, unless a stranger or a surplus of that address makes way.
    pub per_address: usize,
    /// Open at once with callers that have shown no good key; `None`: a quarter.
    pub anonymous: Option<usize>,
    /// The same from one address; `None`: a quarter.
    pub anonymous_per_address: Option<usize>,
}

impl Limits {
    fn strangers(&self) -> usize {
        self.anonymous.unwrap_or(self.connections / 4).clamp(1, self.connections)
    }

    fn strangers_per_address(&self) -> usize {
        self.anonymous_per_address.unwrap_or(self.per_address / 4).clamp(1, self.per_address)
    }

    /// Places for callers that have shown a key.
    fn callers(&self) -> usize {
        self.connections - self.strangers()
    }

    /// The same of one address. The others are left to new connections, however many of the address's are to be strangers':
    /// callers that fill an address keep no other caller behind it, a balancer for instance, from connecting.
    fn callers_per_address(&self) -> usize {
        self.per_address - self.strangers_per_address().min(self.per_address / 4)
    }
}

/// The number of a connection.
type Number = u64;

/// The places of all connections.
#[derive(Debug)]
pub(in crate::face) struct Seats {
    limits: Limits,
    /// False where everybody is let in: then only the bounds of all and of addresses hold.
    asks_for_keys: bool,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    last: Number,
    taken: HashMap<Number, Taken>,
    strangers: Displaceable,
    surplus: Displaceable,
    by_address: HashMap<IpAddr, usize>,
    /// Connections of callers, as the next.
    by_principal: HashMap<Mark, usize>,
    by_principal_at: HashMap<(Mark, IpAddr), usize>,
}

#[derive(Debug)]
struct Taken {
    address: IpAddr,
    holder: Holder,
    /// Cancelled when it has to make way.
    end: CancellationToken,
}

/// The owner of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// Nobody who has shown a good key, since this number.
    Stranger(Number),
    /// A caller beyond a share of its principal or of its address, since this number.
    Surplus(Number),
    Caller(Mark),
    /// Anyone: this gateway asks for no keys.
    Anybody,
}

/// The limit that leaves no place for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::face) struct Full {
    pub(in crate::face) limit: &'static str,
    pub(in crate::face) max: usize,
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub(in crate::face) struct Seat {
    seats: Arc<Seats>,
    number: Number,
    pub(in crate::face) address: IpAddr,
    /// Cancelled when the connection has to make way for another.
    pub(in crate::face) end: CancellationToken,
    is_proven: AtomicBool,
    /// When a request with a good key began or ended last, ms.
    proven_at: AtomicU64,
    /// Requests with a good key that are not over.
    under_way: AtomicUsize,
}

impl Seats {
    pub(in crate::face) fn new(limits: Limits, asks_for_keys: bool) -> Arc<Seats> {
        let (state, freed) = (Mutex::default(), Notify::new());
        Arc::new(Seats { limits, asks_for_keys, state, freed })
    }

    /// Waits until there may be a place, or one that can make way.
    pub(in crate::face) async fn free(&self) {
        while !self.asks_for_keys && self.state().taken.len() >= self.limits.connections {
            self.freed.notified().await;
        }
    }

    /// A place for a connection from an address, and the limit by which another made way for it.
    ///
    /// # Errors
    ///
    /// With the limit, if none can make way.
    pub(in crate::face) fn take(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> Result<(Seat, Option<Full>), Full> {
        let (mut state, mut displaced) = (self.state(), None);
        if count(&state.by_address, &address) >= self.limits.per_address {
            let limit = "limits.connections_per_address";
            let full = Full { limit, max: self.limits.per_address };
            let surplus = state.surplus.displace_of(address);
            let entry = surplus.or_else(|| state.strangers.displace_of(address)).ok_or(full)?;
            state.end(entry);
            displaced = Some(full);
        }
        if self.asks_for_keys {
            displaced = self.make_way(&mut state, address)?.or(displaced);
        }
        let number = state.next();
        let holder = match self.asks_for_keys {
            true => Holder::Stranger(number),
            false => Holder::Anybody,
        };
        let end = CancellationToken::new();
        state.taken.insert(number, Taken { address, holder, end: end.clone() });
        *state.by_address.entry(address).or_default() += 1;
        if let Holder::Stranger(since) = holder {
            state.strangers.insert(address, (since, number));
        }
        let seat = Seat {
            seats: Arc::clone(self),
            number,
            address,
            end,
            is_proven: AtomicBool::new(false),
            proven_at: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
        };
        Ok((seat, displaced))
    }

    /// Has a stranger leave if one more would be too many, or a surplus if there is no free place.
    fn make_way(&self, state: &mut State, address: IpAddr) -> Result<Option<Full>, Full> {
        let full = |limit, max| Full { limit, max };
        let (entry, full) =
            if state.strangers.len_of(address) >= self.limits.strangers_per_address() {
                let max = self.limits.strangers_per_address();
                let full = full("limits.anonymous_connections_per_address", max);
                (state.strangers.displace_of(address), full)
            } else if state.strangers.len() >= self.limits.strangers() {
                let full = full("limits.anonymous_connections", self.limits.strangers());
                (state.strangers.displace(), full)
            } else if state.taken.len() >= self.limits.connections {
                // Neither strangers nor callers have all of their places.
                let full = full("limits.connections", self.limits.connections);
                (state.surplus.displace(), full)
            } else {
                return Ok(None);
            };
        state.end(entry.ok_or(full)?);
        Ok(Some(full))
    }

    /// Counts a stranger among callers from now on, if there is a place within the shares of its principal and of its
    /// address; without one its connection is a surplus.
    fn prove(&self, number: Number, mark: Mark) -> bool {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(Taken { address, holder, .. }) = state.taken.get(&number) else { return false };
        let (address, holder) = (*address, *holder);
        let has_room = self.has_room(state, address, mark);
        match holder {
            Holder::Caller(_) | Holder::Anybody => return true,
            Holder::Surplus(_) if !has_room => return false,
            Holder::Surplus(since) => state.surplus.remove(address, (since, number)),
            Holder::Stranger(since) => state.strangers.remove(address, (since, number)),
        };
        let holder = if has_room {
            *state.by_principal.entry(mark).or_default() += 1;
            *state.by_principal_at.entry((mark, address)).or_default() += 1;
            Holder::Caller(mark)
        } else {
            let since = state.next();
            state.surplus.insert(address, (since, number));
            Holder::Surplus(since)
        };
        if let Some(taken) = state.taken.get_mut(&number) {
            taken.holder = holder;
        }
        has_room
    }

    /// True if one more connection of a principal fits into its shares, and into those of all callers.
    fn has_room(&self, state: &State, address: IpAddr, mark: Mark) -> bool {
        let (callers, at_address) = (self.limits.callers(), self.limits.callers_per_address());
        // One principal leaves half of the places to others.
        state.callers() < callers
            && count(&state.by_principal, &mark) <= callers / 2
            && state.callers_of(address) < at_address
            && count(&state.by_principal_at, &(mark, address)) < (at_address / 2).max(1)
    }

    /// Counts a caller among strangers again.
    fn forget(&self, number: Number) {
        let mut state = self.state();
        let since = state.next();
        let Some(taken) = state.taken.get_mut(&number) else { return };
        let Holder::Caller(mark) = taken.holder else { return };
        taken.holder = Holder::Stranger(since);
        let address = taken.address;
        lower(&mut state.by_principal, mark);
        lower(&mut state.by_principal_at, (mark, address));
        state.strangers.insert(address, (since, number));
        if state.strangers.len() > self.limits.strangers()
            && let Some(displaced) = state.strangers.displace()
        {
            state.end(displaced);
        }
    }

    fn leave(&self, number: Number) {
        self.state().end((0, number));
        self.freed.notify_one();
    }

    /// No code panics while it holds the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Callers within their shares.
    fn callers(&self) -> usize {
        self.taken.len() - self.strangers.len() - self.surplus.len()
    }

    fn callers_of(&self, address: IpAddr) -> usize {
        let others = self.strangers.len_of(address) + self.surplus.len_of(address);
        count(&self.by_address, &address) - others
    }

    /// Forgets a connection, which ends if it has not.
    fn end(&mut self, (_, number): Entry) {
        let Some(Taken { address, holder, end }) = self.taken.remove(&number) else { return };
        lower(&mut self.by_address, address);
        match holder {
            Holder::Stranger(since) => {
                self.strangers.remove(address, (since, number));
            }
            Holder::Surplus(since) => {
                self.surplus.remove(address, (since, number));
            }
            Holder::Caller(mark) => {
                lower(&mut self.by_principal, mark);
                lower(&mut self.by_principal_at, (mark, address));
            }
            Holder::Anybody => {}
        }
        end.cancel();
    }
}

impl Seat {
    /// A request with a good key begins.
    pub(super) fn begin(&self, mark: Mark) {
        self.under_way.fetch_add(1, Relaxed);
        self.prove(mark);
    }

    /// The same request is over.
    pub(super) fn is_over(&self) {
        self.under_way.fetch_sub(1, Relaxed);
        self.proven_at.store(ms(clock::now()), Relaxed);
    }

    /// Its caller has shown a good key or certificate.
    pub(in crate::face) fn prove(&self, mark: Mark) {
        self.proven_at.store(ms(clock::now()), Relaxed);
        if !self.is_proven.load(Relaxed) {
            self.is_proven.store(self.seats.prove(self.number, mark), Relaxed);
        }
    }

    /// Counts it among strangers again if its caller has not been heard of for long, and is not expected to be: a key
    /// that was revoked keeps no place.
    pub(in crate::face) fn look(&self, now: Boottime, quiet_max: Duration) {
        let is_quiet = self.under_way.load(Relaxed) == 0
            && ms(now).saturating_sub(self.proven_at.load(Relaxed))
                > ms(Boottime::ZERO + PROVEN_FOR.max(quiet_max));
        if is_quiet && self.is_proven.swap(false, Relaxed) {
            self.seats.forget(self.number);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.leave(self.number);
    }
}

fn ms(at: Boottime) -> u64 {
    u64::try_from(at.since(Boottime::ZERO).as_millis()).unwrap_or(u64::MAX)
}

fn count<K: Hash + Eq>(counts: &HashMap<K, usize>, key: &K) -> usize {
    counts.get(key).copied().unwrap_or(0)
}

fn lower<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(connections: usize, per_address: usize, asks_for_keys: bool) -> Arc<Seats> {
        let (anonymous, anonymous_per_address) = (None, None);
        let limits = Limits { connections, per_address, anonymous, anonymous_per_address };
        Seats::new(limits, asks_for_keys)
    }

    fn take(seats: &Arc<Seats>, host: u8) -> Seat {
        seats.take(address(host)).unwrap().0
    }

    fn address(host: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, host])
    }

    fn is_there(seat: &Seat) -> bool {
        !seat.end.is_cancelled()
    }

    #[test]
    fn strangers_make_way_for_each_other_and_never_a_caller() {
        let seats = seats(16, 16, true);
        let caller = take(&seats, 1);
        caller.prove(Mark::of("a"));
        let strangers: Vec<_> = (0..8).map(|_| take(&seats, 2)).collect();
        let there: Vec<_> = strangers.iter().map(is_there).collect();
        assert_eq!(there, [false, false, false, false, true, true, true, true]);
        assert!(is_there(&caller));
        let other = take(&seats, 3);
        assert!(is_there(&other) && !is_there(&strangers[4]));
        drop((caller, strangers, other));
        let state = seats.state();
        assert!(state.taken.is_empty() && state.by_address.is_empty());
        assert!(state.by_principal.is_empty() && state.strangers.len() == 0);
    }

    #[test]
    fn a_caller_leaves_its_place_to_strangers() {
        let seats = seats(16, 16, true);
        let callers: Vec<_> = (0..20)
            .map(|at| {
                let seat = take(&seats, 1 + at % 4);
                seat.prove(Mark::of(&format!("p{at}")));
                seat
            })
            .collect();
        let there = callers.iter().filter(|seat| is_there(seat)).count();
        assert_eq!(there, 16, "12 among callers, 4 among strangers, the others made way");
        let another = take(&seats, 9);
        assert!(is_there(&another), "a place is left for strangers at any time");
    }

    #[test]
    fn one_principal_leaves_places_to_others() {
        let seats = seats(16, 16, true);
        let prove = |principal: &str| {
            let seat = take(&seats, 1);
            seat.prove(Mark::of(principal));
            seat
        };
        let greedy: Vec<_> = (0..12).map(|_| prove("greedy")).collect();
        assert!(greedy.iter().filter(|seat| seat.is_proven.load(Relaxed)).count() <= 7);
        let other = prove("other");
        assert!(other.is_proven.load(Relaxed));
    }

    #[test]
    fn one_principal_leaves_places_of_its_address_to_others() {
        let seats = seats(400, 100, true);
        let prove = |principal: &str| {
            let seat = take(&seats, 1);
            seat.prove(Mark::of(principal));
            seat
        };
        let greedy: Vec<_> = (0..100).map(|_| prove("greedy")).collect();
        assert!(greedy.iter().all(is_there), "the places are free");
        let other = prove("other");
        assert!(other.is_proven.load(Relaxed));
        assert_eq!(greedy.iter().filter(|seat| is_there(seat)).count(), 99);
        let more: Vec<_> = (0..200).map(|_| prove("greedy")).collect();
        assert!(is_there(&other), "a surplus makes way before callers within their shares");
        drop((greedy, more, other));
        let state = seats.state();
        assert!(state.taken.is_empty() && state.by_address.is_empty());
        assert!(state.by_principal.is_empty() && state.by_principal_at.is_empty());
        assert_eq!((state.strangers.len(), state.surplus.len()), (0, 0));
    }

    #[test]
    fn many_principals_that_fill_an_address_leave_places_to_new_ones() {
        let seats = seats(400, 40, true);
        let callers: Vec<_> = (0..40)
            .map(|at| {
                let seat = take(&seats, 1);
                seat.prove(Mark::of(&format!("p{}", at % 4)));
                seat
            })
            .collect();
        let (new, displaced) = seats.take(address(1)).unwrap();
        let full = Full { limit: "limits.connections_per_address", max: 40 };
        assert_eq!(displaced, Some(full));
        let gone: Vec<_> = (0..40).filter(|at| !is_there(&callers[*at])).collect();
        assert_eq!(gone, [30], "the surplus that has been there longest");
        new.prove(Mark::of("new"));
        assert!(is_there(&new));
        assert_eq!(seats.state().surplus.len(), 10);
    }

    #[test]
    fn a_surplus_is_a_caller_once_there_is_room() {
        let seats = seats(64, 8, true);
        let mut held: Vec<_> = (0..4)
            .map(|_| {
                let seat = take(&seats, 1);
                seat.prove(Mark::of("a"));
                seat
            })
            .collect();
        assert_eq!(seats.state().surplus.len(), 1);
        drop(held.remove(0));
        held[2].prove(Mark::of("a"));
        let state = seats.state();
        assert_eq!((state.surplus.len(), state.callers()), (0, 3));
        drop(state);
    }

    #[test]
    fn an_address_that_is_full_of_callers_within_their_shares_gets_no_more() {
        let seats = seats(64, 2, true);
        let _callers: Vec<_> = ["a", "b"]
            .map(|principal| {
                let seat = take(&seats, 1);
                seat.prove(Mark::of(principal));
                seat
            })
            .into();
        let full = seats.take(address(1)).unwrap_err();
        assert_eq!(full, Full { limit: "limits.connections_per_address", max: 2 });
        take(&seats, 2);
    }

    #[test]
    fn a_caller_that_is_silent_for_long_is_a_stranger_again() {
        let seats = seats(16, 16, true);
        let seat = take(&seats, 1);
        seat.begin(Mark::of("a"));
        let later = clock::now() + PROVEN_FOR * 2;
        seat.look(later, Duration::ZERO);
        assert!(seat.is_proven.load(Relaxed), "its call is under way");
        seat.is_over();
        seat.look(later, PROVEN_FOR * 4);
        assert!(seat.is_proven.load(Relaxed), "it said that it would be silent");
        seat.look(later, Duration::ZERO);
        assert!(!seat.is_proven.load(Relaxed) && is_there(&seat));
        assert_eq!(seats.state().strangers.len(), 1);
        seat.prove(Mark::of("a"));
        assert_eq!(seats.state().strangers.len(), 0);
    }

    #[test]
    fn where_no_keys_are_asked_for_the_bounds_are_of_all_and_of_addresses() {
        let seats = seats(4, 2, false);
        let held: Vec<_> = (0..4).map(|at| take(&seats, 1 + at / 2)).collect();
        assert!(seats.take(address(1)).is_err());
        held[0].prove(Mark::of("local"));
        assert!(held.iter().all(is_there));
    }
}
