//! What a message costs, counted in lookups and effects.

use super::*;

/// The cost of a message: everything that is looked up and everything that is done.
fn work_of(rig: &mut Rig, request: crate::keeper::Request) -> u64 {
    rig.rest();
    let before = crate::keeper::looked_up();
    rig.say(request);
    let mut done = 0;
    while rig.take() > 0 || rig.turn.has_more() || !rig.host.reports.is_empty() {
        done += rig.host.done.len() as u64;
        rig.host.done.clear();
    }
    crate::keeper::looked_up() - before + done
}

#[test]
fn what_a_message_costs_does_not_depend_on_how_many_wait() {
    const EACH_MAX: u64 = 2500;
    let mut rig = crowd(true);
    let holder = rig.register(json!({"tether": "process"}));
    let acquire = |session: Uuid| {
        let fields = json!({"session": session, "kind": "leader", "name": "x", "wait": "queue"});
        crate::keeper::Request::Acquire(serde_json::from_value(fields).unwrap())
    };
    rig.say(acquire(holder));
    rig.rest();
    let mut first = None;
    for number in 0..10_000u64 {
        let waiter = rig.register(json!({"tether": "process"}));
        let target = StreamTarget::Session { session: waiter, last_event_id: None };
        rig.keeper.open_stream(rig.host.now, StreamId(number), peer(), target).unwrap();
        rig.say(acquire(waiter));
        rig.rest();
        first.get_or_insert(waiter);
    }
    let release = |session| {
        crate::keeper::Request::Release(Release {
            session,
            hold: None,
            exit_status: None,
            stopped: None,
        })
    };
    let last = rig.register(json!({"tether": "process"}));
    assert!(work_of(&mut rig, acquire(last)) < EACH_MAX, "one more waits");
    assert!(work_of(&mut rig, release(last)) < EACH_MAX, "the last gives up");
    assert!(work_of(&mut rig, release(first.unwrap())) < EACH_MAX, "the first gives up");
    assert!(work_of(&mut rig, release(holder)) < EACH_MAX, "the next is granted it");
    let resource = model::Resource {
        tenant: "default".into(),
        kind: tenure_wire::Kind::Leader,
        name: "x".into(),
    };
    assert!(work_of(&mut rig, crate::keeper::Request::Standing(resource)) < EACH_MAX);
}

#[test]
fn what_a_message_costs_grows_no_faster_than_a_project() {
    const SESSIONS: u64 = 1000;
    const EACH_MAX: u64 = 12;
    let mut rig = crowd(true);
    for number in 0..SESSIONS {
        let session = rig.register(json!({"tether": "process", "project": "p"}));
        let target = StreamTarget::Session { session, last_event_id: None };
        rig.keeper.open_stream(rig.host.now, StreamId(number), peer(), target).unwrap();
        rig.rest();
    }
    let register = json!({"tether": "process", "project": "p"});
    let register = crate::keeper::Request::Register(
        serde_json::from_value(register).unwrap(),
        Default::default(),
    );
    let work = work_of(&mut rig, register);
    assert!(work < SESSIONS * EACH_MAX, "one more session of {SESSIONS}: {work}");
}

#[test]
fn what_a_lost_feed_costs_is_spread_over_turns() {
    const SESSIONS: usize = 200;
    const HOLDS: usize = 50;
    const TURN_MAX: u64 = 10_000;
    let mut rig = crowd(false);
    for session in 0..SESSIONS {
        let id = rig.register(json!({"tether": "process", "project": format!("p{session}")}));
        for hold in 0..HOLDS {
            rig.acquire(id, &format!("{session} {hold}"));
        }
        rig.rest();
    }
    rig.host.beaten = 0;
    rig.host.reports.push_back(Report::FeedLost);
    let mut turns = 0;
    while rig.host.beaten < SESSIONS * (HOLDS + 1) {
        let before = crate::keeper::looked_up();
        rig.take();
        let work = crate::keeper::looked_up() - before;
        assert!(work < TURN_MAX, "{work} in turn {turns}");
        turns += 1;
        assert!(turns < 1000, "{} beaten", rig.host.beaten);
    }
    rig.rest();
    assert_eq!(rig.host.beaten, SESSIONS * (HOLDS + 1), "everything once");
}
