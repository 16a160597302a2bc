//! The agent is killed and started again.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_wire::{Code, Kind, LostReason};
use uuid::Uuid;

use super::bench::{ALICE, Bench, Link};
use crate::keeper::journal::{Entry, Key};
use crate::keeper::{Refusal, Reply, Request, StreamEnd};
use crate::model::{Change, ClaimId, Resource, SessionId};

#[test]
fn a_restart_keeps_valid_holds_with_their_tokens() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "connection", "project": "p"}));
    let mut holds = vec![bench.hold(session, json!({"kind": "master"}))];
    for kind in ["leader", "lease", "semaphore"] {
        holds.push(bench.hold(session, json!({"kind": kind, "name": "x"})));
    }
    let tokens: Vec<_> = holds.iter().map(|hold| bench.token(*hold)).collect();
    bench.pass(Duration::from_secs(2));
    bench.restart();
    let stream = bench.listen(session, Some(1));
    assert_eq!(bench.heard(stream)[0], "snapshot", "the numbers of the old agent are not known");
    bench.pass(Duration::from_secs(200));
    for (hold, token) in holds.iter().zip(tokens) {
        assert!(bench.is_valid(*hold));
        assert_eq!(bench.token(*hold), token);
    }
    bench.release(session, None).unwrap();
    bench.assert_nothing_left();
}

#[test]
fn waiters_keep_their_order_over_a_restart() {
    for kind in ["leader", "semaphore"] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        let holder = bench.register(json!({"tether": "process"}));
        let hold = bench.hold(holder, json!({"kind": kind, "name": "x"}));
        let fields =
            |request: &str| json!({"kind": kind, "name": "x", "wait": "block", "request": request});
        bench.acquire(session, fields("first"));
        bench.acquire(session, fields("second"));
        bench.restart();
        let second = bench.acquire(session, fields("second"));
        let first = bench.acquire(session, fields("first"));
        bench.release(holder, Some(hold)).unwrap();
        assert!(bench.reply(second).is_none());
        assert!(matches!(bench.reply(first), Some(Ok(Reply::Acquired(_)))), "{kind}");
    }
}

#[test]
fn waiters_of_a_journal_from_before_the_store_had_their_queue_keep_their_order() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let holder = bench.register(json!({"tether": "process"}));
    let hold = bench.hold(holder, json!({"kind": "leader", "name": "x"}));
    let fields =
        |request: &str| json!({"kind": "leader", "name": "x", "wait": "queue", "request": request});
    // The store knows nothing of them.
    bench.link = Link::Down;
    for request in ["first", "second", "third"] {
        bench.acquire(session, fields(request));
    }
    for row in bench.rows.values_mut() {
        row.claim.enqueue = false;
    }
    bench.link = Link::Up;
    bench.restart();
    for request in ["third", "second", "first"] {
        let ticket = bench.acquire(session, fields(request));
        let Some(Ok(Reply::Waiting(waiting))) = bench.reply(ticket) else { panic!("{request}") };
        assert_eq!(waiting.position, None, "{request}: the store has given none");
    }
    bench.release(holder, Some(hold)).unwrap();
    let mut first = fields("first");
    first["wait"] = json!("block");
    let first = bench.hold(session, first);
    assert!(bench.is_valid(first));
}

#[test]
fn a_blocked_wait_that_nobody_takes_up_again_is_cancelled() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let hold = bench.hold(session, json!({"kind": "semaphore", "name": "x"}));
    bench.acquire(session, json!({"kind": "semaphore", "name": "x", "wait": "block"}));
    bench.restart();
    bench.pass(Duration::from_secs(4));
    bench.release(session, Some(hold)).unwrap();
    bench.hold(session, json!({"kind": "semaphore", "name": "x"}));
}

/// A holder, and a session that waits for the same and has its caller gone with the agent.
fn wait_over_a_restart() -> (Bench, [Uuid; 2], Uuid, Value) {
    let mut bench = Bench::new();
    let [holder, session] = [(); 2].map(|()| bench.register(json!({"tether": "process"})));
    let hold = bench.hold(holder, json!({"kind": "leader", "name": "x"}));
    let fields = json!({"kind": "leader", "name": "x", "wait": "block", "request": "r"});
    bench.acquire(session, fields.clone());
    bench.restart();
    (bench, [holder, session], hold, fields)
}

