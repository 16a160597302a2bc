//! Keys that another program wrote, spoilt or took away, and a server that lost what it had.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::model::{
    Answer, Beat, BeatAnswer, ClaimAnswer, GoneReason, Request, STANDING_LISTED_MAX,
};

use super::super::exchange::{Exchange, Step};
use super::super::layout::member;
use super::kinds::{
    CLAIM, Ears, HEARTBEAT, MAIN, MASTER, MASTER_ROLE, PEER_ROLE, SESSIONS, WAITING, announce,
    announced, beat_session, check_waits, end, hash_of, lease, lost, master, names, permit,
    permit_of, released, routes, sid,
};
use super::store::{Store, TTL, announcement, beat, claim, held, resource, session};

#[test]
fn tokens_grow_although_the_clock_or_the_store_goes_back() {
    let store = Store::new();
    let mut last = store.hold(&claim(1, 1, "leader/a"));
    for id in 2..50 {
        let token = store.hold(&claim(id, 1, &format!("leader/{id}")));
        assert!(token > last);
        last = token;
    }
    // As if the clock were an hour behind what granted before.
    let ahead = last + 3_600_000_000;
    store.run::<()>(&["SET", "tenure:fence", &ahead.to_string()]);
    assert_eq!(store.hold(&claim(50, 1, "leader/b")), ahead + 1);
    assert_eq!(store.hold(&claim(51, 1, "leader/c")), ahead + 2);
    // A token that the agent has seen counts when the store has forgotten it.
    store.run::<()>(&["FLUSHALL"]);
    assert_eq!(store.hold(&claim(52, 1, "leader/d")), ahead + 3);
}

#[test]
fn who_finds_its_own_value_adopts_it() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    let first = store.hold(&a);
    store.run::<()>(&["DEL", &store.record(&a)]);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Unknown));
    assert!(store.hold(&a) > first);
    assert!(store.release(&a));
}

#[test]
fn what_is_taken_before_its_time_is_a_conflict() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    store.hold(&a);
    store.run::<()>(&["SET", "leader:x", "somebody"]);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Conflict));
    assert_eq!(store.gone(&a), GoneReason::Conflict);
    assert!(!store.release(&a));
    assert_eq!(store.run::<String>(&["GET", "leader:x"]), "somebody");
}

#[test]
fn a_server_without_its_data_has_never_heard_of_a_claim() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    store.hold(&a);
    store.run::<()>(&["FLUSHALL"]);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Unknown));
}

#[test]
fn a_program_of_today_is_a_holder_like_any_other() {
    let store = Store::new();
    store.run::<()>(&["SET", "leader:x", "pod-7:ümläut", "NX", "EX", "30"]);
    let a = claim(1, 1, "leader/x");
    let (holder, free_in) = store.without_writing(|| store.contended(&a));
    assert_eq!(&*holder.owner.name, "pod-7:ümläut");
    assert_eq!(&*holder.owner.host, "unknown");
    assert_eq!((holder.token, holder.since), (0, Duration::ZERO));
    assert!(free_in <= Duration::from_secs(30));
    assert_eq!(store.inspect(&a.resource).holders, [holder]);
    store.run::<()>(&["DEL", "leader:x"]);
    store.hold(&a);
    let theirs: Option<String> = store.run(&["SET", "leader:x", "pod-8", "NX", "EX", "30"]);
    assert_eq!(theirs, None);
}

#[test]
fn a_holder_without_expiry_is_contended_without_an_end() {
    let store = Store::new();
    store.run::<()>(&["SET", "leader:x", "for ever"]);
    let answer = store.claim(&claim(1, 1, "leader/x"));
    assert!(matches!(answer, ClaimAnswer::Contended { free_in: None, .. }), "{answer:?}");
}

