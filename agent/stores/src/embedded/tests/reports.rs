//! What the store tells, and in which order.

use super::*;

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
    host.store().submit(
        now,
        CallId(1),
        Request::Revoke { resource: resource("x"), token: None, revocation: None },
    );
    host.store().ledger.ask_tokens();
    held.answer(Err(io::ErrorKind::StorageFull.into()));
    while host.poll().is_ready() {}
    assert_eq!(verdicts(&mut host), named(Verdict::Ok, Verdict::Warning, Verdict::Warning));
    host.store().engine.skip_tokens(u64::MAX);
    assert_eq!(verdicts(&mut host), named(Verdict::Ok, Verdict::Failure, Verdict::Warning));
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
            Report::Lost { claim, reason, .. } => {
                format!("lost {} {reason:?}", claim == claim_id(1))
            }
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
