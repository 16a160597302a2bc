//! A connection's bytes, as hyper wants them.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use nix::sys::socket::{Shutdown, shutdown};
use tenure_host::marks::{Stage, mark};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Phase;
use super::connection::Connection;
use super::refuse;
use crate::api::limits::HEAD_MAX;
use crate::api::respond::over_budget;
use crate::heart::{Budget, Charge};

/// So many bytes are copied into one write, which is cheaper than a vectored one.
const TOGETHER_MAX: usize = 4 * 1024;

/// A connection's bytes. The connection itself is shared with the handlers, which watch for its end.
pub(super) struct Socket {
    connection: Arc<Connection>,
    budget: Arc<Budget>,
    /// Pieces of the request's head that came.
    reads: u32,
    /// The buffer of a head that came in pieces or is long. hyper keeps it while the connection lasts.
    buffer: Option<Charge>,
}

impl Socket {
    pub(super) fn new(connection: Arc<Connection>, budget: Arc<Budget>) -> Socket {
        Socket { connection, budget, reads: 0, buffer: None }
    }

    /// Bytes came. The second piece of a head gets a longer buffer, which counts for the user.
    fn received(&mut self) -> io::Result<()> {
        let Connection { activity, .. } = &*self.connection;
        activity.received();
        self.connection.asked_again();
        if activity.phase() != Phase::Head {
            return Ok(());
        }
        self.reads = self.reads.saturating_add(1);
        if self.reads == 1 || self.buffer.is_some() {
            return Ok(());
        }
        let uid = self.connection.peer().uid;
        match self.budget.take(uid, HEAD_MAX) {
            Ok(charge) => {
                self.buffer = Some(charge);
                Ok(())
            }
            Err(over) => {
                // Nothing else is on its way to a client that is sending a head.
                let refusal = refuse::text(&over_budget(over, uid));
                let _ = self.connection.stream.try_write(refusal.as_bytes());
                Err(io::Error::other("over budget"))
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let activity = &self.connection.activity;
        activity.reading();
        if activity.phase() != Phase::Head {
            self.reads = 0;
        }
        let Connection { stream, .. } = &*self.connection;
        loop {
            ready!(stream.poll_read_ready(context))?;
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {
                    mark(Stage::Read);
                    return Poll::Ready(self.received());
                }
                Err(error) => {
                    self.connection.broke();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Connection { stream, activity, .. } = &*self.connection;
        loop {
            let Poll::Ready(ready) = stream.poll_write_ready(context) else {
                activity.wrote(true);
                return Poll::Pending;
            };
            ready?;
            match stream.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => {
                    mark(Stage::Wrote);
                    activity.wrote(false);
                    if result.is_err() {
                        self.connection.broke();
                    }
                    return Poll::Ready(result);
                }
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut together = [0; TOGETHER_MAX];
        let Some(room) = together.get_mut(..length) else {
            // One after the other: what is long takes a write of its own anyway.
            let longest = slices.iter().find(|slice| !slice.is_empty());
            return self.poll_write(context, longest.map_or(&[], |slice| slice));
        };
        let mut rest = room;
        for slice in slices {
            let (head, tail) = rest.split_at_mut(slice.len());
            head.copy_from_slice(slice);
            rest = tail;
        }
        self.poll_write(context, &together[..length])
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(
            shutdown(self.connection.stream.as_raw_fd(), Shutdown::Write).map_err(io::Error::from),
        )
    }
}
