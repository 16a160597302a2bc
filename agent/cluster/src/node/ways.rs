//! The ways of a node to the others, and news for the gateways there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use openraft::alias::EntryOf;
use tenure_core::time::Boottime;
use tokio::sync::Semaphore;

use super::Node;
use crate::net::{Ask, Deliveries, Dial, Link, Tell};
use crate::raft::Types;

/// News that are under way; more are missed, as all hints may be.
const NEWS_UNDER_WAY: usize = 4096;
/// The time for news.
const NEWS_MAX: Duration = Duration::from_secs(2);

/// Ways to other nodes.
pub(super) struct Ways {
    dial: Arc<dyn Dial>,
    deliveries: Deliveries,
    kept: Mutex<HashMap<u64, Link>>,
    news: Arc<Semaphore>,
    /// The leader's latest word to this node; ns by its clock.
    told_at: AtomicU64,
    /// The node that leads, and reaches no majority; 0 for none.
    alone: AtomicU64,
}

impl Ways {
    pub(super) fn new(dial: Arc<dyn Dial>, deliveries: Deliveries) -> Ways {
        let news = Arc::new(Semaphore::new(NEWS_UNDER_WAY));
        Ways {
            dial,
            deliveries,
            kept: Mutex::default(),
            news,
            told_at: AtomicU64::new(0),
            alone: AtomicU64::new(0),
        }
    }

    pub(super) fn dial(&self) -> Arc<dyn Dial> {
        Arc::clone(&self.dial)
    }

    /// Images that the others have not taken.
    pub(super) fn deliveries(&self) -> &Deliveries {
        &self.deliveries
    }

    /// A way to a node, over a connection of its own.
    pub(super) fn apart(&self, id: u64, address: &str) -> Link {
        Link::new(id, address, Arc::clone(&self.dial))
    }

    /// The way to a node, which is kept.
    pub(super) fn to(&self, id: u64, address: &str) -> Link {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let link = kept.entry(id).or_insert_with(|| self.apart(id, address));
        if link.address() != address {
            *link = self.apart(id, address);
        }
        link.clone()
    }
}

impl Node {
    /// The leader has said something: entries, or none.
    pub(crate) fn hear_leader(&self, entries: &[EntryOf<Types>]) {
        self.0.ways.told_at.store((self.0.clock)().as_nanos(), Ordering::Relaxed);
        self.0.machine.receive(entries);
    }

    /// The leader's silence so far.
    pub(super) fn silence(&self) -> Duration {
        let told_at = Boottime::from_nanos(self.0.ways.told_at.load(Ordering::Relaxed));
        (self.0.clock)().since(told_at)
    }

    /// True if that leader has said that it reaches no majority.
    pub(super) fn is_alone(&self, leader: u64) -> bool {
        self.0.ways.alone.load(Ordering::Relaxed) == leader
    }

    /// Asks the leader, if that is another node, whether it reaches a majority: one that does not goes on telling the nodes
    /// that it does reach that it leads.
    pub(super) async fn look_at_leader(&self) {
        let leader = self.leader().filter(|leader| *leader != self.id());
        let alone = match leader.and_then(|id| Some((id, self.members().remove(&id)?))) {
            Some((id, address)) => {
                let asking = self.0.ways.to(id, &address);
                let asked = asking.ask(Ask::Attest { index: 0 }, Bytes::new());
                match tokio::time::timeout(NEWS_MAX, asked).await {
                    Ok(Ok(Tell::Attested(told))) if told.leads_nobody => id,
                    _ => 0,
                }
            }
            None => 0,
        };
        self.0.ways.alone.store(alone, Ordering::Relaxed);
    }

    /// Tells news to the gateways at the other nodes. Those that cannot be reached miss them.
    pub(crate) fn tell_others(&self, principal: &Arc<str>, news: Vec<u8>) {
        let (news, ways) = (Bytes::from(news), &self.0.ways);
        for (id, address) in self.view().voters {
            if id == self.id() {
                continue;
            }
            let (link, body) = (ways.to(id, &address), news.clone());
            let ask = Ask::News { principal: Arc::clone(principal) };
            // A node that is away costs no more than these.
            let Ok(room) = Arc::clone(&ways.news).try_acquire_owned() else { return };
            tokio::spawn(async move {
                // Like all hints they may be missed.
                let _ = tokio::time::timeout(NEWS_MAX, link.ask(ask, body)).await;
                drop(room);
            });
        }
    }
}