#[test]
fn one_beat_over_a_spoilt_key_takes_nothing_from_the_others() {
    let store = Store::new();
    let (a, b) = (claim(1, 1, "leader/a"), claim(2, 1, "leader/b"));
    let (_, token) = (store.hold(&a), store.hold(&b));
    store.run::<()>(&["DEL", "leader:a"]);
    store.run::<()>(&["RPUSH", "leader:a", "not a leader"]);
    let answers = store.renew_all(vec![beat(&a), beat(&b)]);
    assert_eq!(answers, [BeatAnswer::Gone(GoneReason::Conflict), held(token)]);
}

#[test]
fn a_lease_that_is_taken_before_its_time_is_a_conflict() {
    let store = Store::new();
    let a = lease(1, 1);
    store.hold(&a);
    store.run::<()>(&["DEL", "tenure:lease:l"]);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Conflict));
    assert_eq!(store.gone(&a), GoneReason::Conflict);
    store.run::<()>(&["FLUSHALL"]);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Unknown));
}

#[test]
fn a_lease_outlives_the_loss_of_its_record() {
    let store = Store::new();
    let a = lease(1, 1);
    let token = store.hold(&a);
    store.run::<()>(&["DEL", &store.record(&a)]);
    assert_eq!(store.renew(&a), held(token));
    assert_eq!(store.hold(&a), token);
}

#[test]
fn a_lease_of_another_program_is_a_holder_like_any_other() {
    let store = Store::new();
    store.run::<()>(&["HSET", "tenure:lease:l", "owner", "runner-01", "address", "there:1"]);
    store.run::<()>(&["PEXPIRE", "tenure:lease:l", "60000"]);
    let (holder, free_in) = store.without_writing(|| store.contended(&lease(1, 1)));
    assert_eq!((&*holder.owner.name, &*holder.owner.host), ("runner-01", "unknown"));
    assert!(free_in <= Duration::from_secs(60));
    assert_eq!(routes(&store, Some("l")).routes[0].address, "there:1");
    assert_eq!(store.revoke(&lease(1, 1).resource, None), 1);
    store.hold(&lease(1, 1));
}

#[test]
fn a_preemption_makes_no_hash_of_a_session_that_has_none() {
    let store = Store::new();
    store.hold(&master(1, 1, 0));
    store.hold(&master(2, 2, 1));
    store.release(&master(2, 2, 1));
    let keys = store.keys();
    assert!(keys.iter().all(|key| key.starts_with("tenure:")), "{keys:?}");
}

#[test]
fn a_master_of_a_program_of_today_counts_as_its_surface_says() {
    let store = Store::new();
    let mut connection = store.connect();
    let mut ears = Ears::new(&mut connection);
    store.run::<()>(&[
        "HSET",
        "prism:session:lola",
        "tenant_id",
        "default",
        "project_id",
        "p",
        "agent_identity",
        "Lola",
        "agent_surface",
        "claude_desktop",
        "machine_id",
        "mac-1",
        "is_master",
        "1",
        "registered_at",
        "2026-04-23T16:19:00",
    ]);
    store.run::<()>(&["EXPIRE", "prism:session:lola", "90"]);
    store.run::<()>(&["SET", MASTER, "lola", "NX", "EX", "90"]);
    store.run::<()>(&["SADD", SESSIONS, "lola"]);
    let (holder, free_in) = store.without_writing(|| store.contended(&master(1, 1, 100)));
    assert_eq!((&*holder.owner.name, &*holder.owner.host), ("Lola", "mac-1"));
    assert_eq!((holder.token, holder.since), (0, Duration::ZERO));
    assert!(free_in <= Duration::from_secs(90));
    // The first look notes it, for when its time is up.
    store.inspect(&master(1, 1, 0).resource);
    let standing = store.without_writing(|| store.inspect(&master(1, 1, 0).resource));
    assert_eq!(names(&standing), ["Lola"]);
    assert_eq!(standing.holders, [holder]);

    let b = master(2, 2, 101);
    store.hold(&b);
    let (channel, payload) = ears.next();
    assert_eq!(channel, "prism:events:session:lola");
    assert_eq!(payload["type"], "MasterPreempted");
    assert_eq!(store.hash("prism:session:lola")["is_master"], "0");
    // It takes it back by the compare-and-set of the text; then it is preempted, not expired.
    store.run::<()>(&["SET", MASTER, "lola", "EX", "90"]);
    assert_eq!(store.renew(&b), BeatAnswer::Gone(GoneReason::Preempted));
    assert_eq!(store.gone(&b), GoneReason::Preempted);
    assert!(!store.release(&b));
    assert_eq!(store.run::<String>(&["GET", MASTER]), "lola");
    ears.check_silent(&store);
    // Any other surface counts for nothing.
    store.run::<()>(&["HSET", "prism:session:lola", "agent_surface", "cli"]);
    store.hold(&master(3, 3, 1));
}

