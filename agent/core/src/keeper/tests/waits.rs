//! Queues, hand-over, preemption.

use std::time::Duration;

use serde_json::json;
use tenure_wire::{Code, Kind, LimitChanged, LostReason};

use super::bench::{ALICE, Bench, Link, lost};
use crate::keeper::{Refusal, Reply, Request};
use crate::model::Resource;

#[test]
fn waiters_of_a_leader_are_served_in_order() {
    let mut bench = Bench::new();
    let holder = bench.register(json!({"tether": "process"}));
    let session = bench.register(json!({"tether": "process"}));
    let hold = bench.hold(holder, json!({"kind": "leader", "name": "x"}));
    let tickets: Vec<_> = (0..5)
        .map(|_| bench.acquire(session, json!({"kind": "leader", "name": "x", "wait": "block"})))
        .collect();
    let mut last_token = bench.token(hold);
    let mut last = (holder, hold);
    for ticket in tickets {
        assert!(bench.reply(ticket).is_none(), "not before its turn");
        bench.release(last.0, Some(last.1)).unwrap();
        match bench.reply(ticket) {
            Some(Ok(Reply::Acquired(acquired))) => {
                assert!(acquired.token > last_token);
                (last, last_token) = ((session, acquired.hold), acquired.token);
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
    let holder = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(session, None);
    for kind in ["semaphore", "leader", "lease"] {
        let hold = bench.hold(holder, json!({"kind": kind, "name": "x"}));
        let ticket = bench.acquire(session, json!({"kind": kind, "name": "x", "wait": "queue"}));
        let waiting = match bench.reply(ticket) {
            Some(Ok(Reply::Waiting(waiting))) => waiting,
            other => panic!("{other:?}"),
        };
        assert_eq!(waiting.position, Some(1));
        bench.release(holder, Some(hold)).unwrap();
        let heard = bench.heard(stream);
        assert!(
            heard.ends_with(&["queued 1".to_owned(), "granted".to_owned()]),
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
    let holder = bench.register(json!({"tether": "process"}));
    for kind in ["semaphore", "leader"] {
        let hold = bench.hold(holder, json!({"kind": kind, "name": "x"}));
        let fields = json!({"kind": kind, "name": "x", "wait": "block", "timeout_ms": 500});
        let ticket = bench.acquire(session, fields);
        bench.pass(Duration::from_millis(499));
        assert!(bench.reply(ticket).is_none());
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.reply(ticket).unwrap().unwrap_err().code(), Code::WaitTimeout);
        bench.release(holder, Some(hold)).unwrap();
        let free = bench.hold(holder, json!({"kind": kind, "name": "x"}));
        bench.release(holder, Some(free)).unwrap();
    }
    bench.release(session, None).unwrap();
    bench.release(holder, None).unwrap();
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
            bench.pass(Duration::from_millis(750));
            for ticket in [first, second] {
                let refusal = bench.reply(ticket).unwrap().unwrap_err();
                assert_eq!(
                    refusal.code(),
                    Code::UpstreamUnavailable,
                    "{link:?} {kind}: {refusal:?}"
                );
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
        let code = |reply: Option<Result<Reply, Refusal>>| reply.unwrap().unwrap_err().code();
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
    assert_eq!(bench.reply(ticket).unwrap().unwrap_err().code(), Code::Contended);
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
fn a_changed_limit_is_told_and_no_limit_is_the_one_in_force() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let permit = |limit: Option<u32>| {
        let mut fields = json!({"kind": "semaphore", "name": "x", "wait": "queue"});
        if let Some(limit) = limit {
            fields["limit"] = json!(limit);
        }
        fields
    };
    let mut ask = |limit| {
        let mut fields = permit(limit);
        fields["wait"] = json!("none");
        let ticket = bench.acquire(session, fields);
        bench.reply(ticket).unwrap()
    };
    let held = |reply| match reply {
        Ok(Reply::Acquired(it)) => (it.limit, it.limit_changed),
        other => panic!("{other:?}"),
    };
    assert_eq!(held(ask(Some(4))), (Some(4), None));
    assert_eq!(held(ask(None)), (Some(4), None));
    assert_eq!(held(ask(Some(5))), (Some(5), Some(LimitChanged { from: 4, to: 5 })));
    let refused = ask(Some(1)).unwrap_err();
    assert_eq!(refused.code(), Code::Contended);
    assert_eq!(refused.limit_changed(), Some(LimitChanged { from: 5, to: 1 }));
    let ticket = bench.acquire(session, permit(Some(2)));
    let Some(Ok(Reply::Waiting(waiting))) = bench.reply(ticket) else { panic!("not waiting") };
    assert_eq!(waiting.limit_changed, Some(LimitChanged { from: 1, to: 2 }));
    let mut patient = permit(Some(1));
    patient["wait"] = json!("block");
    patient["timeout_ms"] = json!(500);
    let ticket = bench.acquire(session, patient);
    bench.pass(Duration::from_secs(1));
    let refused = bench.reply(ticket).unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::WaitTimeout);
    assert_eq!(refused.limit_changed(), Some(LimitChanged { from: 2, to: 1 }));
}

#[test]
fn what_an_agent_does_to_queue_again_changes_no_limit() {
    let mut bench = Bench::new();
    let program = |bench: &mut Bench| bench.register(json!({"tether": "process"}));
    let (one, two) = (program(&mut bench), program(&mut bench));
    let stale = json!({"kind": "semaphore", "name": "x", "wait": "queue", "limit": 1});
    let limit = |bench: &mut Bench| {
        let resource =
            Resource { tenant: "default".into(), kind: Kind::Semaphore, name: "x".into() };
        let ticket = bench.ask(ALICE, Request::Standing(resource));
        let Some(Ok(Reply::Standing(it))) = bench.reply(ticket) else { panic!("no standing") };
        it.limit
    };
    // Its first try fails, and somebody else names another limit meanwhile.
    bench.link = Link::Down;
    bench.acquire(two, stale.clone());
    bench.link = Link::Up;
    let hold = bench.hold(one, json!({"kind": "semaphore", "name": "x", "limit": 3}));
    bench.pass(Duration::from_secs(5));
    assert_eq!(limit(&mut bench), Some(3));
    bench.release(one, Some(hold)).unwrap();
    bench.release(two, None).unwrap();

    // It loses its place in the queue, with and without its agent.
    for restarts in [false, true] {
        let mut bench = Bench::new();
        let (one, two, three) = (program(&mut bench), program(&mut bench), program(&mut bench));
        bench.hold(one, json!({"kind": "semaphore", "name": "x", "limit": 1}));
        bench.acquire(two, stale.clone());
        bench.link = Link::Down;
        bench.pass(Duration::from_secs(40));
        if restarts {
            bench.restart();
        }
        bench.link = Link::Up;
        bench.hold(three, json!({"kind": "semaphore", "name": "x", "limit": 4}));
        bench.pass(Duration::from_secs(20));
        assert_eq!(limit(&mut bench), Some(4));
        let held = bench.page.values().filter(|(_, until, _)| bench.now < *until).count();
        assert_eq!(held, 2, "it has queued again");
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

#[test]
fn trying_once_with_the_request_of_a_wait_is_answered_at_once_and_leaves_the_wait_alone() {
    for kind in ["leader", "semaphore"] {
        for wait in ["block", "queue"] {
            let mut bench = Bench::new();
            let holder = bench.register(json!({"tether": "process", "name": "holder"}));
            let session = bench.register(json!({"tether": "process"}));
            let stream = bench.listen(session, None);
            bench.hold(holder, json!({"kind": kind, "name": "x"}));
            let fields = json!({"kind": kind, "name": "x", "wait": wait, "request": "R", "timeout_ms": 2000});
            let waiting = bench.acquire(session, fields);
            let once = bench.acquire(session, json!({"kind": kind, "name": "x", "request": "R"}));
            let refusal = bench.reply(once).unwrap().unwrap_err();
            assert_eq!(refusal.code(), Code::Contended, "{kind} {wait}");
            assert_eq!(refusal.holder().unwrap().name, "holder");
            // A second caller that blocks without a limit of its own shares the first one's.
            let fields = json!({"kind": kind, "name": "x", "wait": "block", "request": "R"});
            let second = (wait == "block").then(|| bench.acquire(session, fields));
            bench.pass(Duration::from_millis(1999));
            assert!(!bench.heard(stream).contains(&"released".to_owned()), "{kind} {wait}");
            bench.pass(Duration::from_millis(1));
            assert!(bench.heard(stream).contains(&"released".to_owned()), "{kind} {wait}");
            if let Some(second) = second {
                for ticket in [waiting, second] {
                    let refused = bench.reply(ticket).unwrap().unwrap_err();
                    assert_eq!(refused.code(), Code::WaitTimeout);
                    assert!(refused.holder().is_some(), "{kind}: it names who has it");
                }
            }
        }
    }
}

#[test]
fn trying_once_overtakes_no_master_in_line_of_the_same_priority() {
    let mut bench = Bench::new();
    let mut session = || bench.register(json!({"tether": "process", "project": "p"}));
    let (holder, waiter, rival) = (session(), session(), session());
    let master =
        |priority: i32, wait: &str| json!({"kind": "master", "priority": priority, "wait": wait});
    let hold = bench.hold(holder, master(5, "none"));
    let waiting = bench.acquire(waiter, master(5, "block"));
    // It is free upstream, and nobody here has heard of that.
    let resource = crate::model::Resource {
        tenant: "default".into(),
        kind: tenure_wire::Kind::Master,
        name: "p".into(),
    };
    let release = crate::model::Request::Release { claim: crate::model::ClaimId(hold), resource };
    let now = bench.now;
    bench.engine.handle(now, release);
    let once = bench.acquire(rival, master(5, "none"));
    assert_eq!(bench.reply(once).unwrap().unwrap_err().code(), Code::Contended);
    assert!(matches!(bench.reply(waiting), Some(Ok(Reply::Acquired(_)))), "the waiter is first");
    let higher = bench.acquire(rival, master(6, "none"));
    assert!(matches!(bench.reply(higher), Some(Ok(Reply::Acquired(_)))), "a higher one may");
}

#[test]
fn waiters_of_a_quarantine_are_told_their_places_and_served_in_order() {
    for kind in ["semaphore", "leader"] {
        let mut bench = Bench::new();
        let until = bench.now + Duration::from_secs(20);
        bench.engine.quarantine(until);
        let sessions: Vec<_> =
            (0..8).map(|_| bench.register(json!({"tether": "process"}))).collect();
        let mut waiting = Vec::new();
        for (place, session) in (1..).zip(&sessions) {
            let ticket =
                bench.acquire(*session, json!({"kind": kind, "name": "x", "wait": "queue"}));
            let Some(Ok(Reply::Waiting(it))) = bench.reply(ticket) else { panic!("{kind}") };
            assert_eq!(it.position, Some(place), "{kind}");
            waiting.push(it.hold);
        }
        let once = bench.acquire(sessions[0], json!({"kind": kind, "name": "y"}));
        assert_eq!(bench.reply(once).unwrap().unwrap_err().code(), Code::UpstreamUnavailable);
        let resource =
            Resource { tenant: "default".into(), kind: kind.parse().unwrap(), name: "x".into() };
        let standing = bench.ask(ALICE, Request::Standing(resource));
        let Some(Ok(Reply::Standing(standing))) = bench.reply(standing) else { panic!("{kind}") };
        assert_eq!(standing.waiters.len(), 8, "{kind}");
        bench.pass(Duration::from_secs(21));
        for (session, hold) in sessions.into_iter().zip(waiting) {
            assert!(bench.is_valid(hold), "{kind}: not in order");
            bench.release(session, Some(hold)).unwrap();
            bench.pass(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_wait_whose_time_is_over_ends_soon_though_nobody_says_who_has_it() {
    let mut bench = Bench::new();
    let fields = json!({"kind": "leader", "name": "x"});
    let holder = bench.register(json!({"tether": "process"}));
    bench.hold(holder, fields.clone());
    let session = bench.register(json!({"tether": "process"}));
    let wait = json!({"kind": "leader", "name": "x", "wait": "block", "timeout_ms": 2000});
    let ticket = bench.acquire(session, wait);
    bench.pass(Duration::from_millis(1999));
    bench.link = Link::Hung;
    bench.pass(Duration::from_millis(251));
    let refused = bench.reply(ticket).expect("it is over").unwrap_err();
    assert_eq!(refused.code(), Code::WaitTimeout);
    assert!(refused.holder().is_none());
}
