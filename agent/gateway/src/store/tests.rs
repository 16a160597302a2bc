//! The store's thread with an engine behind it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::model::{
    Answer, Claim, ClaimAnswer, ClaimId, GoneReason, Owner, Request, Resource, SessionId, Terms,
};
use tenure_host::clock;
use tenure_host::directory::Directory;
use tenure_stores::embedded;
use tenure_stores::gateway::wire::News;
use tenure_stores::journal::Files;
use tenure_stores::settings::Place;
use tenure_stores::settings::secret::Credentials;
use tenure_wire::Kind;
use uuid::Uuid;

use super::*;

const MARK: Mark = Mark::at_end_of(Uuid::nil());

pub(crate) fn open(dir: &TempDir) -> (Store, Thread) {
    open_by(dir, Arc::new(clock::now))
}

fn open_by(dir: &TempDir, clock: Clock) -> (Store, Thread) {
    let open = |name| Directory::private(&dir.path().join(name), 0o700).unwrap();
    let (runtime_dir, state_dir) = (open("run"), open("state"));
    let opener = embedded::settings().resolve(None, &Credentials::default()).unwrap();
    spawn(clock, move || {
        let place = Place {
            runtime_dir: Box::new(Files::of(runtime_dir)),
            state_dir: Box::new(Files::of(state_dir)),
            boot_id: Uuid::nil(),
            now: clock::now(),
            wall_clock_us: clock::wall_us(),
            catch_up: &|_| {},
        };
        opener.open(place).map_err(|error| io::Error::other(error.to_string()))
    })
    .unwrap()
}

fn resource(name: &str) -> Resource {
    Resource { tenant: "t".into(), kind: Kind::Leader, name: name.into() }
}

fn claim(number: u128, name: &str) -> Request {
    let id = Uuid::from_u128(number);
    Request::Claim(Claim {
        id: ClaimId(id),
        resource: resource(name),
        owner: Owner { session: SessionId(id), host: "h".into(), name: "p".into() },
        ttl: Duration::from_secs(30),
        terms: Terms::Leader,
        enqueue: false,
    })
}

fn release(number: u128, name: &str) -> Request {
    Request::Release { claim: ClaimId(Uuid::from_u128(number)), resource: resource(name) }
}

#[tokio::test]
async fn what_nobody_waits_for_is_done_and_a_repetition_is_the_same_operation() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _thread) = open(&dir);
    let asking = tokio::spawn({
        let store = store.clone();
        async move { store.ask(MARK, claim(1, "role")).await }
    });
    // Its caller goes, perhaps before the thread has seen the request.
    tokio::task::yield_now().await;
    asking.abort();
    let first = store.ask(MARK, claim(1, "role")).await.unwrap();
    assert!(matches!(first, Answer::Claim(ClaimAnswer::Held { .. })), "{first:?}");
    assert_eq!(store.ask(MARK, claim(1, "role")).await.unwrap(), first);
    assert_eq!(store.ask(MARK, release(1, "role")).await.unwrap(), Answer::Released(true));
    let gone = Answer::Claim(ClaimAnswer::Gone(GoneReason::Released));
    assert_eq!(store.ask(MARK, claim(1, "role")).await.unwrap(), gone);
}

#[tokio::test]
async fn a_listener_that_falls_behind_is_told_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _thread) = open(&dir);
    let mut listener = store.listen(MARK).await.unwrap();
    for number in 0..=streams::NEWS_MAX as u128 {
        store.ask(MARK, Request::Inspect(resource("role"))).await.unwrap();
        store.ask(MARK, claim(number, "role")).await.unwrap();
        store.ask(MARK, release(number, "role")).await.unwrap();
    }
    assert_eq!(listener.next().await.unwrap_err(), Missed);
    let line = listener.next().await.unwrap().unwrap();
    let news = News::read(line.strip_suffix(b"\n\n").unwrap());
    assert_eq!(news, Some(News::Resource(resource("role"))));
}

#[tokio::test]
async fn a_stop_answers_what_was_asked_and_the_next_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (store, thread) = open(&dir);
    let held = store.ask(MARK, claim(1, "role")).await.unwrap();
    store.stop().await;
    thread.ended().await;
    store.ask(MARK, claim(2, "other")).await.unwrap_err();
    assert_eq!(store.health().await.unwrap_err(), Gone);

    let (store, _thread) = open(&dir);
    assert_eq!(store.ask(MARK, claim(1, "role")).await.unwrap(), held);
    let other = store.ask(MARK, claim(2, "role")).await.unwrap();
    assert!(matches!(other, Answer::Claim(ClaimAnswer::Contended { .. })), "{other:?}");
}

#[tokio::test]
async fn a_request_is_not_carried_out_as_of_before_it_was_sent() {
    /// What is sent right after a look at the clock, a minute later.
    type Late = Option<(mpsc::Sender<Message>, Message)>;
    let late: Arc<Mutex<(Boottime, Late)>> = Arc::new(Mutex::new((clock::now(), None)));
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::clone(&late);
    let (store, _thread) = open_by(
        &dir,
        Arc::new(move || {
            let (now, late) = &mut *clock.lock().unwrap();
            let seen = *now;
            if let Some((messages, message)) = late.take() {
                *now = seen + Duration::from_secs(60);
                messages.try_send(message).unwrap();
            }
            seen
        }),
    );
    store.ask(MARK, claim(1, "role")).await.unwrap();
    let (sender, answer) = oneshot::channel();
    let reply = Reply { then: None, answer: sender };
    let message = Message::Request { mark: MARK, request: Box::new(claim(2, "role")), reply };
    late.lock().unwrap().1 = Some((store.messages.clone(), message));
    // Any message has the thread look at the clock.
    store.health().await.unwrap();
    let answer = answer.await.unwrap().unwrap();
    assert!(matches!(answer, Answer::Claim(ClaimAnswer::Held { .. })), "{answer:?}");
}
