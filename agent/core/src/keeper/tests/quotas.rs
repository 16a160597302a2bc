//! How much one user may have.

use std::time::Duration;

use serde_json::json;
use tenure_wire::page::SLOTS;
use tenure_wire::{Register, Release};
use uuid::Uuid;

use super::bench::{ALICE, Bench, Link, MALLORY};
use crate::keeper::{Limit, Quota, Refusal, Reply, Request, Settings};
use crate::model::Full;

fn register(bench: &mut Bench, quota: Quota, uid: u32) -> Result<Uuid, Refusal> {
    let ticket =
        bench.ask_within(quota, uid, Request::Register(Register::default(), Default::default()));
    bench.reply(ticket).unwrap().map(|reply| match reply {
        Reply::Registered { session, .. } => session.0,
        other => panic!("not registered: {other:?}"),
    })
}

/// Asks for a leader role; waits in the queue if need be.
fn acquire(bench: &mut Bench, max: usize, session: Uuid, name: &str) -> Result<Uuid, Refusal> {
    acquire_within(bench, Quota { holds_max: Some(max), ..Quota::default() }, session, name)
}

fn acquire_within(
    bench: &mut Bench,
    quota: Quota,
    session: Uuid,
    name: &str,
) -> Result<Uuid, Refusal> {
    let fields = json!({"session": session, "kind": "leader", "name": name, "wait": "queue"});
    let request = Request::Acquire(serde_json::from_value(fields).unwrap());
    let ticket = bench.ask_within(quota, ALICE, request);
    bench.reply(ticket).unwrap().map(|reply| match reply {
        Reply::Waiting(waiting) => waiting.hold,
        other => panic!("not queued: {other:?}"),
    })
}

#[test]
fn the_rules_bound_the_sessions_of_a_user() {
    let mut bench = Bench::new();
    let two = Quota { sessions_max: Some(2), ..Quota::default() };
    let first = register(&mut bench, two, ALICE).unwrap();
    register(&mut bench, two, ALICE).unwrap();
    let refusal = register(&mut bench, two, ALICE).unwrap_err();
    let by_rule = Limit::SessionsByRule { uid: ALICE, has: 2, max: 2 };
    assert_eq!(refusal, Refusal::Limit(by_rule));
    register(&mut bench, two, MALLORY).unwrap();
    bench.release(first, None).unwrap();
    register(&mut bench, two, ALICE).unwrap();
}

#[test]
fn the_rules_replace_the_limit_for_one_user() {
    let mut bench = Bench::new();
    bench.keeper.reload(Settings {
        sessions_per_uid_max: Some(1),
        sessions_max: 2,
        ..Settings::default()
    });
    register(&mut bench, Quota::default(), ALICE).unwrap();
    let refusal = register(&mut bench, Quota::default(), ALICE).unwrap_err();
    assert_eq!(refusal, Refusal::Limit(Limit::Sessions(Full::User(1))));
    let many = Quota { sessions_max: Some(100), ..Quota::default() };
    register(&mut bench, many, ALICE).unwrap();
    // But not that for all.
    let refusal = register(&mut bench, many, ALICE).unwrap_err();
    assert_eq!(refusal, Refusal::Limit(Limit::Sessions(Full::All(2))));
}

#[test]
fn one_user_leaves_holds_for_others() {
    let mut bench = Bench::new();
    bench.keeper.reload(Settings { holds_max: 4, ..Settings::default() });
    let one = bench.register(json!({"tether": "process"}));
    for name in ["a", "b", "c"] {
        acquire_within(&mut bench, Quota::default(), one, name).unwrap();
    }
    let refusal = acquire_within(&mut bench, Quota::default(), one, "d").unwrap_err();
    let of_user = Limit::Holds { uid: ALICE, full: Full::User(3) };
    assert_eq!(refusal, Refusal::Limit(of_user));
    // The rules for a user take the place of its share.
    let many = Quota { holds_max: Some(100), ..Quota::default() };
    acquire_within(&mut bench, many, one, "d").unwrap();
    let refusal = acquire_within(&mut bench, many, one, "e").unwrap_err();
    let of_all = Limit::Holds { uid: ALICE, full: Full::All(4) };
    assert_eq!(refusal, Refusal::Limit(of_all));
}