#[test]
fn a_master_that_never_expires_is_free_once_its_session_is_gone() {
    let store = Store::new();
    store.run::<()>(&["HSET", "prism:session:x", "tenant_id", "default"]);
    store.run::<()>(&["SETNX", MASTER, "x"]);
    let answer = store.claim(&master(1, 1, 0));
    let expected = ClaimAnswer::Contended {
        holder: Some(store.inspect(&master(1, 1, 0).resource).holders.remove(0)),
        free_in: None,
        limit: None,
        limit_was: None,
    };
    assert_eq!(answer, expected);
    store.run::<()>(&["DEL", "prism:session:x"]);
    store.hold(&master(1, 1, 0));
    store.check_expiry(MASTER, TTL);
}

#[test]
fn who_finds_its_own_session_there_adopts_it() {
    let store = Store::new();
    store.run::<()>(&["SET", MASTER, &sid(1), "EX", "90"]);
    let token = store.hold(&master(1, 1, 0));
    assert_eq!(store.renew(&master(1, 1, 0)), held(token));
    store.check_expiry(MASTER, TTL);
    store.run::<()>(&["DEL", CLAIM]);
    assert!(store.hold(&master(2, 1, 0)) > token);
}

#[test]
fn a_revoked_master_is_told_why_and_so_is_its_project() {
    let store = Store::new();
    let mut connection = store.connect();
    let mut ears = Ears::new(&mut connection);
    announce(&store, &announcement(1, "p"));
    let a = master(1, 1, 0);
    let token = store.hold(&a);
    assert_eq!(store.without_writing(|| store.revoke(&a.resource, Some(token + 1))), 0);
    assert_eq!(store.revoke(&a.resource, Some(token)), 1);
    assert_eq!(store.without_writing(|| store.revoke(&a.resource, None)), 0);
    assert_eq!(ears.next(), lost(&a));
    assert_eq!(ears.next(), released(1));
    assert_eq!(store.hash(&hash_of(1))["is_master"], "0");
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Revoked));
    store.run::<()>(&["SET", MASTER, "lola", "EX", "90"]);
    assert_eq!(store.revoke(&a.resource, None), 1);
    let (_, payload) = ears.next();
    assert_eq!((&payload["session"], &payload["name"]), (&json!("lola"), &Value::Null));
    ears.check_silent(&store);
}

#[test]
fn a_holder_whose_entry_was_taken_is_a_conflict() {
    let store = Store::new();
    let a = permit(1, 1);
    store.hold(&a);
    store.run::<()>(&["ZREM", MAIN, &member(a.id)]);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Conflict));
    assert_eq!(store.gone(&a), GoneReason::Conflict);
    // A permit that waited may queue again.
    store.hold(&permit(2, 1));
    let c = permit(3, 1);
    check_waits(&store, &c, 1, 1);
    store.run::<()>(&["DEL", WAITING, HEARTBEAT]);
    assert_eq!(store.renew(&c), BeatAnswer::Gone(GoneReason::Expired));
    check_waits(&store, &c, 1, 1);
}

