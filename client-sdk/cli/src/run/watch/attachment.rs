//! The session's event stream, opened again when it breaks.

use std::future::{Future, pending};
use std::path::Path;
use std::pin::Pin;

use tenure::client::{CallError, Client, EventStream};
use tenure::page::boottime_ns;
use tenure::wire::{Event, Registered};

use crate::run::tether::{Tether, attach_again};

type Attaching = Pin<Box<dyn Future<Output = Result<Tether, CallError>>>>;

/// The way on which events come.
enum Stream {
    Open(Box<EventStream>),
    /// The stream broke at this instant: the agent restarts, or is gone.
    Opening(u64, Attaching),
    /// The session has ended.
    Gone,
}

/// News from the agent.
pub(super) enum Heard {
    Event(Box<Event>),
    Broken,
    /// The next event is a snapshot.
    AttachedAgain,
    /// There is no way back to the session, for this reason.
    Detached(&'static str),
}

/// What ties this process to its session.
pub(super) struct Attachment {
    client: Client,
    registered: Registered,
    stream: Stream,
    /// A stream that was opened when the hold was there: a snapshot without it means its end. The
    /// first stream is opened while the hold is still asked for.
    is_second: bool,
}

impl Attachment {
    pub(super) fn new(client: Client, tether: Tether) -> Attachment {
        let Tether { registered, stream } = tether;
        Attachment { client, registered, stream: Stream::Open(Box::new(stream)), is_second: false }
    }

    pub(super) fn registered(&self) -> &Registered {
        &self.registered
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stream, Stream::Open(_))
    }

    /// The agent's socket, and since when no agent answers there; `None` while one does.
    pub(super) fn away(&self) -> Option<(&Path, u64)> {
        match &self.stream {
            Stream::Opening(since, _) => Some((self.client.path(), *since)),
            Stream::Open(_) | Stream::Gone => None,
        }
    }

    /// True if a snapshot tells all that the session holds.
    pub(super) fn snapshot_counts(&self) -> bool {
        self.is_second
    }

    /// The stream, which keeps the session until it is dropped.
    pub(super) fn into_stream(self) -> Option<EventStream> {
        match self.stream {
            Stream::Open(stream) => Some(*stream),
            Stream::Opening(..) | Stream::Gone => None,
        }
    }

    /// The next news. Never returns after [`Heard::Detached`]. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Heard {
        match &mut self.stream {
            Stream::Open(stream) => {
                if let Some(Ok(received)) = stream.next().await {
                    return Heard::Event(Box::new(received.event));
                }
                let again = attach_again(self.client.clone(), self.registered.clone(), None);
                self.stream = Stream::Opening(boottime_ns(), Box::pin(again));
                Heard::Broken
            }
            Stream::Opening(_, again) => match again.await {
                Ok(Tether { registered, stream }) => {
                    self.registered = registered;
                    self.stream = Stream::Open(Box::new(stream));
                    self.is_second = true;
                    Heard::AttachedAgain
                }
                Err(error) => {
                    self.stream = Stream::Gone;
                    Heard::Detached(if error.is_session_gone() { "ended" } else { "detached" })
                }
            },
            Stream::Gone => pending().await,
        }
    }
}
