//! Grants, renewals, danger, loss.

use std::time::Duration;

use serde_json::json;
use tenure_wire::{Code, Kind, LostReason, Register};

use super::bench::{ALICE, Bench, Link, MALLORY, lost};
use crate::keeper::{Refusal, Reply, Request, Settings};
use crate::model::Resource;

#[test]
fn a_hold_is_renewed_for_as_long_as_its_session_lives() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    for _ in 0..100 {
        bench.pass(Duration::from_secs(10));
        assert!(bench.is_valid(hold));
    }
    assert!(bench.release(session, Some(hold)).unwrap());
    assert!(!bench.is_valid(hold));
    assert!(!bench.release(session, Some(hold)).unwrap(), "there is nothing left to give back");
    bench.release(session, None).unwrap();
    bench.assert_nothing_left();
}

#[test]
fn an_exclusive_resource_is_contended_by_the_same_session_at_once_however_it_waits() {
    for kind in ["leader", "lease", "master"] {
        let mut bench = Bench::new();
        let mut fields = json!({"kind": kind});
        if kind != "master" {
            fields["name"] = json!("x");
        }
        let other = bench.register(json!({"project": "p"}));
        let in_the_way = bench.hold(other, fields.clone());
        let session = bench.register(json!({"name": "one", "project": "p"}));
        let mut queued = fields.clone();
        queued["wait"] = json!("queue");
        // Two wait, and one of them is granted: the session stands behind its own hold.
        for _ in 0..2 {
            let ticket = bench.acquire(session, queued.clone());
            assert!(matches!(bench.reply(ticket), Some(Ok(Reply::Waiting(_)))), "{kind}");
        }
        bench.release(other, Some(in_the_way)).unwrap();
        let held: Vec<_> =
            bench.page.iter().filter(|(_, (_, until, _))| bench.now < *until).collect();
        let [(hold, _)] = held[..] else { panic!("{kind}: {held:?}") };
        let hold = hold.0;
        // It is known here, whatever the upstream could say.
        for link in [Link::Up, Link::Down] {
            bench.link = link;
            for wait in ["none", "block", "queue"] {
                let mut fields = fields.clone();
                fields["wait"] = json!(wait);
                let ticket = bench.acquire(session, fields);
                let refusal = bench.reply(ticket).unwrap().unwrap_err();
                assert_eq!(refusal.code(), Code::Contended, "{kind} {wait}");
                let holder = refusal.holder().unwrap();
                assert_eq!((holder.name.as_str(), holder.pid), ("one", Some(5000)));
                assert_eq!(holder.hold, Some(hold));
            }
        }
        bench.link = Link::Up;
        bench.release(session, Some(hold)).unwrap();
        let valid = bench.page.values().filter(|(_, until, _)| bench.now < *until).count();
        assert_eq!(valid, 1, "the other wait of the session has its turn");
    }
}

#[test]
fn a_session_waits_in_turn_behind_its_own_hold_if_it_asks_for_that() {
    for kind in ["leader", "lease", "master"] {
        let mut bench = Bench::new();
        let mut fields = json!({"kind": kind});
        if kind != "master" {
            fields["name"] = json!("x");
        }
        let session = bench.register(json!({"tether": "process", "project": "p"}));
        let other = bench.register(json!({"tether": "process", "project": "p"}));
        let mut held = (session, bench.hold(session, fields.clone()));
        fields["wait"] = json!("block");
        fields["behind_own"] = json!(true);
        // Waits of another session have their places between them.
        let askers = [session, session, other, session, other, session];
        let tickets = askers.map(|asker| (asker, bench.acquire(asker, fields.clone())));
        let mut last_token = bench.token(held.1);
        for (asker, ticket) in tickets {
            assert!(bench.reply(ticket).is_none(), "{kind}: not before its turn");
            bench.release(held.0, Some(held.1)).unwrap();
            let Some(Ok(Reply::Acquired(acquired))) = bench.reply(ticket) else { panic!("{kind}") };
            assert!(acquired.token > last_token, "{kind}");
            (held, last_token) = ((asker, acquired.hold), acquired.token);
        }
        // A hold that is lost lets the next one in, too, and a wait that is cancelled leaves no place.
        let cancelled = bench.acquire(session, fields.clone());
        let next = bench.acquire(session, fields.clone());
        bench.keeper.handle_cancel(bench.now, cancelled);
        bench.settle();
        bench.release(held.0, Some(held.1)).unwrap();
        let Some(Ok(Reply::Acquired(acquired))) = bench.reply(next) else { panic!("{kind}") };
        bench.release(session, Some(acquired.hold)).unwrap();
        for session in [session, other] {
            bench.release(session, None).unwrap();
        }
        bench.assert_nothing_left();
    }
}

