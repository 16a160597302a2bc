//! A connection's bytes, as hyper wants them.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Connection;

/// So many bytes are copied into one write, which is cheaper than a vectored one.
const TOGETHER_MAX: usize = 4 * 1024;

/// A connection's bytes. The connection itself is shared with the handlers, which watch for its end.
pub(super) struct Socket(pub(super) Arc<Connection>);

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Connection { stream, activity, .. } = &*self.0;
        activity.reading();
        loop {
            ready!(stream.poll_read_ready(context))?;
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(read) => {
                    if read > 0 {
                        activity.received();
                        self.0.asked_again();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) => {
                    self.0.broke();
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
        let Connection { stream, activity, .. } = &*self.0;
        loop {
            let Poll::Ready(ready) = stream.poll_write_ready(context) else {
                activity.wrote(true);
                return Poll::Pending;
            };
            ready?;
            match stream.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => {
                    activity.wrote(false);
                    if result.is_err() {
                        self.0.broke();
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
        Poll::Ready(shutdown(self.0.stream.as_raw_fd(), Shutdown::Write).map_err(io::Error::from))
    }
}
