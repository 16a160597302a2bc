//! Streams for which nobody needs a key: health and reflection of gRPC. Each costs some KiB for as long as its peer likes, so
//! that there are few, and the longest of the address with the most makes way for another.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::displaceable::Displaceable;

/// Streams of all addresses, and of one: a balancer has one for each of its connections.
const STREAMS_MAX: usize = 1024;
const PER_ADDRESS_MAX: usize = 64;

/// The streams that there are.
#[derive(Debug, Default)]
pub(in crate::face) struct AnonymousStreams(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    open: Displaceable,
    ends: HashMap<u64, CancellationToken>,
}

/// The place of a stream, until it is dropped.
#[derive(Debug)]
pub(in crate::face) struct AnonymousStream {
    streams: Arc<AnonymousStreams>,
    address: IpAddr,
    number: u64,
    end: CancellationToken,
}

impl AnonymousStreams {
    pub(super) fn new() -> Arc<AnonymousStreams> {
        Arc::default()
    }

    /// A place for a stream; another one may end for it.
    pub(in crate::face) fn open(self: &Arc<Self>, address: IpAddr) -> AnonymousStream {
        let mut state = self.state();
        let displaced = if state.open.len_of(address) >= PER_ADDRESS_MAX {
            state.open.displace_of(address)
        } else if state.open.len() >= STREAMS_MAX {
            state.open.displace()
        } else {
            None
        };
        if let Some(end) = displaced.and_then(|(number, _)| state.ends.remove(&number)) {
            end.cancel();
        }
        state.last += 1;
        let (number, end) = (state.last, CancellationToken::new());
        state.open.insert(address, (number, number));
        state.ends.insert(number, end.clone());
        AnonymousStream { streams: Arc::clone(self), address, number, end }
    }

    /// No code panics while it holds the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AnonymousStream {
    fn drop(&mut self) {
        let mut state = self.streams.state();
        state.open.remove(self.address, (self.number, self.number));
        state.ends.remove(&self.number);
    }
}

/// The body of an answer that ends when its place is another's.
pub(in crate::face) struct Ending {
    body: Body,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    _stream: AnonymousStream,
}

impl Ending {
    pub(in crate::face) fn wrap(body: Body, stream: AnonymousStream) -> Body {
        let ended = Box::pin(stream.end.clone().cancelled_owned());
        Body::new(Ending { body, ended, _stream: stream })
    }
}

impl HttpBody for Ending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_ends_its_own_streams_and_a_quiet_watch_stays() {
        let streams = AnonymousStreams::new();
        let address = |host: u16| {
            let [high, low] = host.to_be_bytes();
            IpAddr::from([10, 0, high, low])
        };
        let watch = streams.open(address(0));
        let flood: Vec<_> = (0..4 * STREAMS_MAX)
            .map(|at| streams.open(address(1 + u16::try_from(at % 20).unwrap())))
            .collect();
        assert!(!watch.end.is_cancelled());
        let left = flood.iter().filter(|stream| !stream.end.is_cancelled()).count();
        assert_eq!(left, STREAMS_MAX - 1);
        drop((watch, flood));
        let state = streams.state();
        assert!(state.open.len() == 0 && state.ends.is_empty());
    }

    #[tokio::test]
    async fn a_body_ends_with_its_place() {
        use http_body_util::BodyExt;
        let streams = AnonymousStreams::new();
        let address = IpAddr::from([127, 0, 0, 1]);
        let endless = futures_util::stream::pending::<Result<Bytes, axum::Error>>();
        let body = Ending::wrap(Body::from_stream(endless), streams.open(address));
        let others: Vec<_> = (0..PER_ADDRESS_MAX).map(|_| streams.open(address)).collect();
        assert!(body.collect().await.unwrap().to_bytes().is_empty());
        drop(others);
    }
}
