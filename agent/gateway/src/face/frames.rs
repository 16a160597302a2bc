//! HTTP/2 frames that ask for nothing: pings, settings, windows, priorities, resets. The library answers as many as come;
//! here a connection has so many for what it asks and takes, and is ended with more.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;

/// The frame kinds that carry requests. The library has bounds for empty ones, and for those that continue a head.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// Bytes before the content of a frame.
const HEAD: usize = 9;
/// The beginning of a connection of HTTP/2, and the length of all of it.
const PREFACE: &[u8; HEAD] = b"PRI * HTT";
const PREFACE_LENGTH: usize = 24;

/// The place in a connection's frames.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD],
    filled: usize,
    /// Bytes to the next frame.
    skip: usize,
    /// The beginning was read.
    is_begun: bool,
    /// It is no HTTP/2, and has no frames.
    is_other: bool,
}

impl Frames {
    /// How many frames begin in the next bytes that ask for nothing.
    fn count(&mut self, mut bytes: &[u8]) -> u32 {
        let mut count = 0;
        while !self.is_other && !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let wanted = (HEAD - self.filled).min(bytes.len());
            let (head, rest) = bytes.split_at(wanted);
            self.head.iter_mut().skip(self.filled).zip(head).for_each(|(to, from)| *to = *from);
            self.filled += wanted;
            bytes = rest;
            if self.filled < HEAD {
                break;
            }
            self.filled = 0;
            if !self.is_begun {
                self.is_begun = true;
                self.is_other = self.head != *PREFACE;
                self.skip = PREFACE_LENGTH - HEAD;
                continue;
            }
            let [a, b, c, kind, ..] = self.head;
            self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            count += u32::from(!matches!(kind, DATA | HEADERS));
        }
        count
    }
}

/// The bytes of a connection, which end with an error after too many such frames.
#[derive(Debug)]
pub(super) struct Framed<S> {
    stream: S,
    frames: Frames,
    activity: Arc<Activity>,
}

impl<S> Framed<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Framed<S> {
        Framed { stream, frames: Frames::default(), activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let count = self.frames.count(buffer.filled().get(before..).unwrap_or_default());
        if count > 0 && !self.activity.takes_frames(count) {
            return Poll::Ready(Err(io::Error::other("too many frames that ask for nothing")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let head = [0, 0, length, kind, 0, 0, 0, 0, 1];
        [&head[..], &vec![0xee; length.into()]].concat()
    }

    #[test]
    fn frames_are_counted_however_they_come() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let frames = [(4, 6), (1, 30), (0, 200), (6, 8), (8, 4), (0, 0), (200, 0), (9, 5)];
        let bytes: Vec<u8> = [preface]
            .into_iter()
            .chain(frames.map(|(kind, length)| frame(kind, length)))
            .flatten()
            .collect();
        for step in [1, 2, 7, 9, 10, 64, 4096] {
            let mut read = Frames::default();
            let count: u32 = bytes.chunks(step).map(|some| read.count(some)).sum();
            assert_eq!(count, 5, "{step} at a time");
        }
        let mut other = Frames::default();
        assert_eq!(other.count(b"GET /healthz HTTP/1.1\r\n\r\n".repeat(9).as_slice()), 0);
    }
}
