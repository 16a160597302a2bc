//! Event streams: each ends soon after its caller's key, and when that has other bounds: its reader opens it again.
//!
//! What concerns a principal is told to all of its streams. One that has many is told at a bounded cost: each of its streams
//! rests after a write, longer the more there are, and is then told at once what came meanwhile.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::BytesMut;
use futures_util::{FutureExt, stream};
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::COMMENT;
use tokio::time::{sleep, timeout};

use super::Face;
use super::places::PlaceOf;
use crate::access::Caller;

/// The last word of a stream whose gateway ends: its reader finds another one, or this one again.
const STOPPING: &[u8] = b": the gateway is stopping\n\n";
/// How often a silent stream looks whether its caller's key is still good, and as it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest silence of a stream.
pub(super) const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(15);

/// Streams of a principal that never rest …
const RESTLESS_MAX: usize = 8;
/// … and the rest of each after a write, for each of them, if there are more: 2 000 writes a second in all. No news get
/// older than [`REST_MAX`] by it.
const REST: Duration = Duration::from_micros(500);
const REST_MAX: Duration = Duration::from_millis(100);
/// Bytes of events that are written together.
const WRITE_MAX: usize = 16 << 10;

/// The events of a stream.
pub(super) trait Source: Send + 'static {
    /// The next event; `None` at the end. Can be dropped and called again.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// Tells a caller what comes from a source, from now on, until the gateway ends. The first bytes leave at once.
pub(super) fn open(
    face: Arc<Face>,
    caller: Caller,
    place: PlaceOf<Mark>,
    source: impl Source,
) -> Response {
    let open = Open::new(Arc::clone(&face));
    let silent = Duration::ZERO;
    let stream = Stream { source, face, caller, silent, is_over: false, place, _open: open };
    let first = stream::once(ready(Ok::<_, Infallible>(Bytes::from_static(COMMENT))));
    let rest = stream::unfold(stream, async |mut stream| {
        rest_after_write(stream.place.count()).await;
        let event = stream.next().await?;
        Some((Ok(gather(&mut stream.source, event)), stream))
    });
    let mut response = Response::new(Body::from_stream(stream::StreamExt::chain(first, rest)));
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // A proxy that collects bytes before it passes them on would make news old.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// An open stream. Keeps no events: those that its reader does not take are thrown away after a while.
struct Stream<S> {
    source: S,
    face: Arc<Face>,
    caller: Caller,
    /// Since the last event.
    silent: Duration,
    /// The last word was said.
    is_over: bool,
    place: PlaceOf<Mark>,
    _open: Open,
}

/// Counts a stream as long as it is open.
struct Open(Arc<Face>);

impl Open {
    fn new(face: Arc<Face>) -> Open {
        face.metrics.streams.inc();
        Open(face)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.streams.dec();
    }
}

impl<S: Source> Stream<S> {
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let Stream { source, face, caller, silent, is_over, .. } = self;
        while !*is_over && face.access.still_lets_in(caller).is_ok() {
            let event = timeout(LOOK_EVERY, source.next());
            let Some(waited) = face.drain.run_until_cancelled(event).await else {
                *is_over = true;
                return Some(Bytes::from_static(STOPPING));
            };
            if let Ok(event) = waited {
                *silent = Duration::ZERO;
                return event;
            }
            *silent += LOOK_EVERY;
            if *silent >= SIGN_OF_LIFE_EVERY {
                *silent = Duration::ZERO;
                return Some(Bytes::from_static(COMMENT));
            }
        }
        None
    }
}

/// The event, and what came since.
fn gather(source: &mut impl Source, event: Bytes) -> Bytes {
    let Some(Some(next)) = source.next().now_or_never() else { return event };
    let mut all = BytesMut::from(event);
    all.extend(next);
    while all.len() < WRITE_MAX
        && let Some(Some(next)) = source.next().now_or_never()
    {
        all.extend(next);
    }
    all.freeze()
}

/// The rest after a write, of each of so many streams of a principal.
#[expect(clippy::disallowed_methods, reason = "a machine that sleeps writes nothing meanwhile")]
async fn rest_after_write(streams: usize) {
    if streams > RESTLESS_MAX {
        let rest = REST.saturating_mul(u32::try_from(streams).unwrap_or(u32::MAX));
        sleep(rest.min(REST_MAX)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tenure_host::clock;

    use super::*;

    /// Events that have come already.
    struct Queue(VecDeque<Bytes>);

    impl Source for Queue {
        async fn next(&mut self) -> Option<Bytes> {
            match self.0.pop_front() {
                None => std::future::pending().await,
                event => event,
            }
        }
    }

    #[tokio::test]
    async fn what_came_meanwhile_is_written_at_once_up_to_a_bound() {
        let event = Bytes::from(vec![b'e'; 1000]);
        let mut source = Queue([event.clone(), event.clone()].into());
        assert_eq!(gather(&mut source, event.clone()).len(), 3000);
        assert_eq!(gather(&mut source, event.clone()), event);
        source.0.extend(vec![event.clone(); 100]);
        assert_eq!(gather(&mut source, event).len(), 17_000);
        assert_eq!(source.0.len(), 84);
    }

    #[tokio::test]
    async fn the_more_streams_there_are_the_longer_each_rests() {
        assert!(rest_after_write(RESTLESS_MAX).now_or_never().is_some());
        assert!(rest_after_write(RESTLESS_MAX + 1).now_or_never().is_none());
        let began = clock::now();
        rest_after_write(100).await;
        assert!(clock::now().since(began) >= REST * 100);
    }
}
