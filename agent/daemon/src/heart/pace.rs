//! The decision to busy-wait.
//!
//! To wake a sleeping thread takes longer than to serve a request, most of all on a machine that is
//! otherwise idle. A client that asks again as soon as it is answered finds both threads awake, as
//! long as it is the only one that asks; with several there is other work to do than to wait.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tenure_host::clock;

/// So many requests in a row must have come over the same connection.
const STREAK_MIN: u32 = 8;
/// How long the API looks for its answer.
const ANSWER_MAX: Duration = Duration::from_micros(60);
/// How long the heart looks for the next request: on an idle machine the client and the API wake up in
/// about half of it.
const REQUEST_MAX: Duration = Duration::from_micros(150);
/// After so many requests without sleep the heart sleeps once: everything else that can wake it, such
/// as signals and ends of processes, comes through sleep.
const HITS_MAX: u32 = 16;
/// After so many looks in vain the heart stops looking …
const MISSES_MAX: u32 = 4;
/// … for so many requests.
const REST: u32 = 256;

/// The pace of API and heart, as the other one sees it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: AtomicU32,
    /// Requests in a row over that connection.
    streak: AtomicU32,
    /// The upstream is in this process: answers come at once.
    answers_here: AtomicBool,
}

impl Pace {
    /// Says whether the upstream is in this process. An answer from elsewhere takes too long to look for
    /// it, and those who make it need the cores.
    pub(super) fn set_answers_here(&self, here: bool) {
        self.answers_here.store(here, Ordering::Relaxed);
    }

    /// A request is sent. Whether it pays to look for its answer: it is likely the only one under way, and
    /// is answered here.
    pub(super) fn asked(&self, connection: u32) -> bool {
        if self.last.swap(connection, Ordering::Relaxed) == connection {
            let streak = self.streak.load(Ordering::Relaxed).saturating_add(1);
            self.streak.store(streak, Ordering::Relaxed);
        } else {
            self.streak.store(0, Ordering::Relaxed);
        }
        self.is_alone()
    }

    /// True if the requests of late came one by one over one connection, and are answered here.
    fn is_alone(&self) -> bool {
        self.streak.load(Ordering::Relaxed) >= STREAK_MIN
            && self.answers_here.load(Ordering::Relaxed)
    }
}

/// Looks for an answer for a moment.
pub(super) fn look<T>(mut found: impl FnMut() -> Option<T>) -> Option<T> {
    look_for(ANSWER_MAX, &mut found)
}

fn look_for<T>(at_most: Duration, found: &mut impl FnMut() -> Option<T>) -> Option<T> {
    let until = clock::now() + at_most;
    loop {
        let result = found();
        if result.is_some() || clock::now() >= until {
            return result;
        }
        // Whoever is to do what is looked for may need this very core.
        std::thread::yield_now();
    }
}

/// Decides whether the heart looks for the next request before it sleeps.
#[derive(Debug, Default)]
pub(super) struct Watchfulness {
    hits: u32,
    misses: u32,
    rest: u32,
}

impl Watchfulness {
    /// Looks for the next request, if the last ones came one by one.
    pub(super) fn look<T>(
        &mut self,
        pace: &Pace,
        mut found: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if !pace.is_alone() {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        if self.hits == HITS_MAX {
            self.hits = 0;
            return None;
        }
        let result = look_for(REQUEST_MAX, &mut found);
        match result {
            Some(_) => (self.hits, self.misses) = (self.hits + 1, 0),
            None => (self.hits, self.misses) = (0, self.misses + 1),
        }
        if self.misses == MISSES_MAX {
            *self = Watchfulness { rest: REST, ..Watchfulness::default() };
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_only_while_one_connection_asks_and_rests_after_looks_in_vain() {
        let pace = Pace::default();
        pace.set_answers_here(true);
        let mut watchfulness = Watchfulness::default();
        assert_eq!(watchfulness.look(&pace, || Some(())), None, "nobody asked yet");
        assert!(!pace.asked(7), "the first");
        assert_eq!((1..=STREAK_MIN).filter(|_| pace.asked(7)).count(), 1);
        assert_eq!(watchfulness.look(&pace, || Some(())), Some(()));
        for _ in 0..MISSES_MAX {
            assert_eq!(watchfulness.look(&pace, || None::<()>), None);
        }
        for _ in 0..REST {
            assert_eq!(watchfulness.look(&pace, || Some(())), None);
        }
        assert_eq!(watchfulness.look(&pace, || Some(())), Some(()));
        let hits = (0..HITS_MAX * 2).filter(|_| watchfulness.look(&pace, || Some(())).is_some());
        assert!(hits.count() < HITS_MAX as usize * 2, "sleeps now and then");
        assert!(!pace.asked(8), "another one");
        assert_eq!((0..=STREAK_MIN).filter(|_| pace.asked(8)).count(), 2);
        pace.set_answers_here(false);
        assert!(!pace.asked(8), "the answer comes from elsewhere");
        assert_eq!(watchfulness.look(&pace, || Some(())), None);
    }
}
