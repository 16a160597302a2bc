//! Queues, hand-over, preemption.

use std::time::Duration;

use serde_json::json;
use tenure::wire::{Code, LostReason, Problem};

use super::bench::{Bench, Link, lost};
use crate::keeper::Reply;

#[test]
fn waiters_of_a_leader_are_served_in_order() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let mut hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    let tickets: Vec<_> = (0..5)
        .map(|_| bench.acquire(session, json!({"kind": "leader", "name": "x", "wait": "block"})))
        .collect();
    let mut last_token = bench.token(hold);
    for ticket in tickets {
        assert!(bench.reply(ticket).is_none(), "not before its turn");
        bench.release(session, Some(hold)).unwrap();
        match bench.reply(ticket) {
            Some(Ok(Reply::Acquired(acquired))) => {
                assert!(acquired.token > last_token);
                (hold, last_token) = (acquired.hold, acquired.token);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn fifty_waiters_of_a_semaphore_are_served_in_order_at_once() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let mut hold = bench.hold(session, json!({"kind": "semaphore", "name": "x", "limit": 1}));
    let tickets: Vec<_> = (0..50)
        .map(|_| bench.acquire(session, json!({"kind": "semaphore", "name": "x", "wait": "block"})))
        .collect();
    for ticket in tickets {
        assert!(bench.reply(ticket).is_none());
        bench.release(session, Some(hold)).unwrap();
        match bench.reply(ticket) {
            Some(Ok(Reply::Acquired(acquired))) => hold = acquired.hold,
            other => panic!("{other:?}"),
        }
    }
    bench.release(session, None).unwrap();
    bench.assert_nothing_left();
}

#[test]
fn a_waiter_that_dies_at_the_head_is_passed_over() {
    let mut bench = Bench::new();
    let holder = bench.register(json!({"tether": "process"}));
    let dying = bench.register(json!({"tether": "process"}));
    let next = bench.register(json!({"tether": "process"}));
    for kind in ["semaphore", "leader", "lease"] {
        let hold = bench.hold(holder, json!({"kind": kind, "name": kind}));
        let head = bench.acquire(dying, json!({"kind": kind, "name": kind, "wait": "block"}));
        let second = bench.acquire(next, json!({"kind": kind, "name": kind, "wait": "block"}));
        bench.keeper.handle_cancel(bench.now, head);
        bench.settle();
        bench.release(holder, Some(hold)).unwrap();
        assert!(matches!(bench.reply(second), Some(Ok(Reply::Acquired(_)))), "{kind}");
    }
    bench.keeper.handle_exit(bench.now, crate::model::SessionId(dying), Some(137));
    bench.settle();
    assert_eq!(bench.keeper.count_sessions(), 2);
}

#[test]
fn a_grant_that_nobody_has_read_is_released() {
    for wait in ["none", "block"] {
        let mut bench = Bench::new();
        let gone = bench.register(json!({"tether": "process"}));
        let next = bench.register(json!({"tether": "process"}));
        let fields = json!({"kind": "leader", "name": "x", "wait": wait, "request": "r"});
        let hold = bench.hold(gone, fields.clone());
        let waiting = bench.acquire(next, json!({"kind": "leader", "name": "x", "wait": "block"}));
        bench.undelivered(hold);
        let Some(Ok(Reply::Acquired(acquired))) = bench.reply(waiting) else { panic!("{wait}") };
        assert!(!bench.is_valid(hold));
        bench.release(next, Some(acquired.hold)).unwrap();
        assert_ne!(bench.hold(gone, fields), hold, "nobody has heard of the first one");
    }
}

#[test]
fn a_grant_that_somebody_has_read_stays() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let fields = json!({"kind": "leader", "name": "x", "request": "r"});
    let hold = bench.hold(session, fields.clone());
    assert_eq!(bench.hold(session, fields.clone()), hold);
    bench.undelivered(hold);
    assert!(bench.is_valid(hold), "two were told, and one has read it");
    bench.restart();
    assert_eq!(bench.hold(session, fields), hold);
    bench.undelivered(hold);
    assert!(bench.is_valid(hold), "the earlier agent told it to somebody");

    let mut fields = json!({"kind": "leader", "name": "y", "wait": "queue", "request": "q"});
    let ticket = bench.acquire(session, fields.clone());
    let Some(Ok(Reply::Waiting(queued))) = bench.reply(ticket) else { panic!() };
    fields["wait"] = json!("block");
    assert_eq!(bench.hold(session, fields), queued.hold);
    bench.undelivered(queued.hold);
    assert!(bench.is_valid(queued.hold), "its grant was told by an event");
}

#[test]
fn a_queued_wait_is_answered_at_once_and_told_by_events() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(session, None);
    for kind in ["semaphore", "leader", "lease"] {
        let hold = bench.hold(session, json!({"kind": kind, "name": "x"}));
        let ticket = bench.acquire(session, json!({"kind": kind, "name": "x", "wait": "queue"}));
        let waiting = match bench.reply(ticket) {
            Some(Ok(Reply::Waiting(waiting))) => waiting,
            other => panic!("{other:?}"),
        };
        assert_eq!(waiting.position, Some(1));
        bench.release(session, Some(hold)).unwrap();
        let heard = bench.heard(stream);
        assert!(
            heard.ends_with(&[
                "granted".to_owned(),
                "queued 1".to_owned(),
                "released".to_owned(),
                "granted".to_owned()
            ]),
            "{kind}: {heard:?}"
        );
        bench.release(session, Some(waiting.hold)).unwrap();
        bench.heard(stream);
    }
}