#[test]
fn a_wait_that_is_granted_after_a_restart_is_its_callers_if_that_comes_back() {
    for back in [true, false] {
        let (mut bench, [holder, session], hold, fields) = wait_over_a_restart();
        bench.release(holder, Some(hold)).unwrap();
        bench.pass(Duration::from_secs(1));
        let granted = back.then(|| bench.hold(session, fields));
        bench.restart();
        bench.pass(Duration::from_secs(4));
        let waiting =
            bench.acquire(holder, json!({"kind": "leader", "name": "x", "wait": "block"}));
        match granted {
            Some(granted) => assert!(bench.is_valid(granted) && bench.reply(waiting).is_none()),
            None => assert!(matches!(bench.reply(waiting), Some(Ok(Reply::Acquired(_))))),
        }
    }
}

#[test]
fn a_release_that_was_not_confirmed_is_sent_again_after_a_restart() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    bench.link = Link::Down;
    assert!(bench.release(session, Some(hold)).unwrap(), "for the client it is over");
    bench.link = Link::Up;
    bench.restart();
    bench.hold(session, json!({"kind": "leader", "name": "x"}));
}

#[test]
fn a_planned_restart_tells_readers_to_come_back() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "connection"}));
    let stream = bench.listen(session, None);
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    bench.keeper.handle_restart(bench.now);
    bench.settle();
    assert_eq!(bench.ended.get(&stream), Some(&StreamEnd::Restarting));
    assert!(bench.keeper.stopped() && bench.is_valid(hold));
    bench.restart();
    assert!(bench.is_valid(hold));
}

#[test]
fn missed_events_are_replayed() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(session, None);
    bench.hold(session, json!({"kind": "leader", "name": "x"}));
    let last = *bench.ids[&stream].last().unwrap();
    bench.close(stream);
    let hold = bench.hold(session, json!({"kind": "leader", "name": "y"}));
    bench.release(session, Some(hold)).unwrap();
    let stream = bench.listen(session, Some(last));
    assert_eq!(bench.heard(stream), ["granted", "released"]);
    let stream = bench.listen(session, Some(last + 1000));
    assert_eq!(bench.heard(stream), ["snapshot"], "a number that never was");
}

#[test]
fn a_session_is_resumed_by_its_secret_only() {
    let mut bench = Bench::new();
    let ticket = bench.ask(
        ALICE,
        Request::Register(serde_json::from_value(json!({})).unwrap(), Default::default()),
    );
    let Some(Ok(Reply::Registered { session, secret, .. })) = bench.reply(ticket) else { panic!() };
    bench.restart();
    let resume = |secret: &str| {
        let fields = json!({"resume": {"session": session.0, "secret": secret}});
        Request::Register(serde_json::from_value(fields).unwrap(), Default::default())
    };
    let ticket = bench.ask(ALICE, resume(&secret));
    assert!(matches!(bench.reply(ticket), Some(Ok(Reply::Registered { resumed: true, .. }))));
    let ticket = bench.ask(ALICE, resume("00"));
    assert_eq!(bench.reply(ticket).unwrap().unwrap_err().code(), tenure_wire::Code::Unauthorized);
}

#[test]
fn an_upstream_that_lost_its_data_loses_holds_and_queues_waiters_again() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process", "project": "p"}));
    let stream = bench.listen(session, None);
    bench.hold(session, json!({"kind": "semaphore", "name": "x"}));
    let waiting =
        bench.acquire(session, json!({"kind": "semaphore", "name": "x", "wait": "block"}));
    let tokens = crate::engine::TokenRange { first: 1000, last: 2000 };
    bench.engine = crate::engine::Engine::new(crate::engine::EngineSettings::default(), tokens);
    bench.keeper.handle_feed_lost(bench.now);
    bench.settle();
    bench.pass(Duration::from_millis(5));
    assert!(bench.heard(stream).contains(&"lost upstream_reset".to_owned()));
    assert!(matches!(bench.reply(waiting), Some(Ok(Reply::Acquired(_)))));
}