#[test]
fn a_server_without_its_data_has_never_heard_of_a_permit() {
    let store = Store::new();
    store.hold(&permit(1, 1));
    check_waits(&store, &permit(2, 1), 1, 1);
    store.run::<()>(&["FLUSHALL"]);
    for id in 1..=2 {
        assert_eq!(store.renew(&permit(id, 1)), BeatAnswer::Gone(GoneReason::Unknown));
    }
    store.hold(&permit(2, 1));
}

#[test]
fn a_clock_that_was_set_back_lets_nobody_overtake() {
    let store = Store::new();
    store.hold(&permit(1, 1));
    check_waits(&store, &permit(2, 1), 1, 1);
    // As if the first waiter had come while the clock was half a second ahead.
    let ahead = (store.now() + 0.5).to_string();
    store.run::<()>(&["ZADD", WAITING, &ahead, &member(permit(2, 1).id)]);
    check_waits(&store, &permit(3, 1), 2, 1);
    check_waits(&store, &permit(4, 1), 3, 1);
}

#[test]
fn beats_of_holders_do_the_work_of_nobody_else() {
    const HOLDERS: u64 = 50;
    let store = Store::new();
    let claims: Vec<_> =
        (1..=HOLDERS).map(|id| permit_of(&format!("s{id}"), u128::from(id), 1)).collect();
    for claim in &claims {
        store.hold(claim);
    }
    let beats: Vec<Beat> = claims.iter().map(beat).collect();
    let before = store.renew_all(beats.clone());
    store.run::<()>(&["CONFIG", "RESETSTAT"]);
    let answers = store.renew_all(beats);
    assert_eq!(answers, before);
    assert!(answers.iter().all(|answer| matches!(answer, BeatAnswer::Held { .. })));
    let calls = |command: &str| {
        let stats: String = store.run(&["INFO", "commandstats"]);
        let line = format!("cmdstat_{command}:calls=");
        let found = stats.lines().find_map(|found| found.strip_prefix(&line)?.split(',').next());
        found.map_or(0, |count| count.parse().unwrap())
    };
    assert_eq!((calls("evalsha"), calls("zadd"), calls("pexpireat")), (1, HOLDERS, HOLDERS));
    assert_eq!((calls("mget"), calls("pttl")), (1, HOLDERS), "all limits at once, and each record");
    let others = ["hmget", "get", "zcard", "zrange", "zrangebyscore", "zscore", "del"].map(calls);
    assert_eq!(others.iter().sum::<u64>(), 0);
}

#[test]
fn a_session_lives_by_its_beats_and_the_dead_are_reaped_once() {
    let store = Store::new();
    let mut connection = store.connect();
    let mut ears = Ears::new(&mut connection);
    for by in 1..=3 {
        announce(&store, &announcement(by, "p"));
    }
    let mut shorter = Beat { subject: announced(1), ttl: TTL / 10 };
    assert_eq!(store.renew_all(vec![shorter.clone()]), [PEER_ROLE]);
    store.check_expiry(&hash_of(1), TTL);
    shorter.ttl = TTL * 2;
    assert_eq!(store.renew_all(vec![shorter]), [PEER_ROLE]);
    store.check_expiry(&hash_of(1), TTL * 2);

    for by in [1, 2] {
        store.run::<()>(&["PEXPIRE", &hash_of(by), "1"]);
        store.until_gone(&hash_of(by));
    }
    assert_eq!(beat_session(&store, 1), BeatAnswer::Gone(GoneReason::Unknown));
    // The session itself knows its name still.
    assert!(!end(&store, 1));
    assert_eq!(ears.next().1["session"], sid(1));
    let standing = store.inspect(&master(1, 1, 0).resource);
    assert_eq!(names(&standing), ["name-3"]);
    let payload =
        json!({"type": "session_ended", "session": sid(2), "name": "name-2", "host": "host-2"});
    assert_eq!(ears.next().1, payload);
    store.without_writing(|| store.inspect(&master(1, 1, 0).resource));
    store.run::<()>(&["SADD", SESSIONS, "dead"]);
    announce(&store, &announcement(4, "p"));
    assert_eq!(ears.next().1["session"], "dead");
    ears.check_silent(&store);
    // One that ran out is there again when it is announced again.
    announce(&store, &announcement(2, "p"));
    assert_eq!(beat_session(&store, 2), PEER_ROLE);
}