#[test]
fn a_wait_behind_an_own_hold_outlives_a_restart_and_ends_in_time() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "keepalive", "keepalive_ms": 600_000}));
    let fields = json!({"kind": "leader", "name": "x", "ttl_ms": 600_000});
    let hold = bench.hold(session, fields.clone());
    let mut waiting = fields.clone();
    for (field, value) in [("wait", json!("queue")), ("behind_own", json!(true))] {
        waiting[field] = value;
    }
    let mut first = waiting.clone();
    first["timeout_ms"] = json!(5000);
    let ticket = bench.acquire(session, first);
    assert!(matches!(bench.reply(ticket), Some(Ok(Reply::Waiting(_)))));
    let ticket = bench.acquire(session, waiting);
    let Some(Ok(Reply::Waiting(second))) = bench.reply(ticket) else { panic!() };
    bench.restart();
    assert!(bench.is_valid(hold));
    bench.pass(Duration::from_secs(6));
    assert!(!bench.is_valid(second.hold));
    bench.release(session, Some(hold)).unwrap();
    assert!(bench.is_valid(second.hold), "the first one has given up");
}

#[test]
fn a_holder_is_named_by_its_hold_to_its_own_user_alone() {
    let mut bench = Bench::new();
    let alices = bench.register(json!({}));
    let hold = bench.hold(alices, json!({"kind": "leader", "name": "x"}));
    let agent = Settings::default().agent_uid;
    let root = 0;
    for (uid, seen) in [(ALICE, true), (MALLORY, false), (root, true), (agent, true)] {
        let resource = Resource { tenant: "default".into(), kind: Kind::Leader, name: "x".into() };
        let ticket = bench.ask(uid, Request::Standing(resource));
        let Some(Ok(Reply::Standing(standing))) = bench.reply(ticket) else { panic!("{uid}") };
        assert_eq!(standing.holders[0].hold, seen.then_some(hold), "standing for {uid}");
    }

    let refused = |bench: &mut Bench, uid| {
        let ticket = bench.ask(uid, Request::Register(Register::default(), Default::default()));
        let Some(Ok(Reply::Registered { session, .. })) = bench.reply(ticket) else { panic!() };
        let fields = json!({"session": session, "kind": "leader", "name": "x"});
        let ticket = bench.ask(uid, Request::Acquire(serde_json::from_value(fields).unwrap()));
        bench.reply(ticket).unwrap().unwrap_err().holder().unwrap().hold
    };
    // Refused by the upstream; then, behind a waiter, by the queue of this agent.
    for _ in 0..2 {
        for (uid, seen) in [(ALICE, true), (MALLORY, false), (root, false)] {
            assert_eq!(refused(&mut bench, uid), seen.then_some(hold), "contended for {uid}");
        }
        bench.acquire(alices, json!({"kind": "leader", "name": "x", "wait": "queue"}));
    }
}

#[test]
fn a_beat_that_fails_among_others_endangers_its_own_hold_alone() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let [locked, beside] = ["locked", "beside"]
        .map(|name| bench.hold(session, json!({"kind": "leader", "name": name})));
    let stream = bench.listen(session, None);
    assert_eq!(bench.heard(stream), ["snapshot"]);
    bench.link = Link::LocksOne;
    bench.pass(Duration::from_secs(12));
    assert_eq!(bench.heard(stream), ["jeopardy"]);
    bench.link = Link::Up;
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.heard(stream), ["safe"]);
    bench.link = Link::LocksOne;
    bench.pass(Duration::from_secs(31));
    assert_eq!(bench.heard(stream), ["jeopardy".to_owned(), lost(LostReason::Expired)]);
    assert!(!bench.is_valid(locked) && bench.is_valid(beside));
}

