//! The bytes between the gateway and a proxy.
//!
//! A peer that registers may be anything, such as a service that takes commands line by line. Until it has shown that
//! it speaks HTTP/2, by a SETTINGS frame, it hears the preface of HTTP/2 and the gateway's own settings, and no
//! byte that a caller chose.

use std::future::{Future, Pending, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Timeout, timeout};

use super::proxy::Standing;

/// Bytes of `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n` (RFC 9113, 3.4).
const MAGIC: usize = 24;
/// Bytes before the payload of a frame; the first three are its length, the fourth its type.
const FRAME_HEAD: usize = 9;
const LENGTH: usize = 3;
const SETTINGS: u8 = 4;
/// How long a peer may take to greet: its system may accept connections for a process that hangs.
const GREETS_WITHIN: Duration = Duration::from_secs(8);

/// A connection to a proxy, which tells of its beginning and of its end.
pub(super) struct Connection {
    stream: TcpStream,
    lost: Arc<Notify>,
    standing: Arc<Standing>,
    greeting: Greeting,
    greets_by: Pin<Box<Timeout<Pending<()>>>>,
    /// Why nothing more can be read or written.
    ended: Option<String>,
}

impl Connection {
    /// `lost` is told when it ends; `standing` counts it as long as its peer speaks HTTP/2.
    pub(super) fn new(stream: TcpStream, lost: Arc<Notify>, standing: Arc<Standing>) -> Connection {
        let greets_by = Box::pin(timeout(GREETS_WITHIN, pending()));
        let greeting = Greeting::default();
        Connection { stream, lost, standing, greeting, greets_by, ended: None }
    }

    /// Keeps the first error.
    fn note<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &done {
            self.ended.get_or_insert_with(|| error.to_string());
        }
        done
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.greeting.is_complete() {
            self.standing.greeted.fetch_sub(1, Relaxed);
            let cause = self.ended.take();
            self.standing.broke(cause.unwrap_or_else(|| "the gateway ended it".to_owned()));
        }
        self.lost.notify_one();
    }
}

/// Pure. How far the two sides have come.
#[derive(Debug, Default)]
struct Greeting {
    /// The first bytes that were sent: the magic, and the length of the frame after it.
    opening: Vec<u8>,
    sent: usize,
    /// The head of the first frame that was received.
    heard: Vec<u8>,
    /// The writer, which waits for the peer.
    held: Option<Waker>,
}

impl Greeting {
    fn is_complete(&self) -> bool {
        self.heard.len() == FRAME_HEAD
    }

    /// How many of these bytes, which are next, may be sent.
    fn may_send(&self, bytes: &[u8]) -> usize {
        if self.is_complete() {
            return bytes.len();
        }
        let at = |place: usize| {
            let next = || place.checked_sub(self.opening.len()).and_then(|it| bytes.get(it));
            self.opening.get(place).or_else(next).map(|byte| usize::from(*byte))
        };
        match (at(MAGIC), at(MAGIC + 1), at(MAGIC + 2)) {
            (Some(high), Some(middle), Some(low)) => {
                let end = MAGIC + FRAME_HEAD + (high << 16 | middle << 8 | low);
                end.saturating_sub(self.sent).min(bytes.len())
            }
            // All of them are part of the preface.
            _ => bytes.len(),
        }
    }

    fn sent(&mut self, bytes: &[u8]) {
        let room = (MAGIC + LENGTH).saturating_sub(self.opening.len());
        self.opening.extend(bytes.iter().take(room));
        self.sent = self.sent.saturating_add(bytes.len());
    }

    /// Takes bytes of the peer; true if they complete its greeting.
    fn hear(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if self.is_complete() {
            return Ok(false);
        }
        let room = FRAME_HEAD.saturating_sub(self.heard.len());
        self.heard.extend(bytes.iter().take(room));
        let is_good = match self.heard.as_slice() {
            [_, _, _, kind, flags, stream @ ..] => {
                *kind == SETTINGS && *flags == 0 && stream.iter().all(|byte| *byte == 0)
            }
            _ => true,
        };
        if !is_good {
            let words = "the peer does not speak HTTP/2";
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        Ok(self.is_complete())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.greeting.is_complete() && self.greets_by.as_mut().poll(context).is_ready() {
            let words = "the peer accepts connections, and says nothing";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, words)));
        }
        let before = buffer.filled().len();
        let done = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.note(done)?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if read.is_empty() && buffer.remaining() > 0 {
            self.ended.get_or_insert_with(|| "the proxy closed it".to_owned());
        }
        if self.greeting.hear(read)? {
            self.standing.greeted.fetch_add(1, Relaxed);
            self.standing.connected.fetch_add(1, Relaxed);
            if let Some(writer) = self.greeting.held.take() {
                writer.wake();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let may = bytes.get(..self.greeting.may_send(bytes)).unwrap_or_default();
        if may.is_empty() && !bytes.is_empty() {
            self.greeting.held = Some(context.waker().clone());
            return Poll::Pending;
        }
        let done = ready!(Pin::new(&mut self.stream).poll_write(context, may));
        let sent = self.note(done)?;
        if !self.greeting.is_complete() {
            self.greeting.sent(may.get(..sent).unwrap_or_default());
        }
        Poll::Ready(Ok(sent))
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

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    /// One setting.
    const OWN: &[u8] = &[0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
    const CALLERS: &[u8] = b"\0\0\x09\x01\x04\0\0\0\x01set x 0 1";

    #[test]
    fn nothing_of_a_caller_is_sent_before_the_peers_settings() {
        let all = [PREFACE, OWN, CALLERS].concat();
        for piece in [1, 7, 24, 25, 27, all.len()] {
            let mut greeting = Greeting::default();
            let mut sent: Vec<u8> = Vec::new();
            loop {
                let next = &all[sent.len()..];
                let next = &next[..piece.min(next.len())];
                let may = greeting.may_send(next);
                if may == 0 {
                    break;
                }
                greeting.sent(&next[..may]);
                sent.extend(&next[..may]);
            }
            assert_eq!(sent, [PREFACE, OWN].concat(), "{piece} bytes at a time");
            assert!(!greeting.hear(&[0, 0, 0, SETTINGS]).unwrap());
            assert_eq!(greeting.may_send(CALLERS), 0);
            assert!(greeting.hear(&[0, 0, 0, 0, 0]).unwrap());
            assert_eq!(greeting.may_send(CALLERS), CALLERS.len());
            assert!(!greeting.hear(b"more").unwrap(), "once");
        }
    }

    #[test]
    fn a_peer_that_greets_with_something_else_is_left() {
        for words in ["220 mail ESMTP", "HTTP/1.1 400 Bad Request", "SSH-2.0-x", "\0\0\0\x04\x01"] {
            Greeting::default().hear(words.as_bytes()).unwrap_err();
        }
    }
}