#[test]
fn a_session_can_move_and_keeps_its_role() {
    let store = Store::new();
    announce(&store, &announcement(1, "q"));
    store.hold(&master(1, 1, 0));
    announce(&store, &announcement(1, "p"));
    assert_eq!(store.hash(&hash_of(1))["is_master"], "1");
    assert!(!store.run::<bool>(&["EXISTS", "prism:project:default:q:sessions"]));
    assert_eq!(names(&store.inspect(&master(1, 1, 0).resource)), ["name-1"]);
    assert_eq!(beat_session(&store, 1), MASTER_ROLE);
    // The beat corrects what another program got wrong.
    store.run::<()>(&["HSET", &hash_of(1), "is_master", "0"]);
    beat_session(&store, 1);
    assert_eq!(store.hash(&hash_of(1))["is_master"], "1");
}

#[test]
fn of_a_large_project_some_are_named_all_are_counted_and_no_more_are_looked_at() {
    const MANY: u64 = 1000;
    let store = Store::new();
    for by in 1..=MANY {
        store.ask(&Request::Announce(announcement(u128::from(by), "p")));
    }
    let master = resource("master/p");
    let looked_at = || {
        let stats: String = store.run(&["INFO", "commandstats"]);
        let found = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hmget:calls="));
        found.map_or(0, |found| found.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    store.run::<()>(&["CONFIG", "RESETSTAT"]);
    let standing = store.without_writing(|| store.inspect(&master));
    assert_eq!((standing.members, standing.sessions.len()), (MANY, STANDING_LISTED_MAX));
    // A step of a scan may find some more than it was asked for.
    assert!(looked_at() < 2 * STANDING_LISTED_MAX as u64, "{}", looked_at());
    assert_eq!(store.inspect(&master).sessions, standing.sessions, "mostly the same");

    // A caller who knows them asks for the master alone.
    let inspect = |names| {
        let (mut exchange, mut call) = Exchange::inspect_project(&store.layout, &master, names);
        for calls in 1.. {
            match exchange.step(&store.layout, store.call(&call)).unwrap() {
                Step::Done(Answer::Standing(standing)) => return (calls, standing),
                Step::Next(next, invocation) => (exchange, call) = (next, invocation),
                other => panic!("{other:?}"),
            }
        }
        unreachable!()
    };
    store.run::<()>(&["CONFIG", "RESETSTAT"]);
    let known = vec!["known before".into()];
    let (calls, standing) = inspect(known.clone());
    assert_eq!((calls, standing.members, standing.sessions), (1, MANY, known.clone()));
    assert_eq!(looked_at(), 0);
    // When the project has become small, what was known does not count.
    for by in 4..=MANY {
        let (tenant, project) = ("default".into(), "p".into());
        store.ask(&Request::EndSession { session: session(by.into()), tenant, project });
    }
    let (calls, standing) = inspect(known);
    assert_eq!((calls, standing.members, standing.sessions.len()), (2, 3, 3));
    assert_eq!(standing.sessions[0].as_ref(), "name-1");
}

#[test]
fn a_session_that_has_ended_is_not_brought_back_by_a_late_announcement() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    assert!(end(&store, 1));
    store.without_writing(|| announce(&store, &announcement(1, "p")));
    assert_eq!(beat_session(&store, 1), BeatAnswer::Gone(GoneReason::Unknown));
    // The end may be there before it, too.
    assert!(!end(&store, 2));
    announce(&store, &announcement(2, "p"));
    assert_eq!(store.inspect(&resource("master/p")).members, 0);
}
