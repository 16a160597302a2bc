//! Facts that a restart keeps, and facts that it cannot know.

#![allow(clippy::unwrap_used, reason = "a store that cannot be used is a failed test")]

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::engine::EngineSettings;
use tenure_core::model::{
    Answer, Beat, BeatAnswer, CallId, Change, Claim, ClaimAnswer, ClaimId, Failure, Owner, Request,
    Resource, SessionId, Subject, Terms,
};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::{Kind, UpstreamState, Verdict};
use uuid::Uuid;

use super::{Embedded, Opened, Place, open};
use crate::journal::tests::Held;
use crate::journal::{Ahead, FILE, Files, Journal, Scribe, Start, Thread};
use crate::{Report, Upstream};

fn files(directory: &Path) -> Files {
    Files::of(tenure_host::directory::Directory::shared(directory).unwrap())
}

const BOOT: Uuid = Uuid::from_u128(7);
const CLOCK_US: u64 = 1_763_000_000_000_000;
const TTL: Duration = Duration::from_secs(30);

/// An agent's directories, and its store while it runs.
struct Host {
    runtime_dir: TempDir,
    state_dir: TempDir,
    now: Boottime,
    /// In place of the thread that waits for the disk.
    scribe: Option<Held>,
    running: Option<(Rc<RefCell<Journal>>, Embedded)>,
}

impl Host {
    fn new() -> Host {
        let mut host = Host {
            runtime_dir: tempfile::tempdir().unwrap(),
            state_dir: tempfile::tempdir().unwrap(),
            now: Boottime::from_nanos(1_000_000_000),
            scribe: None,
            running: None,
        };
        host.start(BOOT, CLOCK_US);
        host
    }

    fn start(&mut self, boot_id: Uuid, wall_clock_us: u64) {
        let runtime_dir = Box::new(files(self.runtime_dir.path()));
        let state_dir = Box::new(files(self.state_dir.path()));
        let (ahead, engine) = (Ahead::default(), EngineSettings::default());
        let place = Place { boot_id, now: self.now, wall_clock_us, ahead, engine };
        let opened = open(
            runtime_dir,
            state_dir,
            place,
            |_| {},
            |disk| {
                let scribe: Box<dyn Scribe> = match &self.scribe {
                    Some(scribe) => Box::new(scribe.clone()),
                    None => Box::new(Thread::start(disk)?),
                };
                Ok(scribe)
            },
        );
        let Opened { store, journal, .. } = opened.unwrap();
        self.running = Some((journal, store));
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
                Report::Lost { .. } => {}
                Report::Answer { call, sent_at, result } => {
                    assert_eq!((call, sent_at), (CallId(1), now));
                    assert!(answer.replace(result).is_none());
                }
                Report::Change(change) if answer.is_none() => before.push(change),
                Report::Change(change) => after.push(change),
                other => panic!("{other:?}"),
            }
        }
        self.running.as_mut().unwrap().0.borrow_mut().secure(now);
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

impl Host {
    /// A start that gets as far as the ledger, and not further.
    fn start_in_vain(&mut self) {
        let start = Start::read(&mut files(self.state_dir.path())).unwrap();
        let runtime_dir = Box::new(files(self.runtime_dir.path()));
        Journal::open(runtime_dir, BOOT, start.generation(BOOT), Ahead::default()).unwrap();
    }
}

#[test]
fn a_start_in_vain_does_not_hide_that_the_journal_is_lost() {
    let mut host = Host::new();
    host.token(1, "x");
    host.crash();
    remove_contents(host.runtime_dir.path());
    for _ in 0..3 {
        host.start_in_vain();
    }
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Quarantined);
}

