//! What the server says unasked, on its way from the connection to whoever listens.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::{PushInfo, PushKind, Value};

/// Names of keys and messages that wait to be heard, at most. Each is some hundred bytes. When there
/// are more, all are thrown away, and the listener hears [`Heard::Lost`]: it reads everything again,
/// which costs less than to chase that many changes.
const WAITING_MAX: usize = 65_536;

/// What a listener hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// A key was changed, or a message was published. In order; only after the listener asked for it
    /// on the connection.
    Push(PushInfo),
    /// Pushes may have been lost: the connection ended, or there were too many of them. Whatever is
    /// waited for must be read again; tracking and subscriptions must be made again if
    /// [`super::link::Link::up`] returns a connection of another generation than before.
    Lost,
}

/// A way for pushes; its two ends.
pub fn pushes() -> (PushSink, Pushes) {
    let shared = Arc::new(Shared::default());
    (PushSink(Arc::clone(&shared)), Pushes(shared))
}

/// Where pushes go in. Never blocks, and never grows without bound.
#[derive(Debug, Clone)]
pub struct PushSink(Arc<Shared>);

/// Where pushes come out.
#[derive(Debug)]
pub struct Pushes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    pushes: VecDeque<PushInfo>,
    /// How many names and messages those are.
    names: usize,
    lost: bool,
    /// The connection whose pushes are taken; those of an earlier one come too late.
    generation: u64,
    /// Who listens.
    waker: Option<Waker>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn lose(&mut self) {
        self.pushes = VecDeque::new();
        self.names = 0;
        self.lost = true;
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl PushSink {
    /// From now on only this connection's pushes are taken.
    pub(super) fn connected(&self, generation: u64) {
        self.0.waiting().generation = generation;
    }

    /// The connection ended.
    pub(super) fn disconnected(&self) {
        let mut waiting = self.0.waiting();
        // No connection has this number.
        waiting.generation = 0;
        waiting.lose();
        waiting.wake();
    }

    pub(super) fn push(&self, generation: u64, push: PushInfo) {
        let names = names(&push);
        let mut waiting = self.0.waiting();
        // What was lost is read again by whoever hears of it, and that is not before now.
        if names == 0 || waiting.generation != generation || waiting.lost {
            return;
        }
        if waiting.names + names > WAITING_MAX {
            waiting.lose();
        } else {
            waiting.names += names;
            waiting.pushes.push_back(push);
        }
        waiting.wake();
    }
}

/// How much there is to hear; 0 for what no listener asked for, such as confirmations.
fn names(push: &PushInfo) -> usize {
    match (&push.kind, push.data.first()) {
        (PushKind::Invalidate, Some(Value::Array(keys))) => keys.len().max(1),
        // A null instead of keys: the server flushed everything.
        (PushKind::Invalidate | PushKind::Message | PushKind::PMessage, _) => 1,
        _ => 0,
    }
}

impl Pushes {
    /// The next thing. Can be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Heard {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next thing.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Heard> {
        let mut waiting = self.0.waiting();
        match waiting.take() {
            Some(heard) => Poll::Ready(heard),
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Waiting {
    /// The next thing, if there is one already.
    fn take(&mut self) -> Option<Heard> {
        if std::mem::take(&mut self.lost) {
            return Some(Heard::Lost);
        }
        let push = self.pushes.pop_front()?;
        self.names -= names(&push);
        Some(Heard::Push(push))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalidated(keys: usize) -> PushInfo {
        let keys = (0..keys).map(|key| Value::BulkString(key.to_string().into())).collect();
        PushInfo { kind: PushKind::Invalidate, data: vec![Value::Array(keys)] }
    }

    #[test]
    fn in_order_and_only_of_this_connection() {
        let (sink, pushes) = pushes();
        sink.push(1, invalidated(1));
        assert_eq!(pushes.0.waiting().take(), None, "nothing is connected");
        sink.connected(1);
        sink.push(1, invalidated(1));
        sink.push(1, PushInfo { kind: PushKind::Subscribe, data: Vec::new() });
        sink.push(1, invalidated(2));
        sink.push(2, invalidated(3));
        assert_eq!(pushes.0.waiting().take(), Some(Heard::Push(invalidated(1))));
        assert_eq!(pushes.0.waiting().take(), Some(Heard::Push(invalidated(2))));
        assert_eq!(pushes.0.waiting().take(), None);

        sink.push(1, invalidated(1));
        sink.disconnected();
        sink.push(1, invalidated(1));
        sink.connected(2);
        assert_eq!(pushes.0.waiting().take(), Some(Heard::Lost));
        assert_eq!(pushes.0.waiting().take(), None);
        sink.push(2, invalidated(1));
        assert_eq!(pushes.0.waiting().take(), Some(Heard::Push(invalidated(1))));
    }

    #[test]
    fn too_many_are_lost_and_said_to_be() {
        let (sink, pushes) = pushes();
        sink.connected(1);
        sink.push(1, invalidated(WAITING_MAX));
        sink.push(1, invalidated(1));
        sink.push(1, invalidated(1));
        assert_eq!(sink.0.waiting().pushes.len(), 0);
        assert_eq!(pushes.0.waiting().take(), Some(Heard::Lost));
        assert_eq!(pushes.0.waiting().take(), None);
        // It goes on, and counts right.
        for _ in 0..3 {
            sink.push(1, invalidated(WAITING_MAX));
            assert!(matches!(pushes.0.waiting().take(), Some(Heard::Push(_))));
        }
    }

    #[tokio::test]
    async fn a_listener_is_woken() {
        let (sink, mut pushes) = pushes();
        sink.connected(1);
        let listener = tokio::spawn(async move { (pushes.next().await, pushes.next().await) });
        tokio::task::yield_now().await;
        sink.push(1, invalidated(1));
        tokio::task::yield_now().await;
        sink.disconnected();
        assert_eq!(listener.await.unwrap(), (Heard::Push(invalidated(1)), Heard::Lost));
    }
}