#[test]
fn a_process_that_nobody_can_watch_has_to_show_itself() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    bench.restart();
    bench.pass(Duration::from_secs(600));
    assert!(bench.is_valid(hold), "watched, so only its end counts");

    bench.restart();
    bench.unwatched(session);
    bench.pass(Duration::from_secs(2));
    let stream = bench.listen(session, None);
    bench.pass(Duration::from_secs(600));
    assert!(bench.is_valid(hold), "an open stream is a sign of life");
    bench.close(stream);
    bench.pass(Duration::from_secs(2));
    bench.resume_unnumbered(session);
    bench.pass(Duration::from_secs(600));
    assert!(bench.is_valid(hold), "its process is watched again");

    bench.unwatched(session);
    bench.pass(Duration::from_secs(4));
    bench.assert_nothing_left();
}

#[test]
fn guarded_work_that_nobody_can_see_after_a_restart_keeps_its_hold_until_that_runs_out() {
    for is_killed in [true, false] {
        let mut bench = Bench::new();
        let guarded = bench.register(json!({"tether": "connection", "guarded": true}));
        bench.listen(guarded, None);
        let hold = bench.hold(guarded, json!({"kind": "leader", "name": "x", "ttl_ms": 60_000}));
        let other = bench.register(json!({"tether": "process"}));
        let waits = json!({"kind": "leader", "name": "x", "wait": "block", "request": "r"});
        bench.acquire(other, waits.clone());
        bench.restart();
        let waiting = bench.acquire(other, waits);
        if is_killed {
            bench.keeper.handle_exit(bench.now, SessionId(guarded), None);
            bench.settle();
        }
        bench.pass(Duration::from_secs(59));
        assert!(bench.is_valid(hold) && bench.reply(waiting).is_none(), "killed: {is_killed}");
        bench.pass(Duration::from_secs(2));
        assert!(!bench.is_valid(hold), "it was not renewed");
        assert!(matches!(bench.reply(waiting), Some(Ok(Reply::Acquired(_)))));
        bench.release(other, None).unwrap();
        bench.assert_nothing_left();
    }
}

#[test]
fn guarded_work_that_nobody_can_see_loses_what_was_taken_away_upstream() {
    let mut bench = Bench::new();
    let guarded = bench.register(json!({"tether": "connection", "guarded": true}));
    bench.listen(guarded, None);
    let hold = bench.hold(guarded, json!({"kind": "leader", "name": "x", "ttl_ms": 60_000}));
    bench.restart();
    let now = bench.now;
    bench.keeper.handle_exit(now, SessionId(guarded), None);
    bench.settle();
    assert!(bench.is_valid(hold));
    let resource = Resource { tenant: "default".into(), kind: Kind::Leader, name: "x".into() };
    let change = Change::Lost { claim: ClaimId(hold), resource };
    bench.keeper.handle_change(now, change);
    bench.settle();
    assert!(!bench.is_valid(hold), "nothing asks for it any more");
    bench.assert_nothing_left();
}

#[test]
fn guarded_work_is_renewed_again_when_its_wrapper_comes_back() {
    let mut bench = Bench::new();
    let guarded = bench.register(json!({"tether": "connection", "guarded": true}));
    bench.listen(guarded, None);
    let hold = bench.hold(guarded, json!({"kind": "leader", "name": "x", "ttl_ms": 60_000}));
    bench.restart();
    bench.pass(Duration::from_secs(50));
    let stream = bench.listen(guarded, None);
    bench.pass(Duration::from_secs(600));
    assert!(bench.is_valid(hold));
    bench.close(stream);
    bench.pass(Duration::from_secs(4));
    assert!(!bench.is_valid(hold), "closed by everybody who had it");
    bench.assert_nothing_left();
}

