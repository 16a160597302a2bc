//! Tethers, guarded work, stops.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tenure_wire::{EndedCommand, Kind, Leftovers, LostReason, Revoked};

use super::bench::{ALICE, Bench, Link, MALLORY, lost};
use crate::keeper::{Refusal, Reply, Request, StatusPage, StreamEnd};
use crate::model::{Resource, SessionId};
use crate::time::Boottime;

#[test]
fn a_keepalive_tether_ends_at_its_deadline() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"keepalive_ms": 1000}));
    let stream = bench.listen(session, None);
    bench.hold(session, json!({"kind": "leader", "name": "x"}));
    bench.pass(Duration::from_millis(900));
    bench.ask(ALICE, Request::Beat(session));
    bench.pass(Duration::from_millis(999));
    assert_eq!(bench.keeper.count_sessions(), 1);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.heard(stream), ["snapshot", "granted", "released"]);
    assert_eq!(bench.ended.get(&stream), Some(&StreamEnd::SessionEnded));
    let ticket = bench.ask(ALICE, Request::Beat(session));
    let refusal = bench.reply(ticket).unwrap().unwrap_err();
    assert_eq!(refusal.code(), tenure_wire::Code::SessionLost);
    bench.assert_nothing_left();
}

#[test]
fn what_a_command_left_behind_is_told_to_its_user_and_to_the_history() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    bench.hold(session, json!({"kind": "leader", "name": "x"}));
    let processes = BTreeMap::from([(4711, "sleep".to_owned())]);
    let leftovers =
        Leftovers { session, exit_status: Some(3), processes: processes.clone(), more: 2 };
    let ticket = bench.ask(MALLORY, Request::Leftovers(leftovers.clone()));
    let refusal = bench.reply(ticket).unwrap().unwrap_err();
    assert_eq!(refusal.code(), tenure_wire::Code::SessionUnknown);

    let told = |bench: &mut Bench| {
        let ticket = bench.ask(ALICE, Request::Status(StatusPage { after: None, limit: 10 }));
        match bench.reply(ticket) {
            Some(Ok(Reply::Status(view))) => view.visible[0].ended_command.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(&mut bench), None);
    bench.ask(ALICE, Request::Leftovers(leftovers));
    bench.pass(Duration::from_secs(90));
    let ended =
        EndedCommand { ended_ms: 90_000, exit_status: Some(3), leftovers: processes, more: 2 };
    assert_eq!(told(&mut bench), Some(ended));

    bench.release(session, None).unwrap();
    let resource = Resource { tenant: "default".into(), kind: Kind::Leader, name: "x".into() };
    bench.pass(Duration::from_secs(1));
    let ticket = bench.ask(ALICE, Request::History(resource));
    let Some(Ok(Reply::History(changes))) = bench.reply(ticket) else { panic!("no history") };
    let end = &changes[0].end;
    let detail =
        "it was released; its command ended 1m30s before, and what that left behind kept the hold";
    assert_eq!((end.detail.as_deref(), end.exit_status), (Some(detail), Some(3)));
}

#[test]
fn a_caller_that_blocks_keeps_its_keepalive_session_alive() {
    let mut bench = Bench::new();
    let holder = bench.register(json!({"tether": "process"}));
    bench.hold(holder, json!({"kind": "leader", "name": "x"}));
    let session = bench.register(json!({"keepalive_ms": 1000}));
    let fields = json!({"kind": "leader", "name": "x", "wait": "block", "timeout_ms": 60_000});
    let ticket = bench.acquire(session, fields);
    bench.pass(Duration::from_secs(59));
    assert!(bench.reply(ticket).is_none());
    bench.release(holder, None).unwrap();
    assert!(matches!(bench.reply(ticket), Some(Ok(Reply::Acquired(_)))));
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.keeper.count_sessions(), 0);
}

