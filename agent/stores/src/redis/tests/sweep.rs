//! Sets that cannot expire, and the sweep that takes their dead members out. Counted are commands within scripts,
//! never times.

use std::time::Duration;

use redis::Value;
use serde_json::json;
use tenure_core::model::{BeatAnswer, Claim};

use super::super::exchange::{sweep, swept};
use super::crowd::cost;
use super::kinds::{Ears, SESSIONS, announce, beat_session, end, hash_of, lease, routes, sid};
use super::store::{Store, announcement, claim, resource};

const SETS: &str = "tenure:sets";
const LEASES: &str = "tenure:leases";
/// After a look at a set, and before the first one.
const EVERY: Duration = Duration::from_secs(30);
/// Most commands of a call.
const COMMANDS_MAX: u64 = 700;
/// Most members that a look at a set takes out, or finds alive.
const MEMBERS_MAX: u64 = 64;

/// As if it were time to look at every set.
fn make_due(store: &Store) {
    const DUE: &str = "
        for _, set in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
            redis.call('ZADD', KEYS[1], 1, set)
        end";
    store.run::<()>(&["EVAL", DUE, "1", SETS]);
}

/// A step; how long until the next.
#[track_caller]
fn step(store: &Store) -> Duration {
    let (reply, commands) = cost(store, || store.call(&sweep(&store.layout)));
    assert!(commands <= COMMANDS_MAX, "{commands} commands");
    swept(reply).unwrap()
}

/// All steps that are due; their number.
#[track_caller]
fn sweep_all(store: &Store) -> u64 {
    make_due(store);
    let mut steps = 1;
    while step(store) == Duration::ZERO {
        steps += 1;
        assert!(steps <= 500, "a sweep has no end");
    }
    steps
}

fn members(store: &Store, set: &str) -> Vec<String> {
    let mut members: Vec<String> = store.run(&["SMEMBERS", set]);
    members.sort();
    members
}

fn listed(store: &Store) -> Vec<String> {
    store.run(&["ZRANGE", SETS, "0", "-1"])
}

/// Removes all keys that start with this, as if they had expired.
fn lose(store: &Store, start: &str) {
    const LOSE: &str = "
        for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end";
    store.run::<()>(&["EVAL", LOSE, "0", start]);
}

fn lease_of(id: u128, name: &str) -> Claim {
    claim(id, id, &format!("lease/{name}"))
}

#[test]
fn ten_thousand_projects_and_two_thousand_leases_of_the_dead_are_taken_out() {
    let store = Store::new();
    for id in 0..10_000 {
        announce(&store, &announcement(id, &format!("p{id}")));
    }
    for id in 0..2_000 {
        store.hold(&lease_of(id, &format!("l{id}")));
    }
    let version = routes(&store, Some("l0")).version;
    assert_eq!(store.run::<u64>(&["ZCARD", SETS]), 10_001);
    assert!(step(&store) > EVERY / 2, "the first look has time");
    for start in ["prism:session:", "tenure:lease:"] {
        lose(&store, start);
    }
    let steps = sweep_all(&store);
    assert!(steps <= 250, "{steps} steps");
    let left = store.keys();
    let left = left.iter().filter(|key| !key.starts_with("tenure:claim:"));
    assert_eq!(left.collect::<Vec<_>>(), ["tenure:fence", "tenure:routes"]);
    assert!(routes(&store, None).version > version);
    assert_eq!(step(&store), EVERY);
}

#[test]
fn large_sets_of_the_living_cost_next_to_nothing_and_lose_their_dead() {
    let store = Store::new();
    announce(&store, &announcement(0, "p"));
    const LIVE: &str = "
        for i = 1, ARGV[1] do
            redis.call('HSET', 'prism:session:s' .. i, 'project_id', 'p')
            redis.call('SADD', KEYS[1], 's' .. i)
        end";
    store.run::<()>(&["EVAL", LIVE, "1", SESSIONS, "10000"]);
    make_due(&store);
    let (next, commands) = cost(&store, || step(&store));
    assert!(next > EVERY / 2, "{next:?}");
    assert!(commands <= 2 * MEMBERS_MAX, "{commands} commands");
    const DEAD: &str = "
        for i = 1, ARGV[1] do redis.call('DEL', 'prism:session:s' .. i) end";
    store.run::<()>(&["EVAL", DEAD, "0", "5000"]);
    sweep_all(&store);
    let left: u64 = store.run(&["SCARD", SESSIONS]);
    assert!((5001..6000).contains(&left), "{left}");
    store.run::<()>(&["EVAL", DEAD, "0", "10000"]);
    sweep_all(&store);
    assert_eq!(members(&store, SESSIONS), [sid(0)]);
    assert_eq!(listed(&store), [SESSIONS]);
}

