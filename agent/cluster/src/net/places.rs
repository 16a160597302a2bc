//! Places for connections: a flood of strangers leaves room for nodes, and fills no log.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// Connections that have not said hello, of all addresses and of each.
const STRANGERS_MAX: [usize; 2] = [256, 32];
/// Connections of nodes. Each node has four to each other one, as a rule; several may be on one host.
const NODES_MAX: [usize; 2] = [256, 64];
/// The time between two lines of the log about connections that were closed.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Places, and the connections that have them.
#[derive(Default)]
pub(super) struct Places {
    taken: Mutex<Taken>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Taken {
    strangers: Count,
    nodes: Count,
}

#[derive(Default)]
struct Count {
    all: usize,
    each: HashMap<IpAddr, usize>,
}

/// Connections that were closed, as far as the log does not have them.
#[derive(Default)]
struct Told {
    count: u64,
    at: Option<Instant>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    address: IpAddr,
    is_node: bool,
}

impl Count {
    fn take(&mut self, address: IpAddr, [all, each]: [usize; 2]) -> bool {
        let own = self.each.get(&address).copied().unwrap_or_default();
        let has_room = self.all < all && own < each;
        if has_room {
            self.all += 1;
            self.each.insert(address, own + 1);
        }
        has_room
    }

    fn leave(&mut self, address: IpAddr) {
        self.all -= 1;
        if let Some(own) = self.each.get_mut(&address) {
            *own -= 1;
            if *own == 0 {
                self.each.remove(&address);
            }
        }
    }
}

impl Places {
    /// A place for a connection that has said nothing yet.
    pub(super) fn enter(self: &Arc<Places>, address: IpAddr) -> Option<Place> {
        let has_room = self.taken().strangers.take(address, STRANGERS_MAX);
        has_room.then(|| Place { places: Arc::clone(self), address, is_node: false })
    }

    /// Writes into the log that a connection was closed, once in a while.
    pub(super) fn tell(&self, from: SocketAddr, cause: &dyn Display) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.count += 1;
        if told.at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            let count = std::mem::take(&mut told.count);
            warn!(%from, %cause, count, "closed connections to this node, the last one for this cause");
            told.at = Some(Instant::now());
        }
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Makes it the place of a node; false if those have as many as they may.
    pub(super) fn greet(&mut self) -> bool {
        let mut taken = self.places.taken();
        if !taken.nodes.take(self.address, NODES_MAX) {
            return false;
        }
        taken.strangers.leave(self.address);
        self.is_node = true;
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if self.is_node { &mut taken.nodes } else { &mut taken.strangers }.leave(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_leave_room_for_nodes_and_for_other_addresses() {
        let places = Arc::<Places>::default();
        let [flood, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut node = places.enter(flood).unwrap();
        assert!(node.greet());
        let crowd: Vec<_> = std::iter::from_fn(|| places.enter(flood)).collect();
        assert_eq!(crowd.len(), STRANGERS_MAX[1]);
        assert!(places.enter(other).unwrap().greet());
        drop(crowd);
        let of_all = |last| {
            let address = IpAddr::from([10, 0, 1, last]);
            std::iter::from_fn(move || Some(places.enter(address))).map_while(|it| it)
        };
        assert!(of_all(1).next().is_some());
    }

    #[test]
    fn nodes_of_one_address_are_bounded() {
        let places = Arc::<Places>::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut greeted = Vec::new();
        loop {
            let mut place = places.enter(address).unwrap();
            if !place.greet() {
                break;
            }
            greeted.push(place);
        }
        assert_eq!(greeted.len(), NODES_MAX[1]);
        drop(greeted);
        assert!(places.enter(address).unwrap().greet());
        assert_eq!(places.taken().nodes.all, 0);
        assert!(places.taken().strangers.each.is_empty());
    }
}
