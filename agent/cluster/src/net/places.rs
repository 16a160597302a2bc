//! Places for connections: a flood of strangers leaves room for nodes and administrators, and fills no log.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

/// Connections that have not said hello, of all addresses and of each. Beyond, one more displaces the one that has waited
/// longest: whoever says hello at once comes through, and silence keeps nobody out.
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
    /// In the order in which they came.
    strangers: BTreeMap<u64, Stranger>,
    next: u64,
    nodes: Count,
}

struct Stranger {
    address: IpAddr,
    displaced: oneshot::Sender<()>,
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
    number: u64,
    is_node: bool,
}

/// Hears that another connection has taken a stranger's place.
pub(super) type Displaced = oneshot::Receiver<()>;

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

impl Taken {
    /// The stranger who makes room for one more of that address.
    fn displaced_by(&self, address: IpAddr) -> Option<u64> {
        let [all, each] = STRANGERS_MAX;
        let mut counts = HashMap::<IpAddr, usize>::new();
        for stranger in self.strangers.values() {
            *counts.entry(stranger.address).or_default() += 1;
        }
        let from = match counts.get(&address) {
            Some(own) if *own >= each => address,
            // The address that has most: the others keep what they have.
            _ if self.strangers.len() >= all => *counts.iter().max_by_key(|(_, count)| **count)?.0,
            _ => return None,
        };
        self.strangers.iter().find(|(_, it)| it.address == from).map(|(number, _)| *number)
    }
}

impl Places {
    /// A place for a connection that has said nothing yet.
    pub(super) fn enter(self: &Arc<Places>, address: IpAddr) -> (Place, Displaced) {
        let mut taken = self.taken();
        if let Some(old) = taken.displaced_by(address).and_then(|it| taken.strangers.remove(&it)) {
            // It may just have ended.
            let _ = old.displaced.send(());
        }
        taken.next += 1;
        let number = taken.next;
        let (displaced, hears) = oneshot::channel();
        taken.strangers.insert(number, Stranger { address, displaced });
        (Place { places: Arc::clone(self), address, number, is_node: false }, hears)
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
        taken.strangers.remove(&self.number);
        self.is_node = true;
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        match self.is_node {
            true => taken.nodes.leave(self.address),
            false => drop(taken.strangers.remove(&self.number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_leave_room_for_nodes_and_for_other_addresses() {
        let places = Arc::<Places>::default();
        let [flood, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let (mut node, _hears) = places.enter(flood);
        assert!(node.greet());
        let (mut silent, mut displaced) = places.enter(other);
        let mut crowd: Vec<_> = (0..=STRANGERS_MAX[1]).map(|_| places.enter(flood)).collect();
        // The first one of the same address has lost its place; nobody else has.
        let lost = crowd.iter_mut().map(|(_, hears)| hears.try_recv().is_ok());
        assert_eq!(lost.collect::<Vec<_>>(), [vec![true], vec![false; STRANGERS_MAX[1]]].concat());
        assert!(displaced.try_recv().is_err());
        // Many addresses take from the one that has most.
        let many = (0..=u8::MAX).map(|last| places.enter(IpAddr::from([10, 0, 1, last])));
        let many: Vec<_> = many.collect();
        assert!(crowd.iter_mut().filter(|(_, hears)| !hears.is_empty()).count() > 0);
        assert!(displaced.try_recv().is_err());
        assert!(silent.greet());
        assert_eq!(places.taken().strangers.len(), STRANGERS_MAX[0] - 1);
        drop((crowd, many, silent, node));
        assert!(places.taken().strangers.is_empty());
        assert_eq!(places.taken().nodes.all, 0);
    }

    #[test]
    fn nodes_of_one_address_are_bounded() {
        let places = Arc::<Places>::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut greeted = Vec::new();
        loop {
            let (mut place, _hears) = places.enter(address);
            if !place.greet() {
                break;
            }
            greeted.push(place);
        }
        assert_eq!(greeted.len(), NODES_MAX[1]);
        drop(greeted);
        assert!(places.enter(address).0.greet());
        assert_eq!(places.taken().nodes.all, 0);
        assert!(places.taken().strangers.is_empty());
    }
}
