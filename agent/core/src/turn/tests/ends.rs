//! What ends together ends in several turns, each of bounded work.

use super::*;

/// Whatever ends at once, a turn looks up and does no more than this.
const ENDS_MAX: u64 = 20_000;

/// Sessions, each with a stream, that hold 4 095 leaders together.
fn holders(rig: &mut Rig, sessions: u64, promise: Option<u64>) -> Vec<Uuid> {
    let mut ids = Vec::new();
    let holds = 4095 / sessions;
    for number in 0..sessions {
        let id = rig
            .register(json!({"tether": "process", "holds": holds.max(64), "progress_ms": promise}));
        let target = StreamTarget::Session { session: id, last_event_id: None };
        rig.keeper.open_stream(rig.host.now, StreamId(number), peer(), target).unwrap();
        for hold in 0..holds {
            rig.acquire(id, &format!("{number} {hold}"));
        }
        rig.rest();
        ids.push(id);
    }
    rig.host.replies.clear();
    ids
}

/// Takes turns, all of them short, until `is_over`; how many.
fn end_by_turns(rig: &mut Rig, is_over: impl Fn(&Rig) -> bool) -> usize {
    for turn in 0..1000 {
        if is_over(rig) {
            return turn;
        }
        let (before, done) = (crate::keeper::looked_up(), rig.host.done.len());
        rig.take();
        let work = crate::keeper::looked_up() - before + (rig.host.done.len() - done) as u64;
        assert!(work < ENDS_MAX, "{work} in turn {turn}");
    }
    panic!("not over after 1000 turns");
}

#[test]
fn the_end_of_a_session_with_many_holds_takes_several_turns_and_is_one_event() {
    for within in [true, false] {
        let mut rig = crowd(within);
        let session = holders(&mut rig, 1, None)[0];
        let other = rig.register(json!({"tether": "process"}));
        rig.rest();
        rig.say(crate::keeper::Request::Release(Release {
            session,
            hold: None,
            exit_status: None,
            stopped: None,
        }));
        rig.take();
        assert!(rig.host.replies.is_empty(), "it has not ended yet");
        // Nothing is granted to it any more.
        rig.acquire(session, "one more");
        rig.take();
        let refused = rig.host.replies.pop_front();
        let Some((_, Err(refusal))) = refused else { panic!("{refused:?}") };
        assert_eq!(refusal.code(), tenure_wire::Code::SessionLost);
        // Others are served meanwhile.
        rig.acquire(other, "0 0");
        rig.acquire(other, "0 4094");
        end_by_turns(&mut rig, |rig| rig.keeper.count_sessions() == 1);
        let ended = rig.host.replies.iter().filter(|(_, it)| matches!(it, Ok(Reply::Released(_))));
        assert_eq!(ended.count(), 1);
        assert_eq!(rig.count("void"), 4095);
        assert_eq!(rig.count("closed"), 1);
        end_by_turns(&mut rig, |rig| rig.host.reports.is_empty() && !rig.turn.has_more());
        assert!(rig.host.engine.count_claims() <= 2, "{}", rig.host.engine.count_claims());
    }
}

#[test]
fn an_agent_that_stops_takes_several_turns_for_many_holds() {
    for sessions in [1, 65, 1365] {
        let mut rig = crowd(true);
        holders(&mut rig, sessions, None);
        rig.host.done.clear();
        rig.keeper.handle_stop(rig.host.now);
        let turns = end_by_turns(&mut rig, |rig| rig.keeper.stopped());
        assert!(turns > 4, "{turns}");
        assert_eq!(rig.count("void"), 4095);
        assert_eq!(rig.count("closed"), sessions as usize);
    }
}

#[test]
fn a_broken_promise_takes_many_holds_away_in_several_turns() {
    let mut rig = crowd(true);
    holders(&mut rig, 1, Some(1000));
    rig.host.now = rig.host.now + Duration::from_secs(1);
    // It is late itself, and reads first what came in time.
    rig.take();
    rig.host.now = rig.host.now + Duration::from_secs(1);
    end_by_turns(&mut rig, |rig| rig.count("void") == 4095);
    assert_eq!(rig.keeper.count_sessions(), 1);
}

#[test]
fn what_runs_out_at_one_instant_takes_several_turns() {
    let mut rig = crowd(true);
    holders(&mut rig, 3, None);
    rig.host.done.clear();
    // Nobody has run meanwhile: every grant has ended in the store as well.
    rig.host.now = rig.host.now + Duration::from_secs(300);
    end_by_turns(&mut rig, |rig| rig.count("void") == 4095 && rig.host.engine.count_claims() == 0);
}

#[test]
fn holds_that_guarded_work_has_kept_go_in_several_turns() {
    for within in [true, false] {
        let mut rig = crowd(within);
        let fields = json!({
            "tether": "process", "holds": 4095, "progress_ms": 1000, "guarded": true
        });
        let session = rig.register(fields);
        for hold in 0..4095 {
            rig.acquire(session, &format!("kept {hold}"));
        }
        rig.rest();
        rig.host.replies.clear();
        rig.host.now = rig.host.now + Duration::from_secs(1);
        rig.take();
        rig.host.now = rig.host.now + Duration::from_secs(1);
        end_by_turns(&mut rig, |rig| rig.count("void") == 4095);
        assert!(rig.host.engine.count_claims() >= 4095, "they are kept");
        rig.say(crate::keeper::Request::Release(Release {
            session,
            hold: None,
            exit_status: None,
            stopped: None,
        }));
        end_by_turns(&mut rig, |rig| rig.keeper.count_sessions() == 0);
        end_by_turns(&mut rig, |rig| rig.host.reports.is_empty() && !rig.turn.has_more());
        assert_eq!(rig.host.engine.count_claims(), 0);
    }
}

#[test]
fn what_ran_out_while_the_machine_slept_is_lost_for_that_reason_however_much_it_is() {
    let mut rig = crowd(true);
    holders(&mut rig, 3, None);
    rig.host.done.clear();
    rig.host.now = rig.host.now + Duration::from_secs(300);
    rig.keeper.handle_wake(rig.host.now, Duration::from_secs(300));
    end_by_turns(&mut rig, |rig| rig.count("void") == 4095 && rig.host.engine.count_claims() == 0);
    assert_eq!(rig.count("slept"), 4095);
}
