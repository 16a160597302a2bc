//! Messages that the server sends unasked, on their way from the connection to whoever listens.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

/// Names of keys and messages that wait to be heard, at most; each is some hundred bytes. When there
/// are more, all are thrown away with their connection, and the listener hears [`Heard::Lost`]: to
/// read everything again costs less than to chase that many changes.
const WAITING_MAX: usize = 65_536;

/// A message to a listener.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// A key was changed, or a message was published. In order, and only of what the listener asked
    /// for on the connection.
    Push(PushInfo),
    /// Pushes may have been lost, because the connection ended or because there were too many of
    /// them. Nothing is heard until tracking and subscriptions are made again on the next connection;
    /// then whatever is waited for must be read again.
    Lost,
}

/// A way for pushes; its two ends.
pub fn pushes() -> (PushSink, Pushes) {
    let shared = Arc::new(Shared::default());
    (PushSink(Arc::clone(&shared)), Pushes { shared })
}

/// The end into which pushes go. Never blocks, and never grows without bound.
#[derive(Debug, Clone)]
pub struct PushSink(Arc<Shared>);

/// The end at which pushes come out.
#[derive(Debug)]
pub struct Pushes {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// There was too much.
    overflown: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    pushes: VecDeque<PushInfo>,
    /// How many names and messages those are.
    names: usize,
    lost: bool,
    /// The connection whose pushes are taken; those of an earlier one come too late. None has 0.
    generation: u64,
    overflown: bool,
    /// The listener that waits for something to hear.
    listener: Option<Waker>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PushSink {
    /// From now on this connection's pushes are taken.
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
        let listener = waiting.listener.take();
        *waiting = Waiting { lost: true, ..Waiting::default() };
        drop(waiting);
        listener.into_iter().for_each(Waker::wake);
    }

    pub(super) fn push(&self, generation: u64, push: PushInfo) {
        let names = names(&push);
        let mut waiting = self.0.waiting();
        if names == 0 || waiting.generation != generation {
            return;
        }
        if waiting.names + names > WAITING_MAX {
            // Heard of when the connection has ended, which is next.
            let listener = waiting.listener.take();
            *waiting = Waiting { overflown: true, listener, ..Waiting::default() };
            drop(waiting);
            self.0.overflown.notify_one();
            return;
        }
        waiting.names += names;
        waiting.pushes.push_back(push);
        let listener = waiting.listener.take();
        drop(waiting);
        listener.into_iter().for_each(Waker::wake);
    }

    /// Waits until there was too much to take. The connection must end then.
    pub(super) async fn overflown(&self) {
        while !self.0.waiting().overflown {
            self.0.overflown.notified().await;
        }
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
        let mut waiting = self.shared.waiting();
        if std::mem::take(&mut waiting.lost) {
            return Poll::Ready(Heard::Lost);
        }
        if let Some(push) = waiting.pushes.pop_front() {
            waiting.names -= names(&push);
            return Poll::Ready(Heard::Push(push));
        }
        waiting.listener = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalidated(keys: usize) -> PushInfo {
        let keys = (0..keys).map(|key| Value::BulkString(key.to_string().into())).collect();
        PushInfo { kind: PushKind::Invalidate, data: vec![Value::Array(keys)] }
    }

    fn take(pushes: &mut Pushes) -> Option<Heard> {
        match pushes.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(heard) => Some(heard),
            Poll::Pending => None,
        }
    }

    #[test]
    fn in_order_and_only_of_this_connection() {
        let (sink, mut pushes) = pushes();
        sink.push(1, invalidated(1));
        sink.disconnected();
        assert_eq!(take(&mut pushes), None, "nothing was connected");
        sink.connected(1);
        sink.push(1, invalidated(1));
        sink.push(1, PushInfo { kind: PushKind::Subscribe, data: Vec::new() });
        sink.push(1, invalidated(2));
        sink.push(2, invalidated(3));
        assert_eq!(take(&mut pushes), Some(Heard::Push(invalidated(1))));
        assert_eq!(take(&mut pushes), Some(Heard::Push(invalidated(2))));
        assert_eq!(take(&mut pushes), None);

        sink.push(1, invalidated(1));
        sink.disconnected();
        sink.disconnected();
        sink.push(1, invalidated(1));
        sink.connected(2);
        assert_eq!(take(&mut pushes), Some(Heard::Lost));
        assert_eq!(take(&mut pushes), None);
        sink.push(2, invalidated(1));
        assert_eq!(take(&mut pushes), Some(Heard::Push(invalidated(1))));
    }

    #[tokio::test]
    async fn too_many_are_lost_and_said_to_be() {
        let (sink, mut pushes) = pushes();
        sink.connected(1);
        sink.push(1, invalidated(WAITING_MAX));
        sink.push(1, invalidated(1));
        sink.push(1, invalidated(1));
        assert_eq!(sink.0.waiting().pushes.len(), 0);
        sink.overflown().await;
        sink.disconnected();
        assert_eq!(take(&mut pushes), Some(Heard::Lost));
        assert_eq!(take(&mut pushes), None);
        sink.connected(2);
        // It counts right.
        for _ in 0..3 {
            sink.push(2, invalidated(WAITING_MAX));
            assert!(matches!(take(&mut pushes), Some(Heard::Push(_))));
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