#[test]
fn a_caller_that_blocks_does_not_keep_what_its_program_holds() {
    for queued in [false, true] {
        let mut bench = Bench::new();
        let other = bench.register(json!({"tether": "process"}));
        let blocker = bench.hold(other, json!({"kind": "leader", "name": "later"}));
        bench.hold(other, json!({"kind": "leader", "name": "busy"}));
        let session = bench.register(json!({"keepalive_ms": 1000}));
        if queued {
            bench.acquire(session, json!({"kind": "leader", "name": "later", "wait": "queue"}));
        } else {
            bench.hold(session, json!({"kind": "leader", "name": "mine"}));
        }
        let busy = json!({"kind": "leader", "name": "busy", "wait": "block"});
        let waiting = bench.acquire(session, busy);
        if queued {
            bench.pass(Duration::from_secs(60));
            assert_eq!(bench.keeper.count_sessions(), 2, "it only waits");
            bench.release(other, Some(blocker)).unwrap();
        }
        bench.pass(Duration::from_millis(900));
        bench.ask(ALICE, Request::Beat(session));
        bench.pass(Duration::from_millis(999));
        assert_eq!(bench.keeper.count_sessions(), 2, "it beats");
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.keeper.count_sessions(), 1, "queued: {queued}");
        let refusal = bench.reply(waiting).unwrap().unwrap_err();
        assert_eq!(refusal.code(), tenure_wire::Code::SessionLost);
    }
}

#[test]
fn a_caller_that_blocks_and_has_lost_what_it_held_may_go_on_waiting() {
    let mut bench = Bench::new();
    let other = bench.register(json!({"tether": "process"}));
    bench.hold(other, json!({"kind": "leader", "name": "busy"}));
    let session = bench.register(json!({"keepalive_ms": 1000}));
    let hold = bench.hold(session, json!({"kind": "leader", "name": "mine"}));
    let waiting =
        bench.acquire(session, json!({"kind": "leader", "name": "busy", "wait": "block"}));
    bench.release(session, Some(hold)).unwrap();
    bench.pass(Duration::from_secs(60));
    bench.release(other, None).unwrap();
    assert!(matches!(bench.reply(waiting), Some(Ok(Reply::Acquired(_)))));
}

#[test]
fn the_agents_own_standstill_does_not_count_against_a_program() {
    let mut bench = Bench::new();
    let keepalive = bench.register(json!({"keepalive_ms": 2000}));
    let long = bench.hold(keepalive, json!({"kind": "lease", "name": "long", "ttl_ms": 300_000}));
    let progress = bench.register(json!({"tether": "process", "progress_ms": 2000}));
    let promised = bench.hold(progress, json!({"kind": "leader", "name": "p", "ttl_ms": 300_000}));
    let short = bench.hold(keepalive, json!({"kind": "leader", "name": "short", "ttl_ms": 1000}));
    bench.pass(Duration::from_millis(300));
    let length = Duration::from_secs(10);
    bench.now = bench.now + length;
    assert_eq!(bench.keeper.handle_standstill(bench.now, length), 1);
    bench.pass(Duration::from_millis(1600));
    assert!(bench.is_valid(long) && bench.is_valid(promised));
    assert!(!bench.is_valid(short), "valid-until is never put off");
    bench.ask(ALICE, Request::Beat(keepalive));
    bench.pass(Duration::from_millis(200));
    assert!(bench.is_valid(long) && !bench.is_valid(promised), "nobody kept the promise");
}

#[test]
fn a_call_that_came_in_time_is_read_before_a_late_agent_judges() {
    let mut bench = Bench::new();
    let register = json!({"keepalive_ms": 1000, "progress_ms": 1000});
    let sessions = [(); 2].map(|()| bench.register(register.clone()));
    let holds = ["a", "b"].map(|name| json!({"kind": "lease", "name": name, "ttl_ms": 300_000}));
    let [calls, silent] = [0, 1].map(|at| bench.hold(sessions[at], holds[at].clone()));
    // Too short a standstill to be counted, and timers come before calls.
    bench.now = bench.now + Duration::from_millis(1005);
    bench.pass(Duration::ZERO);
    bench.ask(ALICE, Request::Beat(sessions[0]));
    bench.pass(Duration::from_millis(99));
    assert!(bench.is_valid(calls) && bench.is_valid(silent));
    bench.pass(Duration::from_millis(1));
    assert!(bench.is_valid(calls) && !bench.is_valid(silent));
    bench.now = bench.now + Duration::from_millis(1000);
    bench.pass(Duration::ZERO);
    bench.now = bench.now + Duration::from_millis(150);
    bench.pass(Duration::ZERO);
    assert!(!bench.is_valid(calls), "put off once, not for ever");
    bench.assert_nothing_left();
}