#[test]
fn a_wait_ends_at_its_timeout_and_leaves_nothing() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    for kind in ["semaphore", "leader"] {
        let hold = bench.hold(session, json!({"kind": kind, "name": "x"}));
        let fields = json!({"kind": kind, "name": "x", "wait": "block", "timeout_ms": 500});
        let ticket = bench.acquire(session, fields);
        bench.pass(Duration::from_millis(499));
        assert!(bench.reply(ticket).is_none());
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.reply(ticket).unwrap().unwrap_err().code, Code::WaitTimeout);
        bench.release(session, Some(hold)).unwrap();
        let free = bench.hold(session, json!({"kind": kind, "name": "x"}));
        bench.release(session, Some(free)).unwrap();
    }
    bench.release(session, None).unwrap();
    bench.assert_nothing_left();
}

#[test]
fn a_wait_in_which_the_upstream_never_answered_does_not_say_that_it_is_taken() {
    for link in [Link::Down, Link::RepliesLost, Link::Hung] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        for kind in ["semaphore", "leader"] {
            bench.set_link(link);
            let fields = json!({"kind": kind, "name": "x", "wait": "block", "timeout_ms": 500});
            let (first, second) =
                (bench.acquire(session, fields.clone()), bench.acquire(session, fields));
            bench.pass(Duration::from_millis(500));
            for ticket in [first, second] {
                let problem = bench.reply(ticket).unwrap().unwrap_err();
                assert_eq!(problem.code, Code::UpstreamUnavailable, "{link:?} {kind}: {problem}");
            }
            bench.set_link(Link::Up);
        }
        bench.release(session, None).unwrap();
        bench.assert_nothing_left();
    }
}

#[test]
fn a_wait_that_was_once_told_of_a_holder_ends_as_taken_though_the_upstream_is_away() {
    let mut bench = Bench::new();
    let holder = bench.register(json!({"tether": "process"}));
    let session = bench.register(json!({"tether": "process"}));
    for kind in ["semaphore", "leader"] {
        let hold = bench.hold(holder, json!({"kind": kind, "name": "x"}));
        let fields = json!({"kind": kind, "name": "x", "wait": "block", "timeout_ms": 500});
        let before = bench.acquire(session, fields.clone());
        bench.set_link(Link::Down);
        bench.pass(Duration::from_millis(1));
        let after = bench.acquire(session, fields);
        bench.pass(Duration::from_millis(500));
        let code = |reply: Option<Result<Reply, Box<Problem>>>| reply.unwrap().unwrap_err().code;
        assert_eq!(code(bench.reply(before)), Code::WaitTimeout);
        assert_eq!(code(bench.reply(after)), Code::UpstreamUnavailable);
        bench.set_link(Link::Up);
        bench.release(holder, Some(hold)).unwrap();
    }
}

#[test]
fn a_higher_priority_preempts_and_the_loser_is_told() {
    let mut bench = Bench::new();
    let low = bench.register(json!({"tether": "process", "project": "p"}));
    let stream = bench.listen(low, None);
    bench.hold(low, json!({"kind": "master"}));
    let high =
        bench.register(json!({"tether": "process", "project": "p", "surface": "claude_desktop"}));
    bench.hold(high, json!({"kind": "master"}));
    assert!(bench.heard(stream).contains(&lost(LostReason::Preempted)));
    let ticket = bench.acquire(low, json!({"kind": "master"}));
    assert_eq!(bench.reply(ticket).unwrap().unwrap_err().code, Code::Contended);
}

#[test]
fn a_raised_limit_grants_to_waiters_at_once() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    bench.hold(session, json!({"kind": "semaphore", "name": "x", "limit": 1}));
    let waiting = bench
        .acquire(session, json!({"kind": "semaphore", "name": "x", "limit": 1, "wait": "block"}));
    assert!(bench.reply(waiting).is_none());
    let third = bench
        .acquire(session, json!({"kind": "semaphore", "name": "x", "limit": 3, "wait": "block"}));
    for ticket in [waiting, third] {
        match bench.reply(ticket) {
            Some(Ok(Reply::Acquired(acquired))) => assert_eq!(acquired.limit, Some(3)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_wait_survives_an_upstream_that_is_down() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    bench.link = Link::Down;
    let leader = bench.acquire(session, json!({"kind": "leader", "name": "x", "wait": "block"}));
    let permit = bench.acquire(session, json!({"kind": "semaphore", "name": "x", "wait": "block"}));
    bench.pass(Duration::from_secs(20));
    assert!(bench.reply(leader).is_none() && bench.reply(permit).is_none());
    bench.link = Link::Up;
    bench.pass(Duration::from_secs(3));
    assert!(matches!(bench.reply(leader), Some(Ok(Reply::Acquired(_)))));
    assert!(matches!(bench.reply(permit), Some(Ok(Reply::Acquired(_)))));
}
