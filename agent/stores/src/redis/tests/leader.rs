//! Leaders: one holder per role.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::model::{BeatAnswer, ClaimAnswer, GoneReason};

use super::super::layout::hyphenated;
use super::store::{Store, TTL, beat, claim, held, resource};

/// How long records outlive what they are about.
const KEEP: Duration = Duration::from_secs(60);

#[test]
fn a_grant_is_written_as_programs_read_it() {
    let store = Store::new();
    let a = claim(1, 7, "leader/cleanup");
    let token = store.hold(&a);
    assert_eq!(store.run::<String>(&["TYPE", "leader:cleanup"]), "string");
    assert_eq!(store.run::<String>(&["GET", "leader:cleanup"]), hyphenated(a.id.0));
    store.check_expiry("leader:cleanup", TTL);
    assert_eq!(store.run::<u64>(&["GET", "tenure:fence"]), token);
    assert_eq!(store.run::<i64>(&["PTTL", "tenure:fence"]), -1);
    assert!(token as f64 > (store.now() - 60.0) * 1e6, "µs of the server's clock");
    let record = store.hash(&store.record(&a));
    let expected = [
        ("r", "leader:cleanup".to_owned()),
        ("session", hyphenated(a.owner.session.0)),
        ("host", "host-7".to_owned()),
        ("name", "name-7".to_owned()),
        ("ttl", TTL.as_millis().to_string()),
        ("token", token.to_string()),
        ("since", record["since"].clone()),
        ("granted", record["granted"].clone()),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
    assert_eq!(record, expected);
    store.check_expiry(&store.record(&a), TTL + KEEP);
}

#[test]
fn a_record_outlives_its_grant_by_the_same_time_exactly() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    store.hold(&a);
    let at = |key: &str| store.run::<u64>(&["PEXPIRETIME", key]);
    assert_eq!(at(&store.record(&a)) - at("leader:x"), 60_000);
    store.renew(&a);
    assert_eq!(at(&store.record(&a)) - at("leader:x"), 60_000);
}

#[test]
fn a_refused_claim_names_the_holder_and_writes_nothing() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    let token = store.hold(&a);
    let b = claim(2, 2, "leader/x");
    let (holder, free_in) = store.without_writing(|| store.contended(&b));
    assert_eq!((holder.claim, holder.token), (a.id, token));
    assert_eq!(holder.owner, a.owner);
    assert!(holder.since < Duration::from_secs(60));
    assert!(free_in <= TTL && free_in > TTL - Duration::from_secs(60));
    assert_eq!(store.without_writing(|| store.inspect(&a.resource)).holders[0].claim, a.id);
    assert_eq!(store.renew(&b), BeatAnswer::Gone(GoneReason::Unknown));
}

#[test]
fn every_operation_may_be_repeated() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    let token = store.hold(&a);
    assert_eq!(store.hold(&a), token);
    assert_eq!(store.renew(&a), held(token));
    assert_eq!(store.renew(&a), held(token));
    assert!(store.release(&a));
    assert!(!store.release(&a));
    assert_eq!(store.gone(&a), GoneReason::Released);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Released));
    assert_eq!(store.keys(), [store.record(&a), "tenure:fence".to_owned()]);
    let gone = BTreeMap::from([("gone".to_owned(), "released".to_owned())]);
    assert_eq!(store.hash(&store.record(&a)), gone);
    store.check_expiry(&store.record(&a), KEEP);
}