#[test]
fn one_user_has_so_many_holds_as_fit_into_memory_unless_said_otherwise() {
    let per_uid = |holds_max, holds_per_uid_max| {
        let settings = Settings { holds_max, holds_per_uid_max, ..Settings::default() };
        settings.holds().per_uid
    };
    assert_eq!(per_uid(200_000, None), 50_000);
    assert_eq!(per_uid(4000, None), 3000);
    assert_eq!(per_uid(200_000, Some(150_000)), 150_000);
}

#[test]
fn one_user_leaves_long_pages_for_others() {
    let mut bench = Bench::new();
    bench.keeper.reload(Settings { holds_max: 400, ..Settings::default() });
    let mut register = |uid, beyond| {
        let register = Register { holds: Some(SLOTS + beyond), ..Register::default() };
        let ticket = bench.ask(uid, Request::Register(register, Default::default()));
        match bench.reply(ticket).unwrap() {
            Ok(Reply::Registered { session, .. }) => Ok(session.0),
            Ok(other) => panic!("not registered: {other:?}"),
            Err(refusal) => Err(refusal),
        }
    };
    let one = register(MALLORY, 300).unwrap();
    let full = Full::User(300);
    let of_user = Limit::Slots { uid: MALLORY, asked: SLOTS + 1, taken: 300, full };
    assert_eq!(register(MALLORY, 1), Err(Refusal::Limit(of_user)));
    register(MALLORY, 0).unwrap();
    register(ALICE, 80).unwrap();
    let of_all = Limit::Slots { uid: ALICE, asked: SLOTS + 50, taken: 380, full: Full::All(388) };
    assert_eq!(register(ALICE, 50), Err(Refusal::Limit(of_all)));
    let release = Release { session: one, hold: None, exit_status: None, stopped: None };
    bench.ask(MALLORY, Request::Release(release));
    let register = Register { holds: Some(SLOTS + 300), ..Register::default() };
    let ticket = bench.ask(MALLORY, Request::Register(register, Default::default()));
    assert!(matches!(bench.reply(ticket), Some(Ok(_))), "they come back");
}

#[test]
fn the_rules_bound_the_holds_of_a_user() {
    let mut bench = Bench::new();
    let one = bench.register(json!({"tether": "process"}));
    let two = bench.register(json!({"tether": "process"}));
    let first = acquire(&mut bench, 3, one, "a").unwrap();
    acquire(&mut bench, 3, two, "b").unwrap();
    // A waiting one is counted too.
    let waiting = acquire(&mut bench, 3, two, "a").unwrap();
    let full = |bench: &mut Bench| {
        let refusal = acquire(bench, 3, one, "more").unwrap_err();
        let by_rule = Limit::HoldsByRule { uid: ALICE, has: 3, max: 3 };
        assert_eq!(refusal, Refusal::Limit(by_rule));
    };
    full(&mut bench);
    bench.restart();
    full(&mut bench);

    // Every end makes room: a release, a cancelled wait, an expiry, the session's.
    bench.release(two, Some(waiting)).unwrap();
    acquire(&mut bench, 3, one, "c").unwrap();
    full(&mut bench);
    bench.release(one, Some(first)).unwrap();
    acquire(&mut bench, 3, two, "a").unwrap();
    full(&mut bench);
    bench.release(two, None).unwrap();
    acquire(&mut bench, 2, one, "a").unwrap();
    bench.set_link(Link::Down);
    bench.pass(Duration::from_secs(40));
    bench.set_link(Link::Up);
    for name in ["d", "e", "f"] {
        acquire(&mut bench, 3, one, name).unwrap();
    }
    full(&mut bench);
    bench.release(one, None).unwrap();
    bench.assert_nothing_left();
}