#[test]
fn a_failed_renewal_is_danger_and_not_loss_until_valid_until() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(session, None);
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    bench.link = Link::Down;
    bench.pass(Duration::from_secs(12));
    assert_eq!(bench.heard(stream), ["snapshot", "granted", "jeopardy"]);
    assert!(bench.is_valid(hold));
    bench.link = Link::Up;
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.heard(stream), ["safe"]);
    bench.link = Link::Down;
    bench.pass(Duration::from_secs(31));
    assert_eq!(bench.heard(stream), ["jeopardy".to_owned(), lost(LostReason::Expired)]);
    assert!(!bench.is_valid(hold));
    let refusal = bench.release(session, Some(hold)).unwrap_err();
    assert_eq!(refusal.code(), Code::HoldLost, "lost stays lost");
}

#[test]
fn valid_until_counts_from_the_sending_and_not_from_the_answer() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let ttl = Duration::from_secs(30);
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x", "ttl_ms": 30_000}));
    let before = bench.page[&crate::model::ClaimId(hold)].1;
    assert!(before <= bench.now + (ttl - ttl / 200 - Duration::from_millis(10)));
    bench.link = Link::Hung;
    bench.pass(Duration::from_secs(20));
    let sent_by = bench.now;
    bench.set_link(Link::Up);
    let after = bench.page[&crate::model::ClaimId(hold)].1;
    assert!(after > before && after < sent_by + Duration::from_secs(20));
}

#[test]
fn a_program_that_breaks_its_promise_loses_what_it_holds() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process", "progress_ms": 1000}));
    let other = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(session, None);
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    for _ in 0..5 {
        bench.pass(Duration::from_millis(900));
        bench.ask(super::bench::ALICE, Request::Beat(session));
    }
    assert!(bench.is_valid(hold));
    bench.pass(Duration::from_millis(1001));
    assert_eq!(
        bench.heard(stream),
        ["snapshot".to_owned(), "granted".to_owned(), lost(LostReason::Stalled)]
    );
    bench.hold(other, json!({"kind": "leader", "name": "x"}));
}

#[test]
fn a_hold_lasts_as_long_as_it_may_and_not_longer() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(session, None);
    let hold =
        bench.hold(session, json!({"kind": "semaphore", "name": "x", "max_hold_ms": 45_000}));
    bench.pass(Duration::from_secs(44));
    assert!(bench.is_valid(hold));
    bench.pass(Duration::from_secs(1));
    assert!(!bench.is_valid(hold));
    assert_eq!(bench.heard(stream).last(), Some(&lost(LostReason::MaxHold)));
    bench.hold(session, json!({"kind": "semaphore", "name": "x"}));
}

#[test]
fn the_same_request_id_is_the_same_hold() {
    let mut bench = Bench::new();
    let session = bench.register(json!({}));
    let fields = json!({"kind": "leader", "name": "x", "request": "r1"});
    let hold = bench.hold(session, fields.clone());
    assert_eq!(bench.hold(session, fields.clone()), hold);
    bench.release(session, Some(hold)).unwrap();
    let ticket = bench.acquire(session, fields);
    assert_eq!(bench.reply(ticket).unwrap().unwrap_err().code(), Code::HoldLost);
    let ticket = bench.acquire(session, json!({"kind": "leader", "name": "y", "request": "r1"}));
    let again = bench.reply(ticket).unwrap().unwrap_err().code();
    assert_eq!(again, Code::HoldLost, "remembered");
}

#[test]
fn an_unknown_acquire_leaves_nothing_held_behind() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    bench.link = Link::RepliesLost;
    let ticket = bench.acquire(session, json!({"kind": "leader", "name": "x"}));
    assert_eq!(bench.reply(ticket).unwrap().unwrap_err().code(), Code::UpstreamUnavailable);
    bench.link = Link::Up;
    bench.pass(Duration::from_secs(1));
    bench.hold(session, json!({"kind": "leader", "name": "x"}));
}

#[test]
fn a_checkpoint_renews_now_and_says_how_things_are() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process", "project": "p"}));
    let hold = bench.hold(session, json!({"kind": "master"}));
    bench.pass(Duration::from_secs(5));
    let ticket = bench.ask(super::bench::ALICE, Request::Checkpoint(session));
    match bench.reply(ticket) {
        Some(Ok(Reply::Checkpointed(done))) => {
            assert_eq!(done.role, tenure_wire::Role::Master);
            assert_eq!((done.holds.len(), done.holds[0].hold), (1, hold));
            assert!(done.holds[0].valid_ms > 89_000);
        }
        other => panic!("{other:?}"),
    }
    bench.link = Link::Down;
    let ticket = bench.ask(super::bench::ALICE, Request::Checkpoint(session));
    assert_eq!(bench.reply(ticket).unwrap().unwrap_err().code(), Code::UpstreamUnavailable);
    assert!(bench.is_valid(hold));
}

