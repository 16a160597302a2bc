//! One client's connection: who is at the other end, and whether it is still there.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::activity::Activity;
use crate::api::context::Context;
use crate::api::query::unauthorized;
use crate::api::respond::Refusal;
use crate::heart::Caller;
use crate::keeper::Peer;

/// Says who is at the other end of a connection.
pub(super) type Identify = dyn Fn(&UnixStream) -> io::Result<Caller> + Send + Sync;

/// Whether an end of the connection can be noticed while nothing is read from it.
pub(super) const SEES_HANGUP: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// What the server wants of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Order {
    /// Go on.
    Serve = 0,
    /// Finish the request in flight and end.
    Drain = 1,
    /// End now.
    Close = 2,
}

/// One client's connection.
pub(in crate::api) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) activity: Activity,
    peer: Peer,
    identify: Arc<Identify>,
    order: AtomicU8,
    ordered: Notify,
}

impl Connection {
    /// # Errors
    ///
    /// When the kernel does not say who connected.
    pub(super) fn new(
        stream: UnixStream,
        identify: Arc<Identify>,
        epoch: Instant,
    ) -> Result<Connection, (UnixStream, io::Error)> {
        // The process handle is fetched again when somebody registers: kept for every connection
        // it would double the file descriptors.
        let peer = match identify(&stream) {
            Ok(caller) => caller.peer,
            Err(error) => return Err((stream, error)),
        };
        Ok(Connection {
            stream,
            activity: Activity::new(epoch),
            peer,
            identify,
            order: AtomicU8::new(Order::Serve as u8),
            ordered: Notify::new(),
        })
    }

    /// Who connected.
    pub(in crate::api) fn peer(&self) -> Peer {
        self.peer
    }

    /// Who calls, for requests that are not about the process.
    pub(in crate::api) fn caller(&self) -> Caller {
        Caller { peer: self.peer, pidfd: None }
    }

    /// Who calls, with a handle on the process that connected; without one, and not watchable, if
    /// that has ended and its number may be another's.
    pub(in crate::api) fn caller_with_process(&self) -> Caller {
        match (self.identify)(&self.stream) {
            Ok(caller) if caller.peer.process == self.peer.process => caller,
            _ => Caller { peer: Peer { watchable: false, ..self.peer }, pidfd: None },
        }
    }

    /// Marks the response under way as a stream that goes on until either side ends it.
    pub(in crate::api) fn streaming(&self) {
        self.activity.streaming();
    }

    /// Ends when the client has closed its end, or half of it.
    ///
    /// hyper notices that only while it reads, and it does not read while requests that came after
    /// the one in flight wait in its buffer.
    pub(in crate::api) async fn hung_up(&self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            // Of all interests this is the one that nothing fulfils but the end. An error means
            // that the runtime is shutting down.
            let _ = self.stream.ready(tokio::io::Interest::PRIORITY).await;
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        std::future::pending().await
    }

    /// As [`Connection::hung_up`], for keeping.
    pub(in crate::api) fn hangup(self: Arc<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.hung_up().await })
    }

    /// Tells the connection's task what to do. Orders only get stricter.
    pub(super) fn order(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::Relaxed);
        self.ordered.notify_one();
    }

    /// The next order.
    pub(super) async fn ordered(&self) -> Order {
        self.ordered.notified().await;
        match self.order.load(Ordering::Relaxed) {
            0 => Order::Serve,
            1 => Order::Drain,
            _ => Order::Close,
        }
    }
}

/// The connection on which a request came.
pub(in crate::api) struct Connected(pub(in crate::api) Arc<Connection>);

impl FromRequestParts<Arc<Context>> for Connected {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Context>) -> Result<Self, Refusal> {
        let connection = parts.extensions.get::<Arc<Connection>>().cloned();
        Ok(Connected(connection.ok_or_else(unauthorized)?))
    }
}