#[test]
fn a_connection_tether_outlives_its_stream_for_linger_while_the_process_lives() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "connection"}));
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    let stream = bench.listen(session, None);
    bench.pass(Duration::from_secs(100));
    bench.close(stream);
    bench.pass(Duration::from_millis(2900));
    assert!(bench.is_valid(hold));
    let stream = bench.listen(session, None);
    bench.pass(Duration::from_secs(100));
    assert!(bench.is_valid(hold));
    bench.close(stream);
    bench.pass(Duration::from_millis(3000));
    assert!(!bench.is_valid(hold));
    bench.assert_nothing_left();
}

#[test]
fn a_connection_tether_ends_at_once_when_stream_and_process_are_gone() {
    for stream_first in [true, false] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "connection"}));
        let stream = bench.listen(session, None);
        let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
        if stream_first {
            bench.close(stream);
            bench.keeper.handle_exit(bench.now, SessionId(session), Some(137));
        } else {
            // A child that inherited the stream keeps the hold.
            bench.keeper.handle_exit(bench.now, SessionId(session), Some(137));
            bench.pass(Duration::from_secs(60));
            assert!(bench.is_valid(hold));
            bench.close(stream);
        }
        bench.settle();
        assert!(!bench.is_valid(hold));
        assert_eq!(bench.keeper.count_sessions(), 0);
    }
}

#[test]
fn guarded_work_stops_before_its_hold_is_given_to_others() {
    let mut bench = Bench::new();
    let fields = json!({"tether": "connection", "guarded": true, "progress_ms": 1000});
    let session = bench.register(fields);
    let stream = bench.listen(session, None);
    let hold = bench.hold(session, json!({"kind": "leader", "name": "x"}));
    let other = bench.register(json!({"tether": "process"}));
    let fields = json!({"kind": "leader", "name": "x", "wait": "block"});
    let waiting = bench.acquire(other, fields);
    bench.pass(Duration::from_millis(1500));
    assert_eq!(bench.heard(stream).last(), Some(&lost(LostReason::Stalled)));
    assert!(!bench.is_valid(hold), "told at once");
    assert!(bench.reply(waiting).is_none(), "but kept from others");
    bench.keeper.handle_exit(bench.now, SessionId(session), Some(0));
    bench.close(stream);
    assert!(matches!(bench.reply(waiting), Some(Ok(Reply::Acquired(_)))));
}

#[test]
fn a_lost_guarded_hold_is_kept_no_longer_than_its_valid_until() {
    let mut bench = Bench::new();
    let fields = json!({"tether": "connection", "guarded": true, "progress_ms": 1000});
    let session = bench.register(fields);
    bench.listen(session, None);
    bench.hold(session, json!({"kind": "leader", "name": "x", "ttl_ms": 5000}));
    let other = bench.register(json!({"tether": "process"}));
    let waiting = bench.acquire(other, json!({"kind": "leader", "name": "x", "wait": "block"}));
    bench.pass(Duration::from_secs(5));
    assert!(matches!(bench.reply(waiting), Some(Ok(Reply::Acquired(_)))));
}

