//! A disk that is slow, full or broken.

use super::*;

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
        (claim.terms, claim.enqueue) =
            (Terms::Semaphore { limit: 1, keeps: false, only_own: false }, true);
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
