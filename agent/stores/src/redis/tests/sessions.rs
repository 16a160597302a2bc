//! Sessions of a project.

use serde_json::json;
use tenure_core::model::{
    Answer, Beat, BeatAnswer, GoneReason, Request, STANDING_LISTED_MAX, Subject,
};

use super::super::exchange::{Exchange, Step};
use super::master::{
    Ears, MASTER_ROLE, PEER_ROLE, SESSIONS, announce, beat_session, end, hash_of, master, names,
    sid,
};
use super::store::{Store, TTL, announcement, resource, session};

#[test]
fn a_session_says_when_it_came_in_iso_8601() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    let at = store.hash(&hash_of(1))["registered_at"].clone();
    let (date, clock) = at.split_once('T').unwrap();
    let date: Vec<i64> = date.split('-').map(|part| part.parse().unwrap()).collect();
    let clock: Vec<f64> = clock
        .strip_suffix("+00:00")
        .unwrap()
        .split(':')
        .map(|part| part.parse().unwrap())
        .collect();
    // Fliegel and Van Flandern's count of days.
    let (year, month, day) = (date[0], date[1], date[2]);
    let shift = (month - 14) / 12;
    let days = (1461 * (year + 4800 + shift)) / 4 + (367 * (month - 2 - 12 * shift)) / 12
        - (3 * ((year + 4900 + shift) / 100)) / 4
        + day
        - 32075
        - 2_440_588;
    let seconds = (days * 86_400) as f64 + clock[0] * 3600.0 + clock[1] * 60.0 + clock[2];
    assert!((seconds - store.now()).abs() < 60.0, "{at}");
}

#[test]
fn a_session_lives_by_its_beats_and_the_dead_are_reaped_once() {
    let store = Store::new();
    let mut connection = store.connect();
    let mut ears = Ears::new(&mut connection);
    for by in 1..=3 {
        announce(&store, &announcement(by, "p"));
    }
    let mut shorter = Beat { subject: Subject::Session(session(1)), ttl: TTL / 10 };
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
    let payload = json!({"type": "session_ended", "session": sid(2), "name": null, "host": null});
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
fn a_server_without_its_data_has_never_heard_of_anything() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    store.hold(&master(1, 1, 0));
    store.run::<()>(&["FLUSHALL"]);
    assert_eq!(store.renew(&master(1, 1, 0)), BeatAnswer::Gone(GoneReason::Unknown));
    assert_eq!(beat_session(&store, 1), BeatAnswer::Gone(GoneReason::Unknown));
    announce(&store, &announcement(1, "p"));
    assert_eq!(beat_session(&store, 1), PEER_ROLE);
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