#[test]
fn a_stop_releases_everything_and_tells_everybody() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process", "project": "p"}));
    let stream = bench.listen(session, None);
    bench.hold(session, json!({"kind": "leader", "name": "x"}));
    let waiter = bench.register(json!({"tether": "process"}));
    let waiting = bench.acquire(waiter, json!({"kind": "leader", "name": "x", "wait": "block"}));
    let guarded = bench.register(json!({"tether": "connection", "guarded": true}));
    let work = bench.listen(guarded, None);
    bench.hold(guarded, json!({"kind": "leader", "name": "y"}));
    bench.heard(stream);
    bench.keeper.handle_stop(bench.now);
    bench.settle();
    assert_eq!(bench.heard(stream)[0], lost(LostReason::AgentStopping));
    assert_eq!(bench.ended.get(&stream), Some(&StreamEnd::Stopping));
    assert_eq!(bench.reply(waiting).unwrap().unwrap_err().code(), tenure_wire::Code::Stopping);
    assert_eq!(bench.heard(work).last(), Some(&lost(LostReason::AgentStopping)));
    assert!(!bench.keeper.stopped(), "guarded work still runs");
    bench.close(work);
    assert!(bench.keeper.stopped());
    assert!(bench.rows.is_empty() && bench.sessions.is_empty());
}

#[test]
fn a_revoked_guarded_hold_is_kept_from_others_until_its_work_has_ended() {
    for kind in ["leader", "semaphore"] {
        let mut bench = Bench::new();
        let guarded = bench.register(json!({"tether": "connection", "guarded": true}));
        let work = bench.listen(guarded, None);
        let fields = json!({"kind": kind, "name": "x"});
        let hold = bench.hold(guarded, fields);
        let other = bench.register(json!({"tether": "process"}));
        let waits = json!({"kind": kind, "name": "x", "wait": "block"});
        let waiting = bench.acquire(other, waits);
        let resource = crate::model::Resource {
            tenant: "default".into(),
            kind: kind.parse().unwrap(),
            name: "x".into(),
        };
        let ticket = bench.ask(0, Request::Revoke { resource, token: None, revocation: None });
        let Some(Ok(Reply::Revoked(revoked))) = bench.reply(ticket) else { panic!("{kind}") };
        assert_eq!(revoked.revoked, 1);
        let kept = bench.page[&crate::model::ClaimId(hold)].1;
        assert_eq!(kept, Boottime::ZERO, "its holder must stop");
        assert!(revoked.kept_ms.is_some_and(|ms| (29_000..30_000).contains(&ms)), "{revoked:?}");
        assert_eq!(bench.heard(work).last(), Some(&lost(LostReason::Revoked)));
        assert!(!bench.is_valid(hold) && bench.reply(waiting).is_none());
        bench.keeper.handle_exit(bench.now, SessionId(guarded), Some(143));
        bench.close(work);
        assert!(matches!(bench.reply(waiting), Some(Ok(Reply::Acquired(_)))), "{kind}");
    }
}

#[test]
fn a_revocation_spares_nobody_for_the_sake_of_guarded_work() {
    let mut bench = Bench::new();
    let fields = json!({"kind": "semaphore", "name": "x", "limit": 3});
    let guarded = bench.register(json!({"tether": "connection", "guarded": true}));
    bench.listen(guarded, None);
    bench.hold(guarded, fields.clone());
    let plain = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(plain, None);
    bench.hold(plain, fields.clone());
    bench.hold(plain, fields);
    let resource = crate::model::Resource {
        tenant: "default".into(),
        kind: tenure_wire::Kind::Semaphore,
        name: "x".into(),
    };
    let ticket = bench.ask(0, Request::Revoke { resource, token: None, revocation: None });
    let Some(Ok(Reply::Revoked(revoked))) = bench.reply(ticket) else { panic!("not answered") };
    assert!(matches!(revoked, Revoked { revoked: 3, kept_ms: Some(_), .. }), "{revoked:?}");
    assert_eq!(revoked.from.len(), 3);
    let revoked = bench.heard(stream).into_iter().filter(|it| *it == lost(LostReason::Revoked));
    assert_eq!(revoked.count(), 2);
}

#[test]
fn ends_that_the_upstream_does_not_hear_of_are_bounded() {
    let mut bench = Bench::new();
    bench.link = Link::Down;
    for _ in 0..100 {
        let session = bench.register(json!({"project": "p", "ttl_ms": 86_400_000}));
        bench.release(session, None).unwrap();
    }
    assert_eq!(size(&bench, "pending ends"), 0, "it has never heard of them");
    for _ in 0..4200 {
        bench.link = Link::Up;
        let session = bench.register(json!({"project": "p", "ttl_ms": 86_400_000}));
        bench.link = Link::Down;
        bench.release(session, None).unwrap();
    }
    assert_eq!(size(&bench, "pending ends"), 4096);
    bench.link = Link::Up;
    bench.pass(Duration::from_secs(10));
    assert_eq!(size(&bench, "pending ends"), 0, "tried again, if at a pace");
}

