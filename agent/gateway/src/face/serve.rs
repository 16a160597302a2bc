//! The accept loop.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use super::connection::Shared;
use super::places::{PlaceOf, Places};
use super::{Face, Hosts, router};
use crate::access::{Peer, neighbourhood};

/// After a connection could not be accepted, for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Between two lines of the log about connections that were refused.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open at once; more wait until one ends.
    pub connections: usize,
    /// Open at once from one address; more are closed.
    pub per_address: usize,
}

/// Serves connections until [`Face::drain`] is cancelled and every request is answered.
pub async fn serve(listener: TcpListener, face: Arc<Face>, hosts: Hosts, limits: Limits) {
    let tls = hosts.tls();
    let service = TowerToHyperService::new(router(Arc::clone(&face), Arc::new(hosts)));
    let shared = Shared { service, tls, drain: face.drain.clone() };
    let mut door = Door {
        listener,
        all: Arc::new(Semaphore::new(limits.connections)),
        addresses: Places::new(limits.per_address),
        refused: Refused { count: 0, told: None },
    };
    let mut connections = JoinSet::new();
    while let Some((stream, peer, place)) = face.drain.run_until_cancelled(door.next()).await {
        let shared = shared.clone();
        connections.spawn(async move {
            let _place = place;
            shared.serve(stream, peer).await;
        });
        while connections.try_join_next().is_some() {}
    }
    drop(door);
    while connections.join_next().await.is_some() {}
}

/// The place of a connection, among all and among those from its address.
type Place = (Option<OwnedSemaphorePermit>, PlaceOf<IpAddr>);

struct Door {
    listener: TcpListener,
    all: Arc<Semaphore>,
    addresses: Arc<Places<IpAddr>>,
    refused: Refused,
}

impl Door {
    /// The next connection that has a place.
    async fn next(&mut self) -> (TcpStream, Peer, Place) {
        // They are never closed.
        let place = Arc::clone(&self.all).acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let address = SocketAddr::new(from.ip().to_canonical(), from.port());
                    match self.addresses.take(neighbourhood(address.ip())) {
                        Some(own) => {
                            return (stream, Peer { address, certified: None }, (place, own));
                        }
                        None => self.refused.one_more(address.ip(), self.addresses.max()),
                    }
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    rest(ACCEPT_AGAIN).await;
                }
            }
        }
    }
}

/// Connections that were closed, which the log has together.
struct Refused {
    /// Those that the log has not.
    count: u64,
    told: Option<Instant>,
}

impl Refused {
    fn one_more(&mut self, address: IpAddr, max: usize) {
        self.count += 1;
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            let count = std::mem::take(&mut self.count);
            warn!(
                %address, count, max,
                "closed connections: there are as many from this address as limits.connections_per_address allows"
            );
            self.told = Some(Instant::now());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a machine that sleeps accepts nothing meanwhile")]
async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}
