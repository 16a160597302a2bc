//! A driver over a store that does as it is told.

mod many;

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::model::{
    Answer, Beat, BeatAnswer, CallId, Change, ClaimAnswer, ClaimId, Failure, GoneReason, Report,
    Request, Resource, SessionId, Subject,
};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::{Kind, UpstreamState};
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use super::{
    Backend, ConnectError, ConnectionHints, Connector, Dialed, Dialer, Driver, Hint, LineOf,
    NoChores, Peer, Purpose, Server,
};
use crate::Upstream;

const TIMEOUT: Duration = Duration::from_secs(2);

/// The store's way with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Answers,
    TakesNothing,
    SwallowsAll,
    /// The test answers each call, as often as it likes.
    Asks,
}

/// A reply that the store owes.
type Owed = (ClaimId, mpsc::Sender<bool>);

/// The test's hand on the store.
struct Hand {
    mood: Mutex<Mood>,
    hints: Mutex<Option<ConnectionHints>>,
    /// Connections for commands.
    connections: AtomicU64,
    /// Ends the feed's connection.
    hang_up: Notify,
    owed: Mutex<Vec<Owed>>,
}

#[derive(Clone)]
struct Toy(Arc<Hand>);

impl Connector for Toy {
    type Connection = ();
    const STORE: &'static str = "Toy";
    const KIND: &'static str = "toy";

    async fn connect(
        &self,
        purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<()>, ConnectError> {
        if purpose == Purpose::Feed {
            *self.0.hints.lock().unwrap() = hints;
        } else if purpose == Purpose::Commands {
            self.0.connections.fetch_add(1, Ordering::Relaxed);
        }
        let server = Server { place: "here".to_owned(), version: "1".to_owned() };
        let toy = self.clone();
        let pump = Box::pin(async move {
            if purpose != Purpose::Feed {
                pending::<()>().await;
            }
            toy.0.hang_up.notified().await;
            let peer = Peer { what: "Toy", place: "here".to_owned() };
            ConnectError::lost(&peer, "it hung up")
        });
        Ok(Dialed { connection: (), server, pump })
    }

    async fn check(&self, (): &(), _server: &Server) -> Result<(), ConnectError> {
        Ok(())
    }
}

impl Backend for Toy {
    type Connector = Toy;
    type Chores = NoChores;

    async fn perform(
        &self,
        line: &mut LineOf<Self>,
        request: &Request,
        _floor: u64,
    ) -> Result<Answer, Failure> {
        let mood = *self.0.mood.lock().unwrap();
        if mood != Mood::TakesNothing {
            line.sending();
        }
        if let (Mood::Asks, Request::Release { claim, .. }) = (mood, request) {
            // Counted for as long as the call is kept.
            let hand = Arc::clone(&self.0);
            let (reply, mut replied) = mpsc::channel(2);
            hand.owed.lock().unwrap().push((*claim, reply));
            let released = replied.recv().await;
            return released.map(Answer::Released).ok_or(Failure::Unknown("it hung up".to_owned()));
        }
        if mood != Mood::Answers {
            pending::<()>().await;
        }
        Ok(match request {
            Request::Renew(_) => Answer::Renew(vec![BeatAnswer::Held { token: 7, limit: None }]),
            Request::Claim(_) => Answer::Claim(ClaimAnswer::Gone(GoneReason::Conflict)),
            _ => Answer::Released(true),
        })
    }
}

struct Bench {
    driver: Driver<Toy>,
    hand: Arc<Hand>,
}

impl Bench {
    /// A driver that listens already.
    async fn new() -> Bench {
        let hand = Arc::new(Hand {
            mood: Mutex::new(Mood::Answers),
            hints: Mutex::default(),
            connections: AtomicU64::new(0),
            hang_up: Notify::new(),
            owed: Mutex::default(),
        });
        let toy = Toy(Arc::clone(&hand));
        let dialer = Arc::new(Dialer::new(toy.clone()));
        let driver = Driver::open(&dialer, toy, NoChores, TIMEOUT);
        let mut bench = Bench { driver, hand };
        assert!(matches!(bench.report().await, Report::FeedLost));
        bench
    }

    async fn report(&mut self) -> Report {
        poll_fn(|context| self.driver.poll_report(context)).await
    }

