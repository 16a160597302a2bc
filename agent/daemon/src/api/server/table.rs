//! All open connections, by user.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure_core::model::Full;
use tokio::sync::Notify;

use super::connection::{Connection, Order};
use crate::api::Limits;
use crate::telemetry::Metrics;

/// So many connections of a user are looked at when one of them must make room.
const LOOKED_AT: usize = 64;
/// All of them are looked at no more often, as a user may have thousands that are all in use.
const SEARCH_EVERY: Duration = Duration::from_millis(10);

/// So many connections of a user come in one go that find no place. Each sixteenth part of those it has is enough.
const BEYOND_AT_ONCE: usize = 16;

/// So many that made room may have their descriptors still: their tasks end when they next run. Until then
/// nobody else makes room.
const LEAVING_MAX: usize = 64;

/// All open connections. Bounded by the limits; at a limit an idle connection makes room.
pub(super) struct Table {
    limits: Limits,
    agent_uid: u32,
    metrics: Arc<Metrics>,
    seats: Mutex<Seats>,
    emptied: Notify,
}

#[derive(Default)]
struct Seats {
    total: usize,
    next: u64,
    /// Made room, and have not left.
    leaving: usize,
    by_uid: HashMap<u32, OfUser<Arc<Connection>>>,
}

/// The connections of a user, the oldest first.
struct OfUser<C> {
    all: BTreeMap<u64, C>,
    /// Those from here on are looked at next.
    next: u64,
    /// When all of them were looked at.
    searched: Option<Instant>,
    /// Those that found no place since the others were last given a turn.
    beyond: usize,
}

/// A connection's place in the table; dropping it leaves.
pub(super) struct Seat {
    table: Arc<Table>,
    uid: u32,
    id: u64,
}

/// The limit that is reached, as in the configuration without the `_max`.
pub(super) const fn limit(full: Full) -> &'static str {
    match full {
        Full::User(_) => "connections_per_uid",
        Full::All(_) => "connections",
    }
}

impl Table {
    pub(super) fn new(limits: Limits, agent_uid: u32, metrics: Arc<Metrics>) -> Arc<Table> {
        Arc::new(Table {
            limits,
            agent_uid,
            metrics,
            seats: Mutex::default(),
            emptied: Notify::new(),
        })
    }

    /// No code panics while it holds the lock, and what it guards is right between any two calls.
    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in; says whether those that came before are to have a turn, before one of them is the
    /// longest idle one and makes room.
    pub(super) fn admit(
        self: &Arc<Table>,
        connection: &Arc<Connection>,
    ) -> (Result<Seat, Full>, bool) {
        let uid = connection.peer().uid;
        let administrator = uid == 0 || uid == self.agent_uid;
        let mut seats = self.seats();
        let of_user = seats.by_uid.get(&uid).map_or(0, |own| own.all.len());
        let full = self.limits.connections.check(seats.total, of_user, administrator).err();
        let is_due = full.is_some() && seats.by_uid.get_mut(&uid).is_none_or(OfUser::one_beyond);
        if let Some(full) = full
            && (seats.leaving >= LEAVING_MAX || !seats.evict_own(uid))
        {
            return (Err(full), is_due);
        }
        let id = seats.next;
        seats.next += 1;
        seats.total += 1;
        seats.by_uid.entry(uid).or_default().all.insert(id, connection.clone());
        self.tell(&seats);
        (Ok(Seat { table: self.clone(), uid, id }), is_due)
    }

    /// Closes the longest idle connection of all, when the process is out of descriptors.
    pub(super) fn make_room(&self) -> bool {
        let mut seats = self.seats();
        let made = seats.evict_any();
        self.tell(&seats);
        made
    }

    fn tell(&self, seats: &Seats) {
        self.metrics.connections.set(seats.total as u64);
    }

    /// Closes what takes longer than the limits allow.
    pub(super) fn sweep(&self) {
        self.each(|connection| {
            if connection.activity.is_overdue(&self.limits) {
                connection.order(Order::Close);
            }
        });
    }

    /// Closes every connection on which no guarded work hangs; says how many.
    pub(super) fn cut(&self) -> usize {
        let mut cut = 0;
        self.each(|connection| {
            if !connection.guards_work() {
                cut += 1;
                connection.order(Order::Close);
            }
        });
        cut
    }

    /// Tells every connection what to do.
    pub(super) fn order(&self, order: Order) {
        self.each(|connection| connection.order(order));
    }

    fn each(&self, mut act: impl FnMut(&Connection)) {
        self.seats()
            .by_uid
            .values()
            .flat_map(|own| own.all.values())
            .for_each(|connection| act(connection));
    }

    pub(super) fn len(&self) -> usize {
        self.seats().total
    }

    /// Ends when no connection is left.
    pub(super) async fn emptied(&self) {
        while self.len() > 0 {
            self.emptied.notified().await;
        }
    }
}