#[test]
fn another_user_finds_no_such_session() {
    let mut bench = Bench::new();
    let session = bench.register(json!({}));
    for request in [
        Request::Beat(session),
        Request::Checkpoint(session),
        Request::Release(tenure_wire::Release {
            session,
            hold: None,
            exit_status: None,
            stopped: None,
        }),
        Request::Lookup(session),
    ] {
        let ticket = bench.ask(super::bench::MALLORY, request);
        let refusal = bench.reply(ticket).unwrap().unwrap_err();
        assert_eq!(refusal.code(), Code::SessionUnknown);
    }
    let ticket =
        bench.ask(super::bench::MALLORY, Request::Status(crate::keeper::StatusPage::first(100)));
    match bench.reply(ticket) {
        Some(Ok(Reply::Status(view))) => assert!(view.visible.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sleep_loses_overdue_holds_for_that_reason() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(session, None);
    bench.hold(session, json!({"kind": "leader", "name": "x"}));
    bench.now = bench.now + Duration::from_secs(3600);
    bench.keeper.handle_wake(bench.now, Duration::from_secs(3590));
    bench.pass(Duration::ZERO);
    assert_eq!(bench.heard(stream).last(), Some(&lost(LostReason::Slept)));
}

#[test]
fn a_checkpoint_waits_for_the_answer_to_the_beat_that_is_on_its_way() {
    for announced in [false, true] {
        let mut bench = Bench::new();
        let fields = if announced { json!({"project": "p"}) } else { json!({}) };
        let session = bench.register(fields);
        bench.hold(session, json!({"kind": "leader", "name": "x", "ttl_ms": 30_000}));
        bench.link = Link::Hung;
        let first = bench.ask(ALICE, Request::Checkpoint(session));
        // Other calls are answered meanwhile, which says nothing of the beat.
        bench.link = Link::Up;
        let second = bench.ask(ALICE, Request::Checkpoint(session));
        assert!(bench.reply(first).is_none() && bench.reply(second).is_none());
        bench.set_link(Link::Up);
        for ticket in [first, second] {
            assert!(matches!(bench.reply(ticket), Some(Ok(Reply::Checkpointed(_)))));
        }
        bench.release(session, None).unwrap();
        bench.assert_nothing_left();
    }
}

#[test]
fn a_checkpoint_of_what_is_not_upstream_asks_it_all_the_same() {
    let mut bench = Bench::new();
    let session = bench.register(json!({}));
    bench.link = Link::Down;
    let ticket = bench.ask(ALICE, Request::Checkpoint(session));
    let refusal = bench.reply(ticket).unwrap().unwrap_err();
    assert_eq!(refusal.code(), tenure_wire::Code::UpstreamUnavailable);
    bench.link = Link::Up;
    let ticket = bench.ask(ALICE, Request::Checkpoint(session));
    assert!(matches!(bench.reply(ticket), Some(Ok(Reply::Checkpointed(_)))));
}

#[test]
fn a_grant_whose_longest_time_was_over_before_it_was_heard_of_is_given_back() {
    for wait in ["none", "block", "queue"] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        let stream = bench.listen(session, None);
        bench.heard(stream);
        bench.link = Link::Hung;
        let fields = json!({"kind": "leader", "name": "x", "wait": wait, "max_hold_ms": 100});
        let ticket = bench.acquire(session, fields);
        bench.now = bench.now + Duration::from_millis(200);
        bench.set_link(Link::Up);
        match (wait, bench.reply(ticket)) {
            ("queue", Some(Ok(Reply::Waiting(_)))) => {}
            (_, Some(Err(refusal))) => {
                assert!(matches!(refusal, Refusal::GrantedTooLate { .. }), "{refusal:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(!bench.heard(stream).contains(&"granted".to_owned()), "{wait}");
        bench.pass(Duration::from_millis(10));
        let other = bench.register(json!({"tether": "process"}));
        bench.hold(other, json!({"kind": "leader", "name": "x"}));
    }
}
