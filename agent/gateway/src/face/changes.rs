//! The change stream of an agent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use tenure_core::model::Failure;
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::{COMMENT, News};
use tokio::time::timeout;

use super::Face;
use super::places::PlaceOf;
use super::refused::Refused;
use crate::access::Caller;
use crate::store::{Listener, Missed};

/// The last word of a stream whose gateway ends: its reader finds another one, or this one again.
const STOPPING: &[u8] = b": the gateway is stopping\n\n";
/// How often a silent stream looks whether its caller's key is still good.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest silence of a stream.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(15);

/// Tells an agent what changes, from now on, until the gateway ends.
pub(super) async fn changes(
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Response, Refused> {
    let caller = face.let_in(&request)?;
    // Before the first byte: what changes after it is told.
    let place = face.streams.take(caller.principal.mark)?;
    let listener = face.store.listen(caller.principal.mark).await;
    let listener = listener.map_err(|gone| Failure::Unavailable(gone.to_string()))?;
    let open = Open::new(Arc::clone(&face));
    let stream = Stream {
        listener,
        face,
        caller,
        silent: Duration::ZERO,
        is_over: false,
        _open: (open, place),
    };
    let comment = Bytes::from_static(COMMENT);
    let first = stream::once(std::future::ready(Ok::<_, Infallible>(comment)));
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
    Ok(response)
}

/// An open stream. Keeps no news: those that its reader does not take are thrown away after a while.
struct Stream {
    listener: Listener,
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

impl Stream {
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let Stream { listener, face, caller, silent, is_over, .. } = self;
        while !*is_over && face.access.still_lets_in(caller) {
            let event = timeout(LOOK_EVERY, event(listener));
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

/// The next event; `None` when the store has ended.
async fn event(listener: &mut Listener) -> Option<Bytes> {
    match listener.next().await {
        Ok(line) => line,
        Err(Missed) => News::Reset.line().ok().map(Bytes::from),
    }
}