impl Seats {
    /// Closes an idle connection of a user, the longest idle one if the user has few.
    fn evict_own(&mut self, uid: u32) -> bool {
        let Some(own) = self.by_uid.get_mut(&uid) else { return false };
        let idle = own.long_idle(Instant::now(), |seat| seat.activity.idle_since_ms());
        idle.is_some_and(|id| self.evict(uid, id))
    }

    /// Closes the longest idle connection of all.
    fn evict_any(&mut self) -> bool {
        let longest = self.by_uid.iter().flat_map(|(uid, own)| {
            own.all
                .iter()
                .filter_map(|(id, seat)| Some((seat.activity.idle_since_ms()?, *id, *uid)))
        });
        longest.min().is_some_and(|(_, id, uid)| self.evict(uid, id))
    }

    /// A connection leaves the table at once, so that its place is free; its task ends when it next runs.
    fn evict(&mut self, uid: u32, id: u64) -> bool {
        let Some(connection) = self.remove(uid, id) else { return false };
        connection.order(Order::Close);
        self.leaving += 1;
        true
    }

    fn remove(&mut self, uid: u32, id: u64) -> Option<Arc<Connection>> {
        let own = self.by_uid.get_mut(&uid)?;
        let removed = own.all.remove(&id)?;
        if own.all.is_empty() {
            self.by_uid.remove(&uid);
        }
        self.total -= 1;
        Some(removed)
    }
}

impl<C> Default for OfUser<C> {
    fn default() -> OfUser<C> {
        OfUser { all: BTreeMap::new(), next: 0, searched: None, beyond: 0 }
    }
}

impl<C> OfUser<C> {
    /// One more finds no place; says whether it is time for the others.
    fn one_beyond(&mut self) -> bool {
        self.beyond += 1;
        let is_due = self.beyond >= (self.all.len() / BEYOND_AT_ONCE).clamp(1, BEYOND_AT_ONCE);
        if is_due {
            self.beyond = 0;
        }
        is_due
    }

    /// The longest idle one of the next few; or of all, unless these were looked at a moment ago.
    fn long_idle(&mut self, now: Instant, idle_since: impl Fn(&C) -> Option<u64>) -> Option<u64> {
        let rank = |(id, connection): (&u64, &C)| Some((idle_since(connection)?, *id));
        let from_there = self.all.range(self.next..).chain(self.all.range(..self.next));
        let mut last = None;
        let some =
            from_there.take(LOOKED_AT).inspect(|(id, _)| last = Some(**id)).filter_map(rank).min();
        self.next = last.map_or(0, |last| last + 1);
        let longest = some.or_else(|| {
            let is_early = self.searched.is_some_and(|searched| now < searched + SEARCH_EVERY);
            if is_early || self.all.len() <= LOOKED_AT {
                return None;
            }
            self.searched = Some(now);
            self.all.iter().filter_map(rank).min()
        });
        longest.map(|(_, id)| id)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.table.seats();
        if seats.remove(self.uid, self.id).is_none() {
            // It had to make room.
            seats.leaving = seats.leaving.saturating_sub(1);
        }
        self.table.tell(&seats);
        if seats.total == 0 {
            self.table.emptied.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn of_user(idle_since: impl IntoIterator<Item = Option<u64>>) -> OfUser<Option<u64>> {
        OfUser { all: (0..).zip(idle_since).collect(), ..OfUser::default() }
    }

    #[test]
    fn the_longest_idle_of_few_makes_room() {
        let mut few = of_user([None, Some(7), Some(3), None, Some(5)]);
        for expected in [Some(2), Some(4), Some(1), None] {
            let longest = few.long_idle(Instant::now(), |since| *since);
            assert_eq!(longest, expected);
            longest.map(|id| few.all.remove(&id));
        }
    }

    #[test]
    fn thousands_in_use_are_not_looked_at_for_each_that_comes() {
        const MANY: u64 = 10_000;
        const ATTEMPTS: usize = 100;
        let mut all = of_user((0..MANY).map(|_| None));
        let looks = Cell::new(0);
        let look = |since: &Option<u64>| {
            looks.set(looks.get() + 1);
            *since
        };
        let start = Instant::now();
        for _ in 0..ATTEMPTS {
            assert_eq!(all.long_idle(start, look), None);
        }
        assert!(looks.get() <= MANY as usize + ATTEMPTS * LOOKED_AT, "{} looks", looks.get());
        // One that gets idle is found all the same.
        all.all.insert(MANY - 1, Some(1));
        assert_eq!(all.long_idle(start + SEARCH_EVERY, look), Some(MANY - 1));
        // Each comes under the eyes in its turn.
        let found = (0..MANY).find_map(|_| all.long_idle(start + SEARCH_EVERY, look));
        assert_eq!(found, Some(MANY - 1));
    }
}
