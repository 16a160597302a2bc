//! All open connections, by user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::connection::{Connection, Order};
use crate::api::Limits;
use crate::model::Full;
use crate::telemetry::Metrics;

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
    by_uid: HashMap<u32, HashMap<u64, Arc<Connection>>>,
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

    /// Takes a connection in; says whether another one had to make room.
    pub(super) fn admit(
        self: &Arc<Table>,
        connection: &Arc<Connection>,
    ) -> Result<(Seat, bool), Full> {
        let uid = connection.peer().uid;
        let administrator = uid == 0 || uid == self.agent_uid;
        let mut seats = self.seats();
        let of_user = seats.by_uid.get(&uid).map_or(0, HashMap::len);
        let full = self.limits.connections.check(seats.total, of_user, administrator).err();
        if let Some(full) = full
            && !seats.evict(|other| other == uid)
        {
            return Err(full);
        }
        let id = seats.next;
        seats.next += 1;
        seats.total += 1;
        seats.by_uid.entry(uid).or_default().insert(id, connection.clone());
        self.tell(&seats);
        Ok((Seat { table: self.clone(), uid, id }, full.is_some()))
    }

    /// Closes the longest idle connection of all, when the process is out of descriptors.
    pub(super) fn make_room(&self) -> bool {
        let mut seats = self.seats();
        let made = seats.evict(|_| true);
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

    /// Tells every connection what to do.
    pub(super) fn order(&self, order: Order) {
        self.each(|connection| connection.order(order));
    }

    fn each(&self, mut act: impl FnMut(&Connection)) {
        self.seats()
            .by_uid
            .values()
            .flat_map(HashMap::values)
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
    /// Closes the longest idle connection of some users. It leaves the table at once, so that its
    /// place is free; its task ends when it next runs.
    fn evict(&mut self, is_candidate: impl Fn(u32) -> bool) -> bool {
        let longest = self
            .by_uid
            .iter()
            .filter(|(uid, _)| is_candidate(**uid))
            .flat_map(|(uid, of_user)| of_user.iter().map(move |(id, seat)| (*uid, *id, seat)))
            .filter_map(|(uid, id, seat)| Some((seat.activity.idle_since_ms()?, id, uid)))
            .min();
        let Some((_, id, uid)) = longest else { return false };
        if let Some(connection) = self.remove(uid, id) {
            connection.order(Order::Close);
        }
        true
    }

    fn remove(&mut self, uid: u32, id: u64) -> Option<Arc<Connection>> {
        let of_user = self.by_uid.get_mut(&uid)?;
        let removed = of_user.remove(&id)?;
        if of_user.is_empty() {
            self.by_uid.remove(&uid);
        }
        self.total -= 1;
        Some(removed)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.table.seats();
        // Gone already if it had to make room.
        let _ = seats.remove(self.uid, self.id);
        self.table.tell(&seats);
        if seats.total == 0 {
            self.table.emptied.notify_one();
        }
    }
}
