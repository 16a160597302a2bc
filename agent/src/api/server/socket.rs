//! A connection's bytes, as hyper wants them.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Connection;

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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(self.0.stream.as_raw_fd(), Shutdown::Write).map_err(io::Error::from))
    }
}
