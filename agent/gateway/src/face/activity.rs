//! The activity on a connection, so that one on which nothing does is noticed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::budget::{Charge, Visit};

/// How long a peer may leave a body that it asked for.
const LEFT_MAX: Duration = Duration::from_secs(30);
/// How long the first request may take to come.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may have no request under way.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Frames of HTTP/2 that ask for nothing: how many may come at once, how many more each second, and for each request and
/// each part of an answer. Clients of gRPC send up to three for one.
const FRAMES_MAX: u32 = 1000;
const FRAMES_PER_SECOND: u32 = 100;
const FRAMES_PER_PART: u32 = 4;
/// One more for so many bytes of answers, of which the peer takes as many as its window has before it says so: some clients
/// widen two windows for every 4 KiB. And how many bytes count at most.
const BYTES_PER_FRAME: u64 = 1024;
const BYTES_MAX: u64 = 16 << 20;
/// Most bytes of an answer that leave for the buffers of its connection at once.
const PART_MAX: usize = 16 << 10;

/// The activity on a connection.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// When a request began or ended last.
    changed: Instant,
    /// Requests so far.
    count: u64,
    /// How long it may have no request under way.
    idle_max: Duration,
    /// Those under way, by their numbers, and since when their peer has left what it was given; `None` where it waits for more.
    /// At most as many as a connection has streams of HTTP/2.
    under_way: Vec<(u64, Option<Instant>)>,
    /// How many frames that ask for nothing may come, and since when that is so.
    frames: (u32, Instant),
    /// Bytes that it was answered, and that no frame was counted for.
    answered: u64,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Busy,
    /// Nothing is asked.
    Idle,
    /// Its peer does not take what it asked for.
    Stalled,
}

impl Activity {
    pub(super) fn new() -> Arc<Activity> {
        let state = State {
            changed: Instant::now(),
            count: 0,
            idle_max: IDLE_MAX,
            under_way: Vec::new(),
            frames: (FRAMES_MAX, Instant::now()),
            answered: 0,
        };
        Arc::new(Activity(Mutex::new(state)))
    }

