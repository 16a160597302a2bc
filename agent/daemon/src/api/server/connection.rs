//! One client's connection: who is at the other end, and whether it is still there.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use nix::sys::socket::sockopt::SndBuf;
use nix::sys::socket::{MsgFlags, Shutdown, recv, setsockopt, shutdown};
use tenure_core::model::Peer;
use tenure_host;
use tenure_host::peer::{TieError, Written, written_to};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::activity::Activity;
use crate::api::context::Context;
use crate::api::places::Place;
use crate::api::query::unauthorized;
use crate::api::respond::Refused;
use crate::heart::{Caller, Delivery, StreamTether};

/// The peer of a connection, as the kernel said when it was accepted.
pub trait Identity: Send + Sync + 'static {
    /// For requests that are not about the process.
    fn caller(&self) -> Caller;

    /// For a registration: with the process that the session may be tied to. `stream` is the
    /// connection itself.
    fn registrant(&self, stream: &UnixStream) -> Caller;

    /// The same, with another process that the session is to be tied to.
    fn registrant_for(&self, pid: u32) -> Result<Caller, TieError>;
}

impl Identity for tenure_host::peer::Identity {
    fn caller(&self) -> Caller {
        self.caller()
    }

    fn registrant(&self, stream: &UnixStream) -> Caller {
        self.registrant(stream)
    }

    fn registrant_for(&self, pid: u32) -> Result<Caller, TieError> {
        self.registrant_for(pid)
    }
}

/// True if the end of a connection can be noticed while nothing is read from it.
pub(super) const SEES_HANGUP: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// How often a client that has been answered for the last time is looked at until it has read that.
const SETTLE_EVERY: Duration = Duration::from_millis(50);

/// An order of the server to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Order {
    Serve = 0,
    /// Finish the request in flight and end.
    Drain = 1,
    Close = 2,
}

/// One client's connection.
pub(in crate::api) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) activity: Activity,
    identity: Box<dyn Identity>,
    /// Its user, asked for once.
    peer: Peer,
    order: AtomicU8,
    ordered: Notify,
    /// Grants that were answered and perhaps not read. No more than answers fit into the socket.
    owed: Mutex<Vec<Delivery>>,
    /// The event stream that guarded work hangs on, with its place.
    tie: Mutex<Option<(StreamTether, Place)>>,
    /// Set when a read or a write found the connection broken.
    broken: AtomicBool,
}

/// Bytes that the kernel keeps of what a client has not read, about half of what they take there. That is
/// memory of the agent's group, and by default ten times as much.
const UNREAD_MAX: usize = 16 * 1024;

impl Connection {
    pub(super) fn new(
        stream: UnixStream,
        identity: Box<dyn Identity>,
        epoch: Instant,
    ) -> Connection {
        if let Err(error) = setsockopt(&stream, SndBuf, &UNREAD_MAX) {
            tracing::debug!(%error, "a client may have more unread than planned");
        }
        Connection {
            stream,
            activity: Activity::new(epoch),
            peer: identity.caller().peer,
            identity,
            order: AtomicU8::new(Order::Serve as u8),
            ordered: Notify::new(),
            owed: Mutex::default(),
            tie: Mutex::default(),
            broken: AtomicBool::new(false),
        }
    }

    pub(in crate::api) fn peer(&self) -> Peer {
        self.peer
    }

    /// The peer, for requests that are not about the process.
    pub(in crate::api) fn caller(&self) -> Caller {
        Caller { peer: self.peer, pidfd: None }
    }

    /// The peer, with the process that the session may be tied to.
    pub(in crate::api) fn registrant(&self) -> Caller {
        self.identity.registrant(&self.stream)
    }

    /// The peer, with another process that the session is to be tied to.
    pub(in crate::api) fn registrant_for(&self, pid: u32) -> Result<Caller, TieError> {
        self.identity.registrant_for(pid)
    }

    /// Marks the response under way as a stream that goes on until either side ends it.
    pub(in crate::api) fn streaming(&self) {
        self.activity.streaming();
    }