#[test]
fn guarded_work_that_had_not_begun_does_not_keep_its_session() {
    let mut bench = Bench::new();
    let guarded = bench.register(json!({"tether": "connection", "guarded": true}));
    bench.listen(guarded, None);
    bench.restart();
    bench.keeper.handle_exit(bench.now, SessionId(guarded), None);
    bench.settle();
    assert_eq!(bench.keeper.count_sessions(), 0);
}

#[test]
fn what_has_ended_answers_after_a_restart_as_before_it() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let gone = bench.register(json!({"tether": "process"}));
    let leader = |name: &str| json!({"kind": "leader", "name": name, "request": name});
    let lives = bench.hold(session, leader("lives"));
    let released = bench.hold(session, leader("released"));
    bench.release(session, Some(released)).unwrap();
    let mut short = leader("lost");
    short["max_hold_ms"] = json!(5000);
    let lost = bench.hold(session, short);
    let blocked = |name: &str| {
        json!({"kind": "leader", "name": "lives", "request": name, "wait": "block",
            "timeout_ms": 1000})
    };
    let waited = bench.acquire(gone, blocked("waited"));
    bench.pass(Duration::from_secs(6));
    assert_eq!(bench.reply(waited).unwrap().unwrap_err().code(), Code::WaitTimeout);
    bench.release(gone, None).unwrap();
    for _ in 0..3 {
        bench.restart();
        assert_eq!(bench.hold(session, leader("lives")), lives);
        let max_hold = Some(LostReason::MaxHold);
        for (request, hold, how) in [("released", released, None), ("lost", lost, max_hold)] {
            let claims = bench.claims;
            let ticket = bench.acquire(session, leader(request));
            let refusal = bench.reply(ticket).unwrap().unwrap_err();
            assert_eq!(refusal, Refusal::HoldEnded { hold: ClaimId(hold), lost: how });
            assert_eq!(bench.claims, claims, "nothing is granted");
        }
        assert_eq!(bench.release(session, Some(lost)).unwrap_err().code(), Code::HoldLost);
        assert!(!bench.release(session, Some(released)).unwrap());
        let refusal = bench.release(gone, None).unwrap_err();
        assert_eq!(refusal, Refusal::SessionEnded { session: gone, why: "it was released".into() });
        // A log that is written anew has the same.
        let is_end = |key: &Key| matches!(key, Key::EndedHold(_) | Key::EndedSession(_));
        let keys: Vec<_> = bench.keeper.rows().into_iter().filter(is_end).collect();
        let rows: Vec<_> = keys.iter().filter_map(|key| bench.keeper.row(*key)).collect();
        let is_recorded =
            |row: &Entry| bench.remembered.iter().any(|end| *row == Entry::Remembered(end.clone()));
        assert!(rows.iter().all(is_recorded), "{rows:?}");
        assert_eq!(rows.len(), 3, "not the wait, whose session has ended");
    }
    bench.pass(Duration::from_secs(60));
    bench.restart();
    let again = bench.hold(session, leader("released"));
    assert_ne!(again, released, "after a minute the id is a new one");
    assert_eq!(bench.release(gone, None).unwrap_err().code(), Code::SessionUnknown);
    bench.release(session, None).unwrap();
    bench.assert_nothing_left();
}

#[test]
fn a_wait_that_is_taken_up_after_a_restart_is_given_back_if_nobody_reads_of_its_grant() {
    for (is_granted_first, others) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let (mut bench, [holder, session], hold, fields) = wait_over_a_restart();
        if is_granted_first {
            bench.release(holder, Some(hold)).unwrap();
        }
        let callers: Vec<_> =
            (0..=others).map(|_| bench.acquire(session, fields.clone())).collect();
        if !is_granted_first {
            bench.release(holder, Some(hold)).unwrap();
        }
        let mut granted = None;
        for caller in callers {
            let Some(Ok(Reply::Acquired(acquired))) = bench.reply(caller) else { panic!() };
            assert_eq!(*granted.get_or_insert(acquired.hold), acquired.hold);
        }
        bench.undelivered(granted.unwrap());
        assert_eq!(bench.is_valid(granted.unwrap()), others > 0, "read by {others}");
        if others == 0 {
            assert_ne!(bench.hold(session, fields), granted.unwrap());
        }
    }
}
