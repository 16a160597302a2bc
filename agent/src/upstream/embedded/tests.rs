//! What a restart keeps, and what it cannot know.

#![allow(clippy::unwrap_used, reason = "a store that cannot be used is a failed test")]

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tempfile::TempDir;
use tenure::wire::{Kind, UpstreamState, Verdict};
use uuid::Uuid;

use super::Embedded;
use crate::host::clock::{self, Boottime};
use crate::journal::{Database, TOKENS_PER_RANGE};
use crate::model::{
    Answer, Beat, BeatAnswer, CallId, Change, Claim, ClaimAnswer, ClaimId, Failure, Owner, Request,
    Resource, SessionId, Subject, Terms,
};
use crate::upstream::{Report, Upstream};

const BOOT: Uuid = Uuid::from_u128(7);
const CLOCK_US: u64 = 1_763_000_000_000_000;
const TTL: Duration = Duration::from_secs(30);

/// An agent's directories, and its store while it runs.
struct Host {
    runtime_dir: TempDir,
    state_dir: TempDir,
    now: Boottime,
    running: Option<(Rc<RefCell<Database>>, Embedded)>,
}

impl Host {
    fn new() -> Host {
        let mut host = Host {
            runtime_dir: tempfile::tempdir().unwrap(),
            state_dir: tempfile::tempdir().unwrap(),
            now: Boottime::from_nanos(1_000_000_000),
            running: None,
        };
        host.start(BOOT, CLOCK_US);
        host
    }

    fn start(&mut self, boot: Uuid, clock_us: u64) {
        let database = Database::open(self.runtime_dir.path(), boot).unwrap();
        let database = Rc::new(RefCell::new(database));
        let store =
            Embedded::open(database.clone(), self.state_dir.path(), self.now, clock_us).unwrap();
        database.borrow_mut().commit().unwrap();
        self.running = Some((database, store));
    }

    /// As SIGKILL does it.
    fn crash(&mut self) {
        self.running = None;
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn store(&mut self) -> &mut Embedded {
        &mut self.running.as_mut().unwrap().1
    }

    /// The answer, and the changes before and after it.
    fn call(&mut self, request: Request) -> (Result<Answer, Failure>, Vec<Change>, Vec<Change>) {
        let now = self.now;
        self.store().submit(now, CallId(1), request);
        let (mut answer, mut before, mut after) = (None, Vec::new(), Vec::new());
        while let Poll::Ready(report) = self.poll() {
            match report {
                Report::Answer { call, sent_at, result } => {
                    assert_eq!((call, sent_at), (CallId(1), now));
                    assert!(answer.replace(result).is_none());
                }
                Report::Change(change) if answer.is_none() => before.push(change),
                Report::Change(change) => after.push(change),
                other => panic!("{other:?}"),
            }
        }
        self.running.as_mut().unwrap().0.borrow_mut().commit().unwrap();
        (answer.unwrap(), before, after)
    }

    fn poll(&mut self) -> Poll<Report> {
        self.store().poll_report(&mut Context::from_waker(Waker::noop()))
    }

    fn claim(&mut self, id: u128, name: &str) -> ClaimAnswer {
        match self.call(Request::Claim(claim(id, name, TTL))).0.unwrap() {
            Answer::Claim(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn token(&mut self, id: u128, name: &str) -> u64 {
        match self.claim(id, name) {
            ClaimAnswer::Held { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, id: u128, name: &str) -> BeatAnswer {
        let subject = Subject::Claim { claim: claim_id(id), resource: resource(name) };
        match self.call(Request::Renew(vec![Beat { subject, ttl: TTL }])).0.unwrap() {
            Answer::Renew(mut answers) => answers.pop().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, id: u128, name: &str) {
        let release = Request::Release { claim: claim_id(id), resource: resource(name) };
        assert_eq!(self.call(release).0, Ok(Answer::Released(true)));
    }
}

fn remove_contents(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

fn claim_id(id: u128) -> ClaimId {
    ClaimId(Uuid::from_u128(id))
}

fn resource(name: &str) -> Resource {
    Resource { tenant: Arc::from("default"), kind: Kind::Leader, name: Arc::from(name) }
}

fn claim(id: u128, name: &str, ttl: Duration) -> Claim {
    Claim {
        id: claim_id(id),
        resource: resource(name),
        owner: Owner {
            session: SessionId(Uuid::from_u128(id)),
            host: Arc::from("host"),
            name: Arc::from("name"),
        },
        ttl,
        max_hold: None,
        terms: Terms::Leader,
        enqueue: false,
    }
}

fn state(host: &mut Host) -> UpstreamState {
    host.store().health().state
}

#[test]
fn a_crash_loses_no_grant() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    assert_eq!(token, CLOCK_US);
    host.crash();
    host.pass(Duration::from_secs(20));
    host.start(BOOT, CLOCK_US);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert!(matches!(host.claim(2, "x"), ClaimAnswer::Contended { .. }));
    assert_eq!(host.renew(1, "x"), BeatAnswer::Held { token, limit: None });
    // Greater than any before, although the clock stood still.
    assert!(host.token(3, "y") > token);
    // An agent that came back gives everybody a whole ttl.
    host.pass(TTL - Duration::from_millis(1));
    assert!(matches!(host.claim(4, "x"), ClaimAnswer::Contended { .. }));
    host.pass(Duration::from_millis(1));
    assert!(matches!(host.claim(5, "x"), ClaimAnswer::Held { .. }));
}

#[test]
fn without_its_journal_it_grants_nothing_until_every_grant_has_ended() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    remove_contents(host.runtime_dir.path());
    host.pass(Duration::from_secs(1));
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Quarantined);
    let ClaimAnswer::Quarantined { free_in } = host.claim(2, "x") else { panic!() };
    assert!(free_in >= TTL && free_in <= TTL * 5 / 4, "{free_in:?}");

    // Another restart, with a journal this time, does not shorten it.
    host.crash();
    host.pass(Duration::from_secs(1));
    host.start(BOOT, 5);
    let ClaimAnswer::Quarantined { free_in: rest } = host.claim(2, "x") else { panic!() };
    assert_eq!(rest, free_in - Duration::from_secs(1));

    let end = host.store().poll_timeout().unwrap();
    assert_eq!(end, host.now + rest);
    host.now = end;
    host.store().handle_timeout(end);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert!(host.token(2, "x") > token);
}

#[test]
fn without_its_journal_but_stopped_clean_it_grants_at_once() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.release(1, "x");
    host.store().close();
    let refused = host.call(Request::Claim(claim(2, "x", TTL))).0;
    assert!(matches!(refused, Err(Failure::Unavailable(_))), "{refused:?}");
    host.crash();
    remove_contents(host.runtime_dir.path());
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert!(host.token(2, "x") > token);
}

#[test]
fn an_examination_tells_what_is_wrong() {
    let verdicts = |host: &mut Host| {
        let mut examination = host.store().examine();
        let polled = examination.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(checks) = polled else { panic!("everything is known already") };
        checks.into_iter().map(|check| (check.name, check.verdict)).collect::<Vec<_>>()
    };
    let named = |journal, tokens, quarantine| {
        [
            ("embedded.journal".to_owned(), journal),
            ("embedded.tokens".to_owned(), tokens),
            ("embedded.quarantine".to_owned(), quarantine),
        ]
    };
    let mut host = Host::new();
    assert_eq!(verdicts(&mut host), named(Verdict::Ok, Verdict::Ok, Verdict::Ok));
    host.token(1, "x");
    host.crash();
    remove_contents(host.runtime_dir.path());
    host.start(BOOT, 5);
    assert_eq!(verdicts(&mut host), named(Verdict::Ok, Verdict::Ok, Verdict::Warning));
    host.store().last_error = Some("the disk is full".to_owned());
    assert_eq!(verdicts(&mut host), named(Verdict::Ok, Verdict::Warning, Verdict::Warning));
    host.store().engine.skip_tokens(u64::MAX);
    assert_eq!(verdicts(&mut host), named(Verdict::Ok, Verdict::Failure, Verdict::Warning));
}

#[test]
fn closing_with_something_granted_is_not_clean() {
    let mut host = Host::new();
    host.token(1, "x");
    host.store().close();
    host.crash();
    remove_contents(host.runtime_dir.path());
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Quarantined);
}

#[test]
fn another_boot_grants_at_once() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    host.now = Boottime::from_nanos(9);
    host.start(Uuid::from_u128(8), 5);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert!(host.token(2, "x") > token);
}

#[test]
fn without_journal_and_ledger_tokens_go_on_from_the_clock() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    remove_contents(host.runtime_dir.path());
    remove_contents(host.state_dir.path());
    host.start(BOOT, CLOCK_US + 1_000_000);
    assert_eq!(host.token(2, "x"), CLOCK_US + 1_000_000);
    assert!(CLOCK_US + 1_000_000 > token);
}

#[test]
fn without_ledger_tokens_go_on_from_the_journal() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    remove_contents(host.state_dir.path());
    host.start(BOOT, 5);
    assert_eq!(host.token(2, "y"), token + 1);
}

