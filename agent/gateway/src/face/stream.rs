//! Event streams: each ends soon after its caller's key, and when that has other bounds: its reader opens it again.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::COMMENT;
use tokio::time::timeout;

use super::Face;
use super::places::PlaceOf;
use crate::access::Caller;

/// The last word of a stream whose gateway ends: its reader finds another one, or this one again.
const STOPPING: &[u8] = b": the gateway is stopping\n\n";
/// How often a silent stream looks whether its caller's key is still good, and as it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest silence of a stream.
pub(super) const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(15);

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
    let stream = Stream { source, face, caller, silent, is_over: false, _open: (open, place) };
    let first = stream::once(ready(Ok::<_, Infallible>(Bytes::from_static(COMMENT))));
    let rest = stream::unfold(stream, async |mut stream| {
        let event = stream.next().await?;
        Some((Ok(event), stream))
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
    _open: (Open, PlaceOf<Mark>),
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