#[test]
fn starts_in_vain_keep_the_journal() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    for _ in 0..3 {
        host.start_in_vain();
    }
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert_eq!(host.renew(1, "x"), BeatAnswer::Held { token, limit: None });
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
    let held = Held::default();
    (host.running, host.scribe) = (None, Some(held.clone()));
    host.start(BOOT, 5);
    let now = host.now;
    host.store().submit(now, CallId(1), Request::Revoke { resource: resource("x"), token: None });
    host.store().ledger.ask_tokens();
    held.answer(Err(io::ErrorKind::StorageFull.into()));
    while host.poll().is_ready() {}
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
fn a_loss_is_told_as_the_truth_and_before_what_it_makes_room_for() {
    let mut host = Host::new();
    host.token(1, "x");
    host.pass(TTL);
    let now = host.now;
    host.store().submit(now, CallId(1), Request::Claim(claim(2, "x", TTL)));
    let mut told = Vec::new();
    while let Poll::Ready(report) = host.poll() {
        told.push(match report {
            Report::Lost { claim, reason } => format!("lost {} {reason:?}", claim == claim_id(1)),
            Report::Change(change) => format!("{change:?}").chars().take(8).collect(),
            Report::Answer { result: Ok(Answer::Claim(answer)), .. } => {
                assert!(matches!(answer, ClaimAnswer::Held { .. }));
                "answer".to_owned()
            }
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(told, ["lost true Expired", "Resource", "answer"]);
}

#[test]
fn more_tokens_come_in_time() {
    let mut host = Host::new();
    let first = host.token(1, "x");
    // More than a range, as if so many had been granted and released.
    for round in 0..4 {
        host.store().engine.skip_tokens(Ahead::default().tokens / 3);
        let deadline = clock::now() + Duration::from_secs(30);
        host.submit(2, Request::Claim(claim(2 + round, &round.to_string(), TTL)));
        let token = loop {
            match host.answers().pop() {
                Some((_, _, Ok(Answer::Claim(ClaimAnswer::Held { token, .. })))) => break token,
                // The disk may be slower than this loop, but must not be for ever.
                None if clock::now() < deadline => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        };
        assert!(token > first + u64::try_from(round).unwrap() * (Ahead::default().tokens / 3));
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

const DAY: Duration = Duration::from_secs(86_400);

impl Host {
    /// With a ledger whose disk answers when it is told to.
    fn slow() -> (Host, Held) {
        let held = Held::default();
        let mut host = Host::new();
        (host.running, host.scribe) = (None, Some(held.clone()));
        host.start(BOOT, CLOCK_US);
        (host, held)
    }

    fn submit(&mut self, call: u64, request: Request) {
        let now = self.now;
        self.store().submit(now, CallId(call), request);
    }

    /// The answers that have come, by call.
    fn answers(&mut self) -> Vec<(u64, Boottime, Result<Answer, Failure>)> {
        let mut answers = Vec::new();
        while let Poll::Ready(report) = self.poll() {
            if let Report::Answer { call, sent_at, result } = report {
                answers.push((call.0, sent_at, result));
            }
        }
        answers
    }
}

#[test]
fn a_claim_waits_for_the_disk_and_nothing_else_does() {
    let (mut host, held) = Host::slow();
    let token = host.token(1, "short");
    let sent_at = host.now;
    host.submit(7, Request::Claim(claim(2, "long", DAY)));
    assert!(host.answers().is_empty(), "how long it may live is not on the medium");
    host.pass(Duration::from_millis(500));
    assert_eq!(host.renew(1, "short"), BeatAnswer::Held { token, limit: None });
    host.token(3, "other");
    host.release(3, "other");
    held.answer(Ok(()));
    let answers = host.answers();
    let [(7, at, Ok(Answer::Claim(ClaimAnswer::Held { .. })))] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(*at, sent_at, "valid from when it was sent");
    assert_eq!(held.notes.borrow().len(), 1);
    // From now on nothing of that length waits.
    host.submit(8, Request::Claim(claim(4, "longer", DAY)));
    assert_eq!(host.answers().len(), 1);
    // The disk does not answer any more: it is refused, in time, and beats go on.
    host.submit(9, Request::Claim(claim(5, "longest", DAY * 2)));
    let due = host.now + Duration::from_secs(1);
    assert_eq!(host.store().poll_timeout().map(|at| at <= due), Some(true));
    host.now = due;
    host.store().handle_timeout(due);
    let answers = host.answers();
    assert!(matches!(&answers[..], [(9, _, Err(Failure::Unavailable(_)))]), "{answers:?}");
    assert_eq!(host.renew(1, "short"), BeatAnswer::Held { token, limit: None });
}

#[test]
fn a_claim_that_was_given_up_while_it_waited_is_not_granted() {
    let (mut host, held) = Host::slow();
    host.submit(7, Request::Claim(claim(2, "long", DAY)));
    host.submit(8, Request::Release { claim: claim_id(2), resource: resource("long") });
    held.answer(Ok(()));
    let answers = host.answers();
    let given_up = Answer::Claim(ClaimAnswer::Gone(tenure_core::model::GoneReason::Released));
    assert!(answers.iter().any(|(call, _, result)| (*call, result) == (7, &Ok(given_up.clone()))));
    host.token(3, "long");
}

#[test]
fn a_full_disk_refuses_what_it_must_and_loses_nothing() {
    let (mut host, held) = Host::slow();
    let token = host.token(1, "x");
    host.submit(7, Request::Claim(claim(2, "long", DAY)));
    held.answer(Err(io::ErrorKind::StorageFull.into()));
    let answers = host.answers();
    let [(7, _, Err(Failure::Unavailable(cause)))] = &answers[..] else { panic!("{answers:?}") };
    assert!(cause.contains("state_dir"), "{cause}");
    for _ in 0..20 {
        host.pass(Duration::from_secs(20));
        let now = host.now;
        host.store().handle_timeout(now);
        assert_eq!(host.renew(1, "x"), BeatAnswer::Held { token, limit: None });
        held.answer(Err(io::ErrorKind::StorageFull.into()));
    }
    host.token(3, "y");
    assert_eq!(host.store().health().grants_nothing, None, "what is short is granted");
    host.store().engine.skip_tokens(u64::MAX);
    assert!(host.store().health().grants_nothing.unwrap().contains("no fencing tokens"));
    assert_eq!(host.renew(1, "x"), BeatAnswer::Held { token, limit: None });
}

#[test]
fn a_long_hold_that_has_ended_makes_no_long_quarantine() {
    let mut host = Host::new();
    let long = Request::Claim(claim(1, "x", DAY));
    host.submit(1, long);
    let deadline = clock::now() + Duration::from_secs(60);
    while host.answers().is_empty() {
        assert!(clock::now() < deadline);
        std::thread::yield_now();
    }
    let lose_journal = |host: &mut Host| {
        host.crash();
        remove_contents(host.runtime_dir.path());
        host.start(BOOT, 5);
        host.store().poll_timeout().map_or(Duration::ZERO, |at| at.since(host.now))
    };
    host.release(1, "x");
    let at = host.store().poll_timeout().unwrap();
    host.now = at;
    host.store().handle_timeout(at);
    let waits = lose_journal(&mut host);
    assert!(waits <= Ahead::default().ttl * 5 / 4, "{waits:?}");
}

#[test]
fn nothing_is_granted_while_the_journal_cannot_be_written() {
    let mut host = Host::new();
    let permit = |id: u128| {
        let mut claim = claim(id, "x", TTL);
        claim.resource.kind = Kind::Semaphore;
        (claim.terms, claim.enqueue) = (Terms::Semaphore { limit: 1, keeps: false }, true);
        claim
    };
    host.submit(1, Request::Claim(permit(1)));
    host.submit(2, Request::Claim(permit(2)));
    assert_eq!(host.answers().len(), 2);
    let now = host.now;
    let journal = Rc::clone(&host.running.as_ref().unwrap().0);
    journal.borrow_mut().secure(now);
    let file = host.runtime_dir.path().join(FILE);
    // Its directory is gone, and so is the file: what was open can be written, but not made anew.
    journal.borrow_mut().fail(&io::Error::from(io::ErrorKind::StorageFull));
    assert!(!file.exists());
    let resource = permit(1).resource;
    host.submit(3, Request::Release { claim: claim_id(1), resource });
    host.submit(4, Request::Claim(claim(4, "y", TTL)));
    let changes: Vec<_> = std::iter::from_fn(|| match host.poll() {
        Poll::Ready(report) => Some(report),
        Poll::Pending => None,
    })
    .collect();
    let granted = |reports: &[Report]| {
        let is_grant = |report: &Report| matches!(report, Report::Change(Change::Granted { .. }));
        reports.iter().any(is_grant)
    };
    assert!(!granted(&changes), "{changes:?}");
    assert!(host.store().health().grants_nothing.unwrap().contains("journal"));
    assert!(matches!(
        changes.last(),
        Some(Report::Answer { call: CallId(4), result: Err(Failure::Unavailable(_)), .. })
    ));
    // When it is whole again, whoever waited is granted what is free.
    struct Nothing;
    impl crate::journal::Rows for Nothing {
        fn keys(&self) -> Vec<crate::journal::Key> {
            Vec::new()
        }
        fn write(&self, _: &crate::journal::Key, _: &mut dyn FnMut(crate::journal::Entry)) {}
        fn count(&self) -> usize {
            0
        }
    }
    assert!(journal.borrow_mut().finish(now, &Nothing).is_some());
    let due = host.store().poll_timeout().unwrap();
    assert!(due <= host.now);
    host.store().handle_timeout(now);
    let reports: Vec<_> = std::iter::from_fn(|| match host.poll() {
        Poll::Ready(report) => Some(report),
        Poll::Pending => None,
    })
    .collect();
    assert!(granted(&reports), "{reports:?}");
}

#[test]
fn a_quarantine_can_be_ended() {
    let mut host = Host::new();
    host.token(1, "x");
    host.crash();
    remove_contents(host.runtime_dir.path());
    host.start(BOOT, 5);
    assert!(matches!(host.claim(2, "x"), ClaimAnswer::Quarantined { .. }));
    assert!(host.store().health().grants_nothing.unwrap().contains("quarantine"));
    let now = host.now;
    let left = host.store().end_quarantine(now).unwrap();
    assert!(left >= TTL && left <= TTL * 5 / 4, "{left:?}");
    assert_eq!(host.store().end_quarantine(now), None);
    assert_eq!(state(&mut host), UpstreamState::Up);
    host.token(3, "x");
}

#[test]
fn a_damaged_journal_is_not_believed() {
    let mut host = Host::new();
    host.token(1, "x");
    host.crash();
    let file = host.runtime_dir.path().join(FILE);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.pop();
    std::fs::write(&file, bytes).unwrap();
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Quarantined);
}