#[test]
fn changes_come_before_the_answer_that_they_make_room_for() {
    let mut host = Host::new();
    host.token(1, "x");
    host.pass(TTL);
    let (answer, before, after) = host.call(Request::Claim(claim(2, "x", TTL)));
    assert!(matches!(answer, Ok(Answer::Claim(ClaimAnswer::Held { .. }))));
    let lost = Change::Lost { claim: claim_id(1), resource: resource("x") };
    assert!(before.contains(&lost));
    assert_eq!(after, []);
}

#[test]
fn more_tokens_come_in_time() {
    let mut host = Host::new();
    let first = host.token(1, "x");
    // More than a range, as if so many had been granted and released.
    for round in 0..4 {
        host.store().engine.skip_tokens(TOKENS_PER_RANGE / 3);
        let deadline = clock::now() + Duration::from_secs(30);
        let token = loop {
            match host.call(Request::Claim(claim(2 + round, &round.to_string(), TTL))).0 {
                Ok(Answer::Claim(ClaimAnswer::Held { token, .. })) => break token,
                // The disk may be slower than this loop, but must not be for ever.
                Err(Failure::Unavailable(_)) if clock::now() < deadline => {
                    std::thread::yield_now();
                }
                other => panic!("{other:?}"),
            }
        };
        assert!(token > first + u64::try_from(round).unwrap() * (TOKENS_PER_RANGE / 3));
    }
}

#[test]
fn a_waiting_reader_is_woken_by_a_call() {
    use std::sync::atomic::{AtomicBool, Ordering};
    struct Flag(AtomicBool);
    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let mut host = Host::new();
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(flag.clone());
    assert!(host.store().poll_report(&mut Context::from_waker(&waker)).is_pending());
    let now = host.now;
    host.store().submit(now, CallId(1), Request::Claim(claim(1, "x", TTL)));
    assert!(flag.0.load(Ordering::SeqCst));
}
