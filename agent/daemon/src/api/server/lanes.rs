//! Users take turns: what one of them has the API do is done a little at a time, and others come between.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The time of the API's threads that a user's connections may take until all others have had a turn.
const SLICE: Duration = Duration::from_micros(500);
/// So many connections of a user get ready in a turn: what they take is only known afterwards.
const AT_ONCE: usize = 16;
/// Users that are remembered without any connection.
const IDLE_MAX: usize = 256;

/// A lane for each user with connections.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<HashMap<u32, Weak<Lane>>>);

/// The time that a user's connections took, and those that wait for the next turn.
#[derive(Debug, Default)]
pub(super) struct Lane(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// More than a slice is paid back in the next turns.
    spent: Duration,
    /// Each connection at most once.
    waiting: VecDeque<(Arc<Turn>, Waker)>,
    /// A task hands out turns.
    is_served: bool,
}

/// One of the states of a connection below.
#[derive(Debug, Default)]
struct Turn(AtomicU8);

const NONE: u8 = 0;
const WAITING: u8 = 1;
const GRANTED: u8 = 2;

impl Lanes {
    /// A user's lane.
    pub(super) fn of(&self, uid: u32) -> Arc<Lane> {
        // No code panics while it holds the lock.
        let mut by_uid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if by_uid.len() > IDLE_MAX {
            by_uid.retain(|_, lane| lane.strong_count() > 0);
        }
        if let Some(lane) = by_uid.get(&uid).and_then(Weak::upgrade) {
            return lane;
        }
        let lane = Arc::new(Lane::default());
        by_uid.insert(uid, Arc::downgrade(&lane));
        lane
    }
}

impl Lane {
    /// No code panics while it holds the lock, and what it guards is right between any two calls.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the connection may go on now; else it is woken when it may.
    fn begin(self: &Arc<Lane>, turn: &Arc<Turn>, waker: &Waker) -> bool {
        let mut queue = self.queue();
        if queue.waiting.is_empty() && queue.spent < SLICE {
            return true;
        }
        turn.0.store(WAITING, Ordering::Relaxed);
        queue.waiting.push_back((Arc::clone(turn), waker.clone()));
        if !std::mem::replace(&mut queue.is_served, true) {
            tokio::spawn(Arc::clone(self).serve());
        }
        false
    }

    /// Hands out turns until nobody waits. Whoever is ready in other lanes comes between two of them.
    async fn serve(self: Arc<Lane>) {
        loop {
            tokio::task::yield_now().await;
            let mut queue = self.queue();
            queue.spent = queue.spent.saturating_sub(SLICE);
            if queue.spent >= SLICE {
                continue;
            }
            let count = queue.waiting.len().min(AT_ONCE);
            for (turn, waker) in queue.waiting.drain(..count) {
                turn.0.store(GRANTED, Ordering::Relaxed);
                waker.wake();
            }
            if queue.waiting.is_empty() {
                queue.is_served = false;
                return;
            }
        }
    }
}

/// A connection's work, in the lane of its user.
pub(super) struct InLane<F, O> {
    work: Pin<Box<F>>,
    is_over: O,
    lane: Arc<Lane>,
    turn: Arc<Turn>,
}

impl<F: Future, O: Fn() -> bool> InLane<F, O> {
    /// Once it `is_over` it waits for no turn: what it has, others wait for.
    pub(super) fn new(lane: Arc<Lane>, work: F, is_over: O) -> InLane<F, O> {
        InLane { work: Box::pin(work), is_over, lane, turn: Arc::default() }
    }
}

impl<F: Future, O: Fn() -> bool + Unpin> Future for InLane<F, O> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.turn.0.load(Ordering::Relaxed) {
            _ if (self.is_over)() => {}
            // Woken by something else; it is in the queue.
            WAITING => return Poll::Pending,
            GRANTED => self.turn.0.store(NONE, Ordering::Relaxed),
            _ if self.lane.begin(&self.turn, context.waker()) => {}
            _ => return Poll::Pending,
        }
        let began = Instant::now();
        let done = self.work.as_mut().poll(context);
        self.lane.queue().spent += began.elapsed();
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;

    #[tokio::test]
    async fn whoever_comes_later_waits_for_a_slice_of_another_users_work() {
        const MANY: usize = 20 * AT_ONCE;
        let lanes = Lanes::default();
        let done = Arc::new(AtomicUsize::new(0));
        let work = |uid| {
            let done = Arc::clone(&done);
            let work = async move {
                if uid == 1 {
                    std::thread::sleep(2 * SLICE);
                }
                done.fetch_add(1, Ordering::Relaxed)
            };
            tokio::spawn(InLane::new(lanes.of(uid), work, || false))
        };
        let many: Vec<_> = (0..MANY).map(|_| work(1)).collect();
        let before = work(2).await.unwrap();
        assert!(before <= 2 * AT_ONCE, "{before} came first");
        for one in many {
            one.await.unwrap();
        }
        assert_eq!(done.load(Ordering::Relaxed), MANY + 1);
        // Nobody is served any more, and nothing is kept for a user without connections.
        tokio::task::yield_now().await;
        assert!(lanes.0.lock().unwrap().values().all(|lane| lane.strong_count() == 0));
    }

    #[tokio::test]
    async fn what_is_over_waits_for_no_turn() {
        let lanes = Lanes::default();
        let lane = lanes.of(1);
        // More than it pays back while this test looks.
        lane.queue().spent = Duration::from_secs(3600);
        let is_over = AtomicBool::new(false);
        let mut work = InLane::new(lane, async {}, || is_over.load(Ordering::Relaxed));
        let waker = Waker::noop();
        let mut poll = || Pin::new(&mut work).poll(&mut Context::from_waker(waker));
        assert_eq!([poll(), poll()], [Poll::Pending; 2]);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(poll(), Poll::Ready(()));
    }
}
