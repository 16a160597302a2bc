//! Busy-waiting of API and heart for each other.
//!
//! To put a thread to sleep and wake it up takes longer than the embedded store needs to answer, most of
//! all on an otherwise idle machine. So a caller looks for its answer for a moment before it sleeps, and
//! the heart looks for the next request of a client that asks in a loop. Nobody looks while several
//! ask: there is other work to do than to wait. Between two looks a thread serves its other
//! connections, timers and signals, and leaves its core to whoever needs it.
//!
//! Proof: the benchmark's P1. With `ANSWER_MAX` of zero its row with pauses takes a third longer, and with
//! `REQUEST_MAX` of zero the row without them twice as long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_host::clock;

/// An answer that is not there by now waits for something: a hold's end, or a slow disk.
const ANSWER_MAX: Duration = Duration::from_micros(250);
/// A client that asks in a loop has asked again by now.
const REQUEST_MAX: Duration = Duration::from_micros(150);
/// So many requests, each soon after the one before, make a loop.
const LOOP_MIN: u32 = 8;

/// The callers that look, of all of the API's threads.
#[derive(Debug, Default)]
pub(super) struct Looking {
    callers: AtomicU32,
    /// Several looked at once since the heart last waited.
    crowded: AtomicBool,
    /// The store is in this process. An answer from elsewhere takes too long to look for it, and
    /// whoever makes it needs the cores.
    answers_here: AtomicBool,
}

impl Looking {
    pub(super) fn set_answers_here(&self, here: bool) {
        self.answers_here.store(here, Ordering::Relaxed);
    }

    /// A caller is about to ask. None if it should not look.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Look> {
        self.answers_here.load(Ordering::Relaxed).then(|| {
            if self.callers.fetch_add(1, Ordering::Relaxed) > 0 {
                self.crowded.store(true, Ordering::Relaxed);
            }
            Look(Arc::clone(self))
        })
    }
}

/// One caller that looks, or may do so.
#[derive(Debug)]
pub(super) struct Look(Arc<Looking>);

impl Look {
    /// Looks until it finds something, somebody else asks, or it took too long.
    pub(super) async fn find<T>(self, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        let until = clock::now() + ANSWER_MAX;
        while self.0.callers.load(Ordering::Relaxed) == 1 {
            give_way().await;
            let result = found();
            if result.is_some() || clock::now() >= until {
                return result;
            }
        }
        None
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The heart's knowledge of how soon requests follow each other.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    /// Requests, each soon after the one before.
    requests: u32,
    waits_since: Boottime,
}

impl Rhythm {
    /// The heart waits from now on. Says until when it should look for the next request.
    pub(super) fn wait(&mut self, looking: &Looking, now: Boottime) -> Option<Boottime> {
        self.waits_since = now;
        if looking.crowded.swap(false, Ordering::Relaxed) {
            self.requests = 0;
        }
        (self.requests >= LOOP_MIN).then(|| now + REQUEST_MAX)
    }

    /// A request ended the wait, or nothing that a client asked.
    pub(super) fn wake(&mut self, asked: bool, now: Boottime) {
        if asked && now < self.waits_since + REQUEST_MAX {
            self.requests = self.requests.saturating_add(1);
        } else {
            self.requests = 0;
        }
    }
}

/// Lets everything else run that this thread, or this core, has to do.
pub(super) async fn give_way() {
    std::thread::yield_now();
    tokio::task::yield_now().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_caller_looks_and_two_do_not() {
        let looking = Arc::new(Looking::default());
        assert!(looking.begin().is_none(), "the answer comes from elsewhere");
        looking.set_answers_here(true);
        assert_eq!(looking.begin().unwrap().find(|| Some("found")).await, Some("found"));
        assert_eq!(looking.begin().unwrap().find(|| None::<()>).await, None, "it takes too long");
        let first = looking.begin().unwrap();
        let second = looking.begin().unwrap();
        assert_eq!(second.find(|| Some(())).await, None, "somebody else asks too");
        assert_eq!(first.find(|| Some(())).await, Some(()), "the other one has gone");
    }

    #[test]
    fn the_heart_looks_while_one_client_asks_in_a_loop() {
        let looking = Arc::new(Looking::default());
        looking.set_answers_here(true);
        let mut rhythm = Rhythm::default();
        let mut now = Boottime::default();
        let mut ask = |rhythm: &mut Rhythm, after: Duration| {
            now = now + after;
            rhythm.wake(true, now);
            rhythm.wait(&looking, now).is_some()
        };
        let soon = REQUEST_MAX / 2;
        assert_eq!((1..LOOP_MIN).filter(|_| ask(&mut rhythm, soon)).count(), 0, "no loop yet");
        assert!(ask(&mut rhythm, soon));
        assert!(!ask(&mut rhythm, REQUEST_MAX), "too late: the loop has ended");
        assert_eq!((0..LOOP_MIN).filter(|_| ask(&mut rhythm, soon)).count(), 1);
        let two = (looking.begin(), looking.begin());
        assert!(!ask(&mut rhythm, soon), "several ask");
        drop(two);
    }
}