    /// Counts a request as under way, until what this returns is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.with(|state| {
            state.changed = Instant::now();
            state.count += 1;
            state.under_way.push((state.count, None));
            state.may_send(FRAMES_PER_PART);
            UnderWay { activity: Arc::clone(self), number: state.count }
        })
    }

    /// Lets it have no request under way for so long, if that is longer.
    pub(super) fn may_be_quiet(&self, quiet: Duration) {
        self.with(|state| state.idle_max = state.idle_max.max(quiet));
    }

    /// How long its peer may be silent.
    pub(super) fn quiet_max(&self) -> Duration {
        self.with(|state| state.idle_max)
    }

    pub(super) fn verdict(&self, now: Instant) -> Verdict {
        self.with(|state| {
            let quiet = now.saturating_duration_since(state.changed);
            let most = if state.count == 0 { FIRST_WITHIN } else { state.idle_max };
            let mut left = state.under_way.iter().filter_map(|(_, since)| *since);
            if left.any(|since| now.saturating_duration_since(since) > LEFT_MAX) {
                Verdict::Stalled
            } else if state.under_way.is_empty() && quiet > most {
                Verdict::Idle
            } else {
                Verdict::Busy
            }
        })
    }

    /// Takes so many frames that ask for nothing; false if these are too many.
    pub(super) fn takes_frames(&self, count: u32) -> bool {
        self.with(|state| {
            let now = Instant::now();
            let (left, since) = state.frames;
            let passed = now.saturating_duration_since(since);
            let more = passed.as_millis() * u128::from(FRAMES_PER_SECOND) / 1000;
            if more > 0 {
                state.frames = (left, now);
                state.may_send(u32::try_from(more).unwrap_or(FRAMES_MAX));
            }
            let more = count.saturating_sub(state.frames.0);
            state.frames.0 = state.frames.0.saturating_sub(count);
            let left = state.answered.checked_sub(u64::from(more) * BYTES_PER_FRAME);
            state.answered = left.unwrap_or_default();
            left.is_some()
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn place_of(&self, number: u64) -> Option<usize> {
        self.under_way.iter().position(|(of, _)| *of == number)
    }

    fn may_send(&mut self, more: u32) {
        self.frames.0 = self.frames.0.saturating_add(more).min(FRAMES_MAX);
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    activity: Arc<Activity>,
    number: u64,
}

impl UnderWay {
    fn answers(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(BYTES_MAX);
        self.activity.with(|state| {
            state.answered = state.answered.saturating_add(bytes).min(BYTES_MAX);
        });
    }

    fn left_since(&self, since: Option<Instant>) {
        self.activity.with(|state| {
            if since.is_some() {
                state.may_send(FRAMES_PER_PART);
            }
            if let Some(at) = state.place_of(self.number) {
                state.under_way[at].1 = since;
            }
        });
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.activity.with(|state| {
            if let Some(at) = state.place_of(self.number) {
                state.under_way.swap_remove(at);
            }
            state.changed = Instant::now();
        });
    }
}

/// The body of an answer, which notes when its peer came for the next part. Its connection does not come while it
/// has bytes that the peer does not take.
#[derive(Debug)]
pub(super) struct Noted {
    body: Body,
    /// The rest of a part that is longer than [`PART_MAX`].
    rest: Bytes,
    under_way: UnderWay,
    /// Its share of the budgets, until its peer has taken it.
    _of_budgets: (Option<Charge>, Arc<Visit>),
}

impl Noted {
    pub(super) fn new(
        body: Body,
        under_way: UnderWay,
        of_budgets: (Option<Charge>, Arc<Visit>),
    ) -> Noted {
        under_way.left_since(Some(Instant::now()));
        Noted { body, rest: Bytes::new(), under_way, _of_budgets: of_budgets }
    }

    /// The next part, as long as there is more of the last one.
    fn next_part(&mut self) -> Option<Bytes> {
        let part = self.rest.split_to(self.rest.len().min(PART_MAX));
        (!part.is_empty()).then_some(part)
    }
}

impl HttpBody for Noted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut polled = match self.next_part() {
            Some(part) => Poll::Ready(Some(Ok(Frame::data(part)))),
            None => Pin::new(&mut self.body).poll_frame(context),
        };
        self.under_way.left_since(polled.is_ready().then(Instant::now));
        // The whole of a long answer would leave at once for a buffer of the connection, whose reader may not come.
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(data) = frame.data_mut()
            && data.len() > PART_MAX
        {
            self.rest = data.split_off(PART_MAX);
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.under_way.answers(frame.data_ref().map_or(0, Bytes::len));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, of_body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_without_requests_and_stalled_with_what_is_left() {
        let activity = Activity::new();
        let after = |time: Duration| activity.verdict(Instant::now() + time);
        let bit = Duration::from_secs(1);
        assert_eq!(after(FIRST_WITHIN - bit), Verdict::Busy);
        assert_eq!(after(FIRST_WITHIN + bit), Verdict::Idle);
        let (first, second) = (activity.begin(), activity.begin());
        assert_eq!(after(Duration::from_secs(3600)), Verdict::Busy, "the store is at work");
        second.left_since(Some(Instant::now()));
        assert_eq!(after(LEFT_MAX - bit), Verdict::Busy);
        assert_eq!(after(LEFT_MAX + bit), Verdict::Stalled);
        second.left_since(None);
        assert_eq!(after(LEFT_MAX + bit), Verdict::Busy, "there is no news");
        drop((first, second));
        assert_eq!(after(IDLE_MAX - bit), Verdict::Busy);
        assert_eq!(after(IDLE_MAX + bit), Verdict::Idle);
    }

    #[test]
    fn frames_that_ask_for_nothing_have_a_bound() {
        let activity = Activity::new();
        assert!(activity.takes_frames(FRAMES_MAX));
        for _ in 0..FRAMES_MAX {
            let request = activity.begin();
            request.left_since(Some(Instant::now()));
            assert!(activity.takes_frames(2 * FRAMES_PER_PART));
        }
        assert!(!activity.takes_frames(FRAMES_MAX + 1));
    }

    #[tokio::test]
    async fn a_peer_may_widen_its_windows_for_every_part_of_what_it_takes() {
        let activity = Activity::new();
        assert!(activity.takes_frames(FRAMES_MAX));
        let bytes = Bytes::from(vec![0; 4 << 20]);
        let mut body = noted(Body::from(bytes), &activity);
        while !body.is_end_stream() {
            std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        }
        for _ in 0..1024 {
            assert!(activity.takes_frames(2), "of the stream, and of the connection, for 4 KiB");
        }
        assert!(!activity.takes_frames(4 * FRAMES_MAX));
        assert!(!activity.takes_frames(FRAMES_MAX), "nothing is left");
    }

    fn noted(body: Body, activity: &Arc<Activity>) -> Noted {
        Noted::new(body, activity.begin(), (None, Visit::of_tests()))
    }

    #[tokio::test]
    async fn a_long_answer_leaves_in_parts() {
        let activity = Activity::new();
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(3 * PART_MAX + 7).collect();
        let mut body = noted(Body::from(bytes.clone()), &activity);
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let mut taken = Vec::new();
        while !body.is_end_stream() {
            let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let part = next.await.unwrap().unwrap().into_data().unwrap();
            assert!(part.len() <= PART_MAX);
            taken.extend_from_slice(&part);
            let left = bytes.len() - taken.len();
            assert_eq!(body.size_hint().exact(), Some(left as u64));
        }
        assert_eq!(taken, bytes);
    }
}