#[test]
fn a_release_that_overtakes_its_claim_wins() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    assert!(!store.release(&a));
    assert_eq!(store.without_writing(|| store.gone(&a)), GoneReason::Released);
}

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
fn an_expired_claim_may_be_claimed_anew_but_not_renewed() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    let first = store.hold(&a);
    store.expire(&a);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Expired));
    let second = store.hold(&a);
    assert!(second > first);
    store.expire(&a);
    let b = claim(2, 2, "leader/x");
    store.hold(&b);
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Expired));
    let (holder, _) = store.contended(&a);
    assert_eq!(holder.claim, b.id);
    // Whoever released it has given it up.
    assert!(!store.release(&a));
    assert_eq!(store.gone(&a), GoneReason::Released);
    assert_eq!(store.run::<String>(&["GET", "leader:x"]), hyphenated(b.id.0));
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
fn a_beat_never_shortens_a_grant() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    let token = store.hold(&a);
    let mut shorter = beat(&a);
    shorter.ttl = Duration::from_secs(2);
    assert_eq!(store.renew_all(vec![shorter.clone()]), [held(token)]);
    store.check_expiry("leader:x", TTL);
    let mut longer = beat(&a);
    longer.ttl = TTL * 2;
    assert_eq!(store.renew_all(vec![longer]), [held(token)]);
    store.check_expiry("leader:x", TTL * 2);
    assert_eq!(store.renew(&a), held(token));
    store.check_expiry("leader:x", TTL * 2);
    store.check_expiry(&store.record(&a), TTL * 2 + KEEP);
    // With less left than asked for it counts.
    store.run::<()>(&["PEXPIRE", "leader:x", "500"]);
    store.run::<()>(&["PEXPIRE", &store.record(&a), "60500"]);
    assert_eq!(store.renew_all(vec![shorter]), [held(token)]);
    assert!(store.run::<u64>(&["PTTL", "leader:x"]) > 1000);
}

#[test]
fn a_claim_is_of_one_resource() {
    let store = Store::new();
    let a = claim(1, 1, "leader/x");
    let token = store.hold(&a);
    let elsewhere = claim(1, 1, "leader/y");
    store.without_writing(|| {
        assert_eq!(store.gone(&elsewhere), GoneReason::Conflict);
        assert_eq!(store.renew(&elsewhere), BeatAnswer::Gone(GoneReason::Conflict));
        assert!(!store.release(&elsewhere));
    });
    assert_eq!(store.renew(&a), held(token));
    assert_eq!(store.renew(&claim(9, 1, "leader/nobody")), BeatAnswer::Gone(GoneReason::Unknown));
}

#[test]
fn tenants_and_names_do_not_meet() {
    let store = Store::new();
    let names =
        ["leader/x", "leader/a:b", "leader/π 日本", "acme:leader/x", "leader/tenant:acme:leader:x"];
    for (id, name) in (1..).zip(names) {
        store.hold(&claim(id, 1, name));
    }
    assert!(store.run::<bool>(&["EXISTS", "tenant:acme:leader:x"]));
    assert!(store.run::<bool>(&["EXISTS", "tenant:acme:tenure:fence"]));
    assert!(store.run::<bool>(&["EXISTS", "leader:a:b"]));
    for (id, name) in (1..).zip(names) {
        assert_eq!(store.inspect(&resource(name)).holders[0].claim, claim(id, 1, name).id);
        assert!(store.release(&claim(id, 1, name)));
    }
}

#[test]
fn a_revoked_leader_is_told_why() {
    let store = Store::new();
    let mut pushed = store.connect();
    let mut subscription = pushed.as_pubsub();
    subscription.subscribe("tenure:lost").unwrap();
    let a = claim(1, 1, "leader/x");
    let token = store.hold(&a);
    assert_eq!(store.without_writing(|| store.revoke(&a.resource, Some(token + 1))), 0);
    assert_eq!(store.revoke(&a.resource, Some(token)), 1);
    assert_eq!(store.without_writing(|| store.revoke(&a.resource, None)), 0);
    let lost: String = subscription.get_message().unwrap().get_payload().unwrap();
    assert_eq!(lost, hyphenated(a.id.0));
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Revoked));
    assert!(!store.release(&a));
    assert_eq!(store.gone(&a), GoneReason::Revoked);
    // A program of today finds its value gone.
    store.run::<()>(&["SET", "leader:x", "pod", "EX", "30"]);
    assert_eq!(store.revoke(&a.resource, None), 1);
    assert!(!store.run::<bool>(&["EXISTS", "leader:x"]));
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
fn more_beats_than_a_call_takes_are_answered_in_order() {
    let store = Store::new();
    let claims: Vec<_> = (1..1100).map(|id| claim(id, 1, &format!("leader/{id}"))).collect();
    let tokens: Vec<_> = claims.iter().map(|it| store.hold(it)).collect();
    let answers = store.renew_all(claims.iter().map(beat).collect());
    assert_eq!(answers, tokens.into_iter().map(held).collect::<Vec<_>>());
    assert_eq!(store.renew_all(Vec::new()), []);
}
