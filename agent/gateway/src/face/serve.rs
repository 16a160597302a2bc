//! The accept loop.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use super::budget::{Full, Limits, Seat, Seats};
use super::connection::Shared;
use super::{Face, Hosts, router};
use crate::access::{Peer, neighbourhood};

/// After a connection could not be accepted, for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Between two lines of the log about connections that were refused.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Serves connections until [`Face::drain`] is cancelled and every request is answered.
pub async fn serve(listener: TcpListener, face: Arc<Face>, hosts: Hosts, limits: Limits) {
    let tls = hosts.tls();
    let service = TowerToHyperService::new(router(Arc::clone(&face), Arc::new(hosts)));
    let (drain, budgets) = (face.drain.clone(), Arc::clone(&face.budgets));
    let shared = Shared { service, tls, drain, budgets };
    let seats = Seats::new(limits.connections, face.access.asks_for_proof());
    let mut door = Door { listener, seats, refused: Closed { count: 0, told: None } };
    let mut connections = JoinSet::new();
    while let Some((stream, peer, seat)) = face.drain.run_until_cancelled(door.next()).await {
        let shared = shared.clone();
        connections.spawn(async move {
            let seat = Arc::new(seat);
            let end = seat.end.clone();
            // When a caller with a key needs its place more; in the middle of agreeing on TLS, too.
            // Boxed, since it is large, and would be in the task several times.
            let _ = end.run_until_cancelled(Box::pin(shared.serve(stream, peer, seat))).await;
        });
        while connections.try_join_next().is_some() {}
    }
    drop(door);
    while connections.join_next().await.is_some() {}
}

struct Door {
    listener: TcpListener,
    seats: Arc<Seats>,
    refused: Closed,
}

impl Door {
    /// The next connection that has a place.
    async fn next(&mut self) -> (TcpStream, Peer, Seat) {
        loop {
            self.seats.free().await;
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let address = SocketAddr::new(from.ip().to_canonical(), from.port());
                    match self.seats.take(neighbourhood(address.ip())) {
                        Ok((seat, displaced)) => {
                            if let Some(full) = displaced {
                                self.refused.one_more(address.ip(), full);
                            }
                            return (stream, Peer { address, certified: None }, seat);
                        }
                        Err(full) => self.refused.one_more(address.ip(), full),
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
struct Closed {
    /// Those that the log has not.
    count: u64,
    told: Option<Instant>,
}

impl Closed {
    fn one_more(&mut self, address: IpAddr, Full { limit, max }: Full) {
        self.count += 1;
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            let count = std::mem::take(&mut self.count);
            warn!(%address, count, max, limit, "closed connections: there are as many as this limit allows");
            self.told = Some(Instant::now());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a machine that sleeps accepts nothing meanwhile")]
async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}
