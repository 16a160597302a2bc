//! The body of an event stream.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use bytes::{BufMut, BytesMut};
use hyper::body::{Body, Frame};
use tenure_core::keeper::{Numbered, SharedEvent, StreamEnd};
use tenure_host::clock;
use tenure_wire::{Event, ShutdownEvent};

use super::places::Place;
use crate::heart::{Charge, EventStream, StreamItem};
use crate::telemetry::Metrics;

/// Events are joined into one write until they are this long, bytes.
const WRITE_MAX: usize = 16 * 1024;
/// The data of a longer event is written from its one copy, bytes.
const COPIED_MAX: usize = 4 * 1024;

/// The frames of an event stream.
///
/// Ends after a last `shutdown` event, or at once when the reader has hung up. Without a last item
/// from the heart the reader was too slow, and is told `lagged`. There are no keep-alive comments:
/// a stream that a stopped program has inherited must never fill up.
pub(super) struct Frames {
    stream: EventStream,
    _place: Option<Place>,
    metrics: Arc<Metrics>,
    hangup: Pin<Box<dyn Future<Output = ()> + Send>>,
    has_ended: bool,
    /// Frames to be written next.
    ready: VecDeque<Bytes>,
    /// True if the keeper has said itself that the stream ends.
    is_told: bool,
}

impl Frames {
    pub(super) fn new(
        stream: EventStream,
        place: Option<Place>,
        metrics: Arc<Metrics>,
        hangup: Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> Frames {
        Frames {
            stream,
            _place: place,
            metrics,
            hangup,
            has_ended: false,
            ready: VecDeque::new(),
            is_told: false,
        }
    }

    fn push(&mut self, bytes: &mut BytesMut, item: Option<StreamItem>) {
        let cause = match item {
            Some(StreamItem::Event { event, made, charge }) => {
                self.metrics.event_written(clock::now().since(made));
                self.is_told |= matches!(*event.event, Event::Shutdown(_));
                if event.event.data().len() <= COPIED_MAX {
                    return write(bytes, &event);
                }
                write_head(bytes, &event);
                self.ready.push_back(bytes.split().freeze());
                let data = Uncopied { event: event.event, _charge: charge };
                self.ready.push_back(Bytes::from_owner(data));
                return bytes.put_slice(b"\n\n");
            }
            // The stream gives the standing itself.
            Some(StreamItem::Standing) => return,
            Some(StreamItem::End(end)) => cause(end),
            None => "lagged",
        };
        self.has_ended = true;
        if !self.is_told {
            let event = Event::Shutdown(ShutdownEvent { cause: cause.to_owned() });
            write(bytes, &Numbered::new(0, event));
        }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(bytes) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let mut bytes = BytesMut::new();
        while !self.has_ended && self.ready.is_empty() && bytes.len() < WRITE_MAX {
            let Poll::Ready(item) = self.stream.poll_next(context) else { break };
            self.push(&mut bytes, item);
        }
        if !bytes.is_empty() {
            self.ready.push_back(bytes.freeze());
        }
        if let Some(bytes) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if !self.has_ended && self.hangup.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.has_ended = true;
        Poll::Ready(None)
    }
}

const fn cause(end: StreamEnd) -> &'static str {
    match end {
        StreamEnd::SessionEnded => "session_ended",
        StreamEnd::Stopping => "stopping",
        StreamEnd::Restarting => "restarting",
    }
}

/// The JSON of an event that many are told.
struct Uncopied {
    event: SharedEvent,
    _charge: Option<Arc<Charge>>,
}

impl AsRef<[u8]> for Uncopied {
    fn as_ref(&self) -> &[u8] {
        self.event.data().as_bytes()
    }
}

fn write(bytes: &mut BytesMut, numbered: &Numbered) {
    write_head(bytes, numbered);
    bytes.put_slice(numbered.event.data().as_bytes());
    bytes.put_slice(b"\n\n");
}

/// Writes what comes before the data. What has no number keeps the reader's last one.
fn write_head(bytes: &mut BytesMut, Numbered { id, event, .. }: &Numbered) {
    if *id != 0 {
        bytes.put_slice(b"id: ");
        bytes.put_slice(id.to_string().as_bytes());
        bytes.put_u8(b'\n');
    }
    bytes.put_slice(b"event: ");
    bytes.put_slice(event.name().as_bytes());
    bytes.put_slice(b"\ndata: ");
}
