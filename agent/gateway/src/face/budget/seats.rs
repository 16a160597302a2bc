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
#[path = "seats_tests.rs"]
mod tests;