    fn reports_nothing(&mut self) -> bool {
        self.driver.poll_report(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Lets every task do what it can.
    async fn settle(&mut self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn hint(&self, hint: Hint) {
        self.hand.hints.lock().unwrap().as_ref().unwrap().push(hint);
    }

    /// Makes a call, and lets its deadline pass without an answer.
    async fn give_up(&mut self, mood: Mood, request: Request) -> (Boottime, Duration, Failure) {
        *self.hand.mood.lock().unwrap() = mood;
        let now = clock::now();
        self.driver.submit(now, CallId(1), request);
        assert!(self.reports_nothing());
        self.settle().await;
        assert!(self.reports_nothing());
        let deadline = self.driver.poll_timeout().unwrap();
        self.driver.handle_timeout(deadline);
        let Report::Answer { call: CallId(1), sent_at, result } = self.report().await else {
            panic!("another report");
        };
        assert!(sent_at >= now && sent_at < deadline);
        assert!(self.reports_nothing(), "exactly one answer");
        (now, deadline.since(now), result.unwrap_err())
    }
}

fn id(number: u128) -> ClaimId {
    ClaimId(Uuid::from_u128(number))
}

fn resource() -> Resource {
    Resource { tenant: "t".into(), kind: Kind::Leader, name: "n".into() }
}

fn release() -> Request {
    Request::Release { claim: id(1), resource: resource() }
}

fn beat(ttl: Duration) -> Request {
    let subject = Subject::Claim { claim: id(1), resource: resource() };
    Request::Renew(vec![Beat { subject, ttl }])
}

#[tokio::test]
async fn a_call_that_was_sent_is_unknown_and_its_connection_is_given_up() {
    let mut bench = Bench::new().await;
    let (_, within, failure) = bench.give_up(Mood::SwallowsAll, release()).await;
    assert_eq!(within, TIMEOUT);
    assert_eq!(failure, Failure::Unknown("Toy gave no answer within 2000 ms".to_owned()));
    assert_eq!(bench.driver.health().last_error.as_deref(), Some(failure.cause()));
    bench.settle().await;
    assert_eq!(bench.hand.connections.load(Ordering::Relaxed), 2);
    assert_eq!(bench.driver.health().state, UpstreamState::Up);
}

#[tokio::test]
async fn a_call_that_was_not_sent_is_unavailable() {
    let mut bench = Bench::new().await;
    let (_, _, failure) = bench.give_up(Mood::TakesNothing, release()).await;
    let cause = "there was no connection to Toy within 2000 ms".to_owned();
    assert_eq!(failure, Failure::Unavailable(cause));
    bench.settle().await;
    assert_eq!(bench.hand.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_beat_leaves_time_to_try_again() {
    for (ttl_ms, within_ms) in [(100, 100), (2000, 500), (30_000, 2000)] {
        let mut bench = Bench::new().await;
        let beat = beat(Duration::from_millis(ttl_ms));
        let (_, within, _) = bench.give_up(Mood::SwallowsAll, beat).await;
        assert_eq!(within, Duration::from_millis(within_ms), "{ttl_ms}");
    }
}

#[tokio::test]
async fn hints_concern_own_claims_alone() {
    let mut bench = Bench::new().await;
    bench.driver.submit(clock::now(), CallId(1), beat(Duration::from_secs(30)));
    assert!(matches!(bench.report().await, Report::Answer { result: Ok(_), .. }));
    bench.hint(Hint::Lost(id(2)));
    bench.hint(Hint::Granted(id(2), None));
    let session = SessionId(Uuid::nil());
    bench.hint(Hint::ToSession { session, payload: Vec::new() });
    bench.hint(Hint::Lost(id(1)));
    let Report::Change(change) = bench.report().await else { panic!("no hint") };
    assert_eq!(change, Change::Lost { claim: id(1), resource: resource() });
    assert!(bench.reports_nothing());
}

#[tokio::test]
async fn a_store_that_cannot_verify_makes_the_keeper_ask() {
    let mut bench = Bench::new().await;
    bench.driver.submit(clock::now(), CallId(1), beat(Duration::from_secs(30)));
    assert!(matches!(bench.report().await, Report::Answer { .. }));
    bench.hint(Hint::Resource(resource()));
    assert!(matches!(bench.report().await, Report::Change(Change::Resource(_))));
    // So soon after a beat the change is most likely that beat, and is verified a moment later.
    let mut report = bench.driver.poll_report(&mut Context::from_waker(Waker::noop()));
    if report.is_pending() {
        let at = bench.driver.poll_timeout().unwrap();
        bench.driver.handle_timeout(at);
        report = Poll::Ready(bench.report().await);
    }
    let Poll::Ready(Report::Change(change)) = report else { panic!("no hint") };
    assert_eq!(change, Change::Lost { claim: id(1), resource: resource() });
}

#[tokio::test]
async fn a_lost_feed_is_started_again_and_everything_read() {
    let mut bench = Bench::new().await;
    bench.hand.hang_up.notify_one();
    assert!(matches!(bench.report().await, Report::FeedLost));
    assert!(bench.reports_nothing());
}
