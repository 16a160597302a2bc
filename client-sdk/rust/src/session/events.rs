//! The events of a session, for a program.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use super::{SessionState, Shared};
use crate::wire::Event;

type Item = Result<Event, Missed>;
type Coming = Pin<Box<dyn Future<Output = (Option<Item>, Feed)> + Send>>;

/// So many events were dropped, because the reader left too many unread. The next ones follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} events were missed: more than 256 were unread; look at what the session holds now"
)]
pub struct Missed {
    /// How many.
    pub count: u64,
}

/// A stream of a session's events; see [`Session::events`](super::Session::events). Ends when the session
/// does. Dropping the future of [`next`](Events::next) loses nothing.
///
/// ```no_run
/// # async fn example(session: tenure::Session) {
/// use tenure::wire::Event;
///
/// let mut events = session.events();
/// while let Some(event) = events.next().await {
///     match event {
///         Ok(Event::Lost(lost)) => eprintln!("lost: {}", lost.reason),
///         Ok(event) => println!("{}", event.name()),
///         Err(missed) => eprintln!("{missed}"),
///     }
/// }
/// # }
/// ```
#[must_use = "events are told only to whoever asks for them"]
pub struct Events {
    coming: Option<Coming>,
}

struct Feed {
    events: broadcast::Receiver<Event>,
    state: watch::Receiver<SessionState>,
}

impl Events {
    pub(super) fn of(shared: &Shared) -> Events {
        if shared.is_forked() {
            return Events { coming: None };
        }
        let feed = Feed { events: shared.events.subscribe(), state: shared.state.subscribe() };
        Events { coming: Some(Box::pin(feed.take())) }
    }

    /// The next event, or how many were missed; `None` when the session has ended.
    pub async fn next(&mut self) -> Option<Result<Event, Missed>> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let Some(coming) = &mut self.coming else { return Poll::Ready(None) };
        let (item, feed) = std::task::ready!(coming.as_mut().poll(context));
        self.coming = item.is_some().then(|| Box::pin(feed.take()) as Coming);
        Poll::Ready(item)
    }
}

impl Feed {
    async fn take(mut self) -> (Option<Item>, Feed) {
        let gone = self.state.wait_for(|state| matches!(state, SessionState::Gone(_)));
        let item = tokio::select! {
            // What came before the end is told before it.
            biased;
            event = self.events.recv() => match event {
                Ok(event) => Some(Ok(event)),
                Err(RecvError::Lagged(count)) => Some(Err(Missed { count })),
                Err(RecvError::Closed) => None,
            },
            _ = gone => None,
        };
        (item, self)
    }
}

impl futures_core::Stream for Events {
    type Item = Result<Event, Missed>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        self.get_mut().poll_event(context)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("ended", &self.coming.is_none()).finish()
    }
}