#[test]
fn releases_that_the_upstream_does_not_hear_of_count_among_the_holds_of_their_user() {
    let mut bench = Bench::new();
    let quota = crate::model::Quota { holds_max: Some(3), ..Default::default() };
    let session = bench.register(json!({}));
    let ask = |bench: &mut Bench, name: usize| {
        let fields = json!({"session": session, "kind": "leader", "name": format!("n{name}")});
        let request = Request::Acquire(serde_json::from_value(fields).unwrap());
        let ticket = bench.ask_within(quota, ALICE, request);
        bench.reply(ticket).unwrap()
    };
    bench.link = Link::RepliesLost;
    for name in 0..3 {
        assert_eq!(
            ask(&mut bench, name).unwrap_err().code(),
            tenure_wire::Code::UpstreamUnavailable
        );
    }
    assert_eq!(ask(&mut bench, 3).unwrap_err().code(), tenure_wire::Code::QuotaExceeded);
    bench.link = Link::Up;
    bench.pass(Duration::from_secs(10));
    assert!(ask(&mut bench, 3).is_ok());
}

#[test]
fn what_was_sent_before_an_upstream_stood_still_is_released_when_it_goes_on() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"project": "p"}));
    bench.link = Link::Hung;
    bench.acquire(session, json!({"kind": "leader", "name": "x"}));
    bench.link = Link::Down;
    bench.release(session, None).unwrap();
    bench.pass(Duration::from_secs(3600));
    assert_eq!((size(&bench, "pending releases"), size(&bench, "pending ends")), (1, 1));
    // The claim takes effect, and nobody wants it any more.
    bench.set_link(Link::Up);
    bench.pass(Duration::from_secs(5));
    let other = bench.register(json!({"project": "p"}));
    bench.hold(other, json!({"kind": "leader", "name": "x"}));
    bench.release(other, None).unwrap();
    bench.assert_nothing_left();
}

fn size(bench: &Bench, table: &str) -> usize {
    bench.keeper.sizes().into_iter().find(|(name, _)| *name == table).unwrap().1
}

#[test]
fn a_session_that_was_revoked_waits_until_it_may_have_it_again() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let fields = json!({"kind": "leader", "name": "x"});
    bench.hold(session, fields.clone());
    let resource = crate::model::Resource {
        tenant: "default".into(),
        kind: tenure_wire::Kind::Leader,
        name: "x".into(),
    };
    let words = crate::model::Revocation {
        by: "root on b".to_owned(),
        reason: Some("upgrade".to_owned()),
        for_ms: 60_000,
    };
    let revocation = Some(std::sync::Arc::new(words));
    let ticket = bench.ask(0, Request::Revoke { resource, token: None, revocation });
    let Some(Ok(Reply::Revoked(revoked))) = bench.reply(ticket) else { panic!("not answered") };
    assert_eq!((revoked.revoked, revoked.from.len()), (1, 1));
    let once = bench.acquire(session, fields);
    assert!(matches!(bench.reply(once), Some(Err(Refusal::Barred { .. }))));
    let wait = json!({"kind": "leader", "name": "x", "wait": "block"});
    let waiting = bench.acquire(session, wait.clone());
    bench.restart();
    let session_again = bench.acquire(session, json!({"kind": "leader", "name": "x"}));
    assert!(matches!(bench.reply(session_again), Some(Err(Refusal::Barred { .. }))));
    assert!(bench.reply(waiting).is_none());
    let waiting = bench.acquire(session, wait);
    bench.pass(std::time::Duration::from_secs(58));
    assert!(bench.reply(waiting).is_none());
    bench.pass(std::time::Duration::from_secs(3));
    assert!(matches!(bench.reply(waiting), Some(Ok(Reply::Acquired(_)))));
}
