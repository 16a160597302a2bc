//! Hints of a change feed, on their way from its connection to the driver.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tenure_core::model::{ClaimId, GrantHint, Resource, SessionId};
use tokio::sync::Notify;

use crate::relay::{Carried, Told};

/// Hints that wait, at most; each is some hundred bytes. When there are more, all are thrown away with
/// their connection, and the driver gets [`Heard::Lost`]: to read everything again costs less than to
/// chase that many changes.
const WAITING_MAX: usize = 65_536;

/// A change that the feed tells of. May be late, double or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// A holder of the resource came, went or was renewed, or a session of the master's project.
    Resource(Resource),
    /// A waiter of the semaphore came or went.
    Queue(Resource),
    /// A waiting claim was granted, and what the grant said, if it is known until when it holds.
    Granted(ClaimId, Option<GrantHint>),
    /// A waiting claim was granted, and for how long that is kept from then on.
    Carried(ClaimId, Carried),
    /// A grant was taken away.
    Lost(ClaimId),
    /// A message to a project; JSON, or else text.
    ToProject { tenant: Arc<str>, project: Arc<str>, payload: Vec<u8> },
    /// A message to a session; most likely its master was preempted.
    ToSession { session: SessionId, payload: Vec<u8> },
    /// A gateway attends the principal that this is for.
    ToPrincipal(Told),
    /// Everything may have changed.
    Everything,
}

/// The output of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// In the order of the feed.
    Hint(Hint),
    /// Hints may have been lost, because the connection ended or because there were too many of
    /// them. None come until the next connection listens; then everything must be read again.
    Lost,
}

/// A queue of hints; its two ends.
pub fn hints() -> (HintSink, Hints) {
    let shared = Arc::new(Shared::default());
    (HintSink(Arc::clone(&shared)), Hints { shared })
}

/// The end into which hints go, whatever the connection. Never blocks, and never grows without bound.
#[derive(Debug, Clone)]
pub struct HintSink(Arc<Shared>);

/// The same for the hints of one connection.
#[derive(Debug, Clone)]
pub struct ConnectionHints {
    sink: HintSink,
    generation: u64,
}

/// The end at which hints come out.
#[derive(Debug)]
pub struct Hints {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    overflown: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    hints: VecDeque<Hint>,
    lost: bool,
    /// The connection whose hints are taken; those of an earlier one come too late. None has 0.
    generation: u64,
    overflown: bool,
    reader: Option<Waker>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HintSink {
    pub(crate) fn of(&self, generation: u64) -> ConnectionHints {
        ConnectionHints { sink: self.clone(), generation }
    }

    /// Takes this connection's hints from now on.
    pub(super) fn connected(&self, generation: u64) {
        let mut waiting = self.0.waiting();
        waiting.generation = generation;
        waiting.overflown = false;
    }

    /// The connection, if there was one, has ended.
    pub(super) fn disconnected(&self) {
        let mut waiting = self.0.waiting();
        if waiting.generation == 0 && !waiting.overflown {
            return;
        }
        let reader = waiting.reader.take();
        *waiting = Waiting { lost: true, ..Waiting::default() };
        drop(waiting);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Waits until there was too much to take. The connection must end then.
    pub(super) async fn overflown(&self) {
        while !self.0.waiting().overflown {
            self.0.overflown.notified().await;
        }
    }
}

impl ConnectionHints {
    /// Adds a hint, unless its connection is not the one that is up.
    pub fn push(&self, hint: Hint) {
        let shared = &self.sink.0;
        let mut waiting = shared.waiting();
        if waiting.generation != self.generation {
            return;
        }
        if waiting.hints.len() >= WAITING_MAX {
            // The driver learns of it when the connection has ended, which is next.
            let reader = waiting.reader.take();
            *waiting = Waiting { overflown: true, reader, ..Waiting::default() };
            drop(waiting);
            shared.overflown.notify_one();
            return;
        }
        waiting.hints.push_back(hint);
        let reader = waiting.reader.take();
        drop(waiting);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl Hints {
    /// The next one.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Heard> {
        let mut waiting = self.shared.waiting();
        if std::mem::take(&mut waiting.lost) {
            return Poll::Ready(Heard::Lost);
        }
        if let Some(hint) = waiting.hints.pop_front() {
            return Poll::Ready(Heard::Hint(hint));
        }
        waiting.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

/// What a message says: JSON, or else text.
pub(super) fn json(payload: &[u8]) -> serde_json::Value {
    serde_json::from_slice(payload)
        .unwrap_or_else(|_| String::from_utf8_lossy(payload).into_owned().into())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use uuid::Uuid;

    use super::*;

    fn hint(number: u128) -> Hint {
        Hint::Lost(ClaimId(Uuid::from_u128(number)))
    }

    fn take(hints: &mut Hints) -> Option<Heard> {
        match hints.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(heard) => Some(heard),
            Poll::Pending => None,
        }
    }

    #[test]
    fn in_order_and_only_of_this_connection() {
        let (sink, mut hints) = hints();
        let [first, second] = [1, 2].map(|generation| sink.of(generation));
        first.push(hint(1));
        sink.disconnected();
        assert_eq!(take(&mut hints), None, "nothing was connected");
        sink.connected(1);
        first.push(hint(1));
        first.push(hint(2));
        second.push(hint(3));
        assert_eq!(take(&mut hints), Some(Heard::Hint(hint(1))));
        assert_eq!(take(&mut hints), Some(Heard::Hint(hint(2))));
        assert_eq!(take(&mut hints), None);

        first.push(hint(1));
        sink.disconnected();
        sink.disconnected();
        first.push(hint(1));
        sink.connected(2);
        assert_eq!(take(&mut hints), Some(Heard::Lost));
        assert_eq!(take(&mut hints), None);
        second.push(hint(1));
        assert_eq!(take(&mut hints), Some(Heard::Hint(hint(1))));
    }

    #[tokio::test]
    async fn too_many_are_lost_and_said_to_be() {
        let (sink, mut hints) = hints();
        sink.connected(1);
        for number in 0..WAITING_MAX + 2 {
            sink.of(1).push(hint(number as u128));
        }
        assert_eq!(sink.0.waiting().hints.len(), 0);
        sink.overflown().await;
        sink.disconnected();
        assert_eq!(take(&mut hints), Some(Heard::Lost));
        assert_eq!(take(&mut hints), None);
        sink.connected(2);
        sink.of(2).push(hint(1));
        assert_eq!(take(&mut hints), Some(Heard::Hint(hint(1))));
    }

    #[tokio::test]
    async fn a_reader_is_woken() {
        let (sink, mut hints) = hints();
        sink.connected(1);
        let reader = tokio::spawn(async move {
            let first = poll_fn(|context| hints.poll_next(context)).await;
            (first, poll_fn(|context| hints.poll_next(context)).await)
        });
        tokio::task::yield_now().await;
        sink.of(1).push(hint(1));
        tokio::task::yield_now().await;
        sink.disconnected();
        assert_eq!(reader.await.unwrap(), (Heard::Hint(hint(1)), Heard::Lost));
    }
}
