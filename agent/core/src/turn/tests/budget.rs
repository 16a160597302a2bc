//! How much a turn takes in and tells, and what waits for the next one.

use super::*;

#[test]
fn messages_beyond_the_time_of_a_turn_wait_for_the_next_which_begins_with_timers() {
    let mut rig = Rig::new(true, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.acquire(session, "x");
    rig.rest();
    // The next thing is to tell of the grant.
    rig.host.now = rig.keeper.poll_timeout().unwrap();
    rig.rest();
    rig.host.now = rig.keeper.poll_timeout().unwrap().before(Duration::from_millis(7));
    rig.host.message_takes = Duration::from_millis(2);
    for _ in 0..20 {
        rig.say(crate::keeper::Request::Beat(session));
    }
    assert_eq!(rig.take(), 3, "5 ms are over");
    assert_eq!(rig.count("reply"), 3, "what was taken in is answered");
    // The beat comes due within the second turn, which takes no more then.
    assert!(rig.take() <= 2);
    rig.host.done.clear();
    rig.take();
    assert_eq!(rig.host.done.first(), Some(&"renewal"), "{:?}", rig.host.done);
}

#[test]
fn one_message_is_taken_however_long_each_takes() {
    let mut rig = Rig::new(true, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.host.message_takes = Duration::from_secs(1);
    for _ in 0..3 {
        rig.say(crate::keeper::Request::Beat(session));
        rig.say(crate::keeper::Request::Beat(session));
        assert_eq!(rig.take(), 1);
        assert_eq!(rig.take(), 1);
    }
}

#[test]
fn more_events_than_fit_are_told_in_the_next_turns() {
    let budget = Budget { told: 10, time: Duration::ZERO, ..Budget::default() };
    let mut rig = Rig::new(true, budget);
    rig.register(json!({"tether": "process"}));
    for number in 0..25 {
        rig.turn
            .told
            .push_back(Command::Reply { ticket: Ticket(number), reply: Ok(Reply::Beaten) });
    }
    rig.host.done.clear();
    rig.host.replies.clear();
    rig.take();
    assert_eq!(rig.host.done.iter().filter(|it| **it == "reply").count() % 10, 0);
    assert!(rig.turn.has_more());
    rig.rest();
    let order: Vec<u64> = rig.host.replies.iter().map(|(ticket, _)| ticket.0).collect();
    assert_eq!(order, (0..25).collect::<Vec<_>>());
}

#[test]
fn timers_that_come_due_together_take_several_turns_and_beats_overtake_the_others() {
    let mut rig = Rig::new(true, Budget { time: Duration::ZERO, ..Budget::default() });
    let holder = rig.register(json!({"tether": "process"}));
    let fields = json!({"session": holder, "kind": "leader", "name": "x", "ttl_ms": 15_000});
    rig.say(crate::keeper::Request::Acquire(serde_json::from_value(fields).unwrap()));
    rig.rest();
    for _ in 0..30 {
        let waiter = rig.register(json!({"tether": "process"}));
        for _ in 0..60 {
            let fields = json!({"session": waiter, "kind": "leader", "name": "x",
                                "wait": "block", "timeout_ms": 5000});
            rig.say(crate::keeper::Request::Acquire(serde_json::from_value(fields).unwrap()));
        }
        rig.rest();
    }
    // The grant is told for the history before.
    rig.host.now = rig.host.now + Duration::from_millis(200);
    rig.rest();
    rig.host.replies.clear();
    // Every wait has timed out, and the holder's beat is due as well.
    rig.host.now = rig.host.now + Duration::from_secs(6);
    rig.take();
    assert_eq!(rig.count("renewal"), 1);
    let first = rig.host.replies.len();
    assert!(first > 0 && first < 1000, "{first} waits ended in the first turn");
    let mut turns = 1;
    while rig.host.replies.len() < 1800 {
        // They look again for the answer of who has it.
        rig.host.now = rig.host.now + Duration::from_millis(20);
        rig.take();
        turns += 1;
        assert!(turns < 3000, "{}", rig.host.replies.len());
    }
    assert!(turns >= 4, "{turns}");
    // Those of a quarter of a second share one look at who has it.
    assert!(rig.count("look") <= 1 + turns / 12, "{} looks in {turns} turns", rig.count("look"));
}
