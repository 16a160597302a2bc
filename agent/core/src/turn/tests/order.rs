//! The order in which a turn does what comes of it.

use super::*;

#[test]
fn nothing_is_told_before_the_journal_and_the_pages_and_calls_leave_after_both() {
    let mut rig = Rig::new(false, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.acquire(session, "x");
    rig.rest();
    let hold = match rig.host.replies.pop_back() {
        Some((_, Ok(Reply::Acquired(acquired)))) => acquired.hold,
        other => panic!("{other:?}"),
    };
    let stream = StreamTarget::Session { session, last_event_id: None };
    rig.keeper.open_stream(rig.host.now, StreamId(1), peer(), stream).unwrap();
    rig.rest();
    rig.say(crate::keeper::Request::Release(Release {
        session,
        hold: Some(hold),
        exit_status: None,
        stopped: None,
    }));
    rig.acquire(session, "y");
    rig.take();
    let done: Vec<_> =
        rig.host.done.iter().filter(|it| !matches!(**it, "message" | "write")).collect();
    assert_eq!(done, [&"secure", &"void", &"call", &"call", &"event", &"note"]);
}

#[test]
fn a_page_is_voided_before_another_is_written_and_never_shows_what_was_lost_at_once() {
    let mut rig = Rig::new(true, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.host.done.clear();
    let page = |hold: u128, until: u64| Command::WritePage {
        session: SessionId(session),
        slot: 1,
        hold: ClaimId(Uuid::from_u128(hold)),
        token: 1,
        valid_until: Boottime::from_nanos(until),
        state: tenure_wire::HoldState::Held,
    };
    for command in [page(1, 9), page(2, 9), page(3, 0), page(2, 0)] {
        rig.turn.show(command);
    }
    rig.take();
    assert_eq!(rig.host.done, ["secure", "void", "void", "page"]);
}

#[test]
fn whoever_is_preempted_on_the_same_host_has_lost_before_the_other_is_told() {
    for (within, is_deaf) in [(true, false), (false, false), (false, true)] {
        let mut rig = Rig::new(within, Budget::default());
        let [first, second] =
            [0, 100].map(|_| rig.register(json!({"tether": "process", "project": "p"})));
        let acquire = |session, priority| {
            let fields = json!({"session": session, "kind": "master", "priority": priority});
            crate::keeper::Request::Acquire(serde_json::from_value(fields).unwrap())
        };
        rig.say(acquire(first, 0));
        rig.rest();
        rig.host.is_deaf = is_deaf;
        rig.say(acquire(second, 100));
        while rig.count("page") == 0 {
            rig.take();
        }
        let at = |what| rig.host.done.iter().position(|done| *done == what);
        assert!(at("void").is_some() && at("void") < at("page"), "{:?}", rig.host.done);
        assert!(at("page") < at("reply"), "{:?}", rig.host.done);
    }
}

#[test]
fn a_page_that_is_only_voided_is_voided() {
    let mut rig = Rig::new(true, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.host.done.clear();
    rig.turn.show(Command::WritePage {
        session: SessionId(session),
        slot: 1,
        hold: ClaimId(Uuid::from_u128(1)),
        token: 1,
        valid_until: Boottime::ZERO,
        state: tenure_wire::HoldState::Lost,
    });
    rig.take();
    assert_eq!(rig.host.done, ["secure", "void"]);
}