#[test]
fn sessions_of_other_programs_stay_and_the_dead_are_told_of_once() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    announce(&store, &announcement(2, "p"));
    let live = [("s1", "project_id", "p"), ("s2", "agent_identity", "a program of today")];
    for (session, field, value) in live {
        store.run::<()>(&["HSET", &format!("prism:session:{session}"), field, value]);
    }
    store.run::<()>(&["SET", "prism:session:s3", "no hash"]);
    store.run::<()>(&["HSET", "prism:session:away", "project_id", "q"]);
    store.run::<()>(&["SADD", SESSIONS, "s1", "s2", "s3", "away"]);
    store.run::<()>(&["DEL", &hash_of(2)]);
    let mut ears = store.connect();
    let mut ears = Ears::new(&mut ears);
    sweep_all(&store);
    assert_eq!(members(&store, SESSIONS), [&sid(1), "s1", "s2", "s3"]);
    let mut told: Vec<_> = (0..2).map(|_| ears.next()).collect();
    told.sort_by_key(|(_, event)| event["session"].to_string());
    let ended = |session: &str, name: Option<&str>, host: Option<&str>| {
        let event =
            json!({ "type": "session_ended", "session": session, "name": name, "host": host });
        ("prism:events:project:default:p".to_owned(), event)
    };
    let ours = ended(&sid(2), Some("name-2"), Some("host-2"));
    assert_eq!(told, [ours, ended("away", None, None)]);
    sweep_all(&store);
    ears.check_silent(&store);
    // The set of a project whose sessions all ended is struck off.
    end(&store, 1);
    store.run::<()>(&["DEL", SESSIONS]);
    store.run::<()>(&["HSET", &format!("{SESSIONS}:names"), "left", "[\"n\",\"h\"]"]);
    sweep_all(&store);
    assert_eq!(listed(&store), [""; 0]);
    let names: u64 = store.run(&["EXISTS", &format!("{SESSIONS}:names")]);
    assert_eq!(names, 0, "of sessions that another program took out");
}

#[test]
fn a_lease_is_listed_while_it_is_there_and_again_with_its_next_grant() {
    let store = Store::new();
    let (first, mut second) = (lease(1, 1), lease(2, 2));
    second.enqueue = true;
    let (other, at_acme) = (lease_of(3, "other"), claim(4, 4, "acme:lease/l"));
    for claim in [&first, &other, &at_acme] {
        store.hold(claim);
    }
    store.claim(&second);
    sweep_all(&store);
    assert_eq!(members(&store, LEASES), ["l", "other"]);
    store.expire(&first);
    store.release(&other);
    store.expire(&at_acme);
    let version = routes(&store, Some("other")).version;
    sweep_all(&store);
    assert_eq!((members(&store, LEASES).len(), listed(&store)), (0, Vec::new()));
    assert!(store.run::<u64>(&["GET", "tenant:acme:tenure:routes"]) > 0);
    assert!(routes(&store, None).version > version);
    assert!(matches!(store.renew(&second), BeatAnswer::Held { .. }));
    assert_eq!((members(&store, LEASES), listed(&store)), (vec!["l".into()], vec![LEASES.into()]));
    store.without_writing(|| routes(&store, None));
}

#[test]
fn who_frees_a_lease_for_another_lists_it() {
    let store = Store::new();
    let mut second = lease(2, 2);
    second.enqueue = true;
    for free in [Store::release as fn(&Store, &Claim) -> bool, |store, claim| {
        store.revoke(&claim.resource, None) == 1
    }] {
        let first = lease(1, 1);
        store.hold(&first);
        store.claim(&second);
        store.run::<()>(&["DEL", SETS]);
        assert!(free(&store, &first));
        assert_eq!(listed(&store), [LEASES]);
        store.run::<()>(&["FLUSHALL"]);
    }
}

#[test]
fn keys_of_others_in_the_way_cost_no_announcement_and_no_lease() {
    let store = Store::new();
    store.run::<()>(&["SET", SETS, "no sorted set"]);
    announce(&store, &announcement(1, "p"));
    store.hold(&lease(1, 1));
    beat_session(&store, 1);
    store.try_call(&sweep(&store.layout)).unwrap_err();
    store.run::<()>(&["DEL", SETS]);
    // A set that is none is tried again, and a stranger is struck off unread.
    store.run::<()>(&["SET", "prism:project:default:q:sessions", "no set"]);
    store.run::<()>(&["SADD", "stranger", "x"]);
    for set in ["prism:project:default:q:sessions", "stranger", SESSIONS] {
        store.run::<()>(&["ZADD", SETS, "1", set]);
    }
    assert!(step(&store) > EVERY / 2);
    assert_eq!(listed(&store).len(), 2);
    assert_eq!(members(&store, "stranger"), ["x"]);
    assert_eq!(store.inspect(&resource("master/p")).sessions.len(), 1);
}

#[test]
fn a_clock_that_was_ahead_delays_no_sweep() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    store.run::<()>(&["DEL", &hash_of(1)]);
    let ahead = (store.now() + 86_400.0) * 1000.0;
    store.run::<()>(&["ZADD", SETS, &ahead.to_string(), SESSIONS]);
    assert_eq!(store.call(&sweep(&store.layout)), Value::Int(30_000));
    assert_eq!(listed(&store), [""; 0]);
}