    /// Ends when there is something to read, if only the end. Looks before it believes that, as a
    /// new socket counts as readable until somebody has tried.
    pub(super) async fn first_byte(&self) {
        let peek = || {
            let socket = self.stream.as_raw_fd();
            recv(socket, &mut [0], MsgFlags::MSG_PEEK).map_err(io::Error::from)
        };
        // An error is for whoever reads.
        while self.stream.readable().await.is_ok() {
            match self.stream.try_io(Interest::READABLE, peek) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }

    /// Ends when the client has closed its end, or half of it.
    ///
    /// hyper notices that only while it reads, and it does not read while requests that came after
    /// the one in flight wait in its buffer.
    pub(in crate::api) async fn hung_up(&self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            // This is the one interest that nothing fulfils but the end. An error means that the
            // runtime is shutting down.
            let _ = self.stream.ready(Interest::PRIORITY).await;
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        std::future::pending().await
    }

    /// As [`Connection::hung_up`], for keeping.
    pub(in crate::api) fn hangup(self: Arc<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.hung_up().await })
    }

    /// A grant is in the answer under way: it counts as given once the client has read that.
    pub(in crate::api) fn owes(&self, delivery: Delivery) {
        self.owed().push(delivery);
    }

    fn owed(&self) -> std::sync::MutexGuard<'_, Vec<Delivery>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A read or a write failed, so that the client is gone.
    pub(super) fn broke(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// The client sends its next request. Most have read the answer to the one before.
    pub(super) fn asked_again(&self) {
        let mut owed = self.owed();
        if owed.is_empty() {
            return;
        }
        match self.written() {
            Written::Unread => {}
            Written::Dropped => {
                self.broke();
                owed.clear();
            }
            Written::Read | Written::Unknown => owed.drain(..).for_each(Delivery::delivered),
        }
    }

    fn written(&self) -> Written {
        if self.broken.load(Ordering::Relaxed) {
            Written::Dropped
        } else {
            written_to(&self.stream)
        }
    }

    /// The connection is over: sees to it that each grant that was answered on it was read, or is
    /// given back. A client that is still there gets the time to read.
    pub(super) async fn settle(&self) {
        // The time of a client that waits for nothing is the sweep's to limit.
        self.activity.reading();
        loop {
            if self.owed().is_empty() {
                return;
            }
            match self.written() {
                Written::Unread if self.activity.is_stalled() => return self.owed().clear(),
                Written::Dropped => return self.owed().clear(),
                Written::Unread if self.order.load(Ordering::Relaxed) == Order::Serve as u8 => {}
                Written::Unread | Written::Read | Written::Unknown => break,
            }
            tokio::select! {
                biased;
                _ = self.ordered() => {}
                () = tokio::time::sleep(SETTLE_EVERY) => {}
            }
        }
        self.owed().drain(..).for_each(Delivery::delivered);
    }

    /// Guarded work hangs on the stream that is opened here, and goes on until the client hangs up.
    pub(in crate::api) fn tie(&self, tether: StreamTether, place: Place) {
        *self.tie.lock().unwrap_or_else(PoisonError::into_inner) = Some((tether, place));
    }

    /// True while guarded work hangs on a stream of it that can still be sent to.
    pub(super) fn guards_work(&self) -> bool {
        self.tie.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Nothing is sent any more. If guarded work hangs on the connection that goes on until the last
    /// process that has it has closed it: what it could not take is let go, and a reader that comes
    /// back finds the end of the stream.
    pub(super) async fn tether(&self) {
        let tie = self.tie.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((mut tether, _place)) = tie else { return };
        self.activity.wrote(false);
        // Fails only when the client has gone.
        let _ = shutdown(self.stream.as_raw_fd(), Shutdown::Write);
        tokio::select! {
            biased;
            () = self.hung_up() => {}
            () = tether.done() => {}
        }
    }

    /// Tells the connection's task what to do. Orders only get stricter.
    pub(super) fn order(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::Relaxed);
        self.ordered.notify_one();
    }

    /// True once it is to end at once.
    pub(super) fn is_closing(&self) -> bool {
        self.order.load(Ordering::Relaxed) == Order::Close as u8
    }

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
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Context>) -> Result<Self, Refused> {
        let connection = parts.extensions.get::<Arc<Connection>>().cloned();
        Ok(Connected(connection.ok_or_else(unauthorized)?))
    }
}
