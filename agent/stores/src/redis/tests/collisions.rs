//! Keys of another type, by another program, beside keys of Tenure: who does not need them is served.

use tenure_core::model::{ClaimAnswer, Request};

use super::super::exchange::{By, CareOf, Cared, Exchange, care, cared};
use super::kinds::{SESSIONS, announce, lease, master, names, permit, permit_of, routes, sid};
use super::store::{Store, TTL, announcement, claim};

fn of(name: &str) -> CareOf {
    CareOf { tenant: "default".into(), name: name.into(), shared: true }
}

#[test]
fn a_semaphore_with_a_key_of_another_type_takes_no_care_from_others() {
    let store = Store::new();
    store.hold(&permit(1, 1));
    for (spoilt, key) in [
        ("a", "adv-sem:semaphore_main:a"),
        ("b", "adv-sem:semaphore_ttl:b"),
        ("c", "adv-sem:semaphore_waiting:c"),
        ("d", "adv-sem:semaphore_waiting_heartbeat:d"),
    ] {
        store.run::<()>(&["SET", key, "x"]);
        let call = care(&store.layout, &[of(spoilt), of("g"), of(spoilt)], store.floor.get());
        let found = cared(store.call(&call)).unwrap();
        let nobody = Cared { holders: 0, waiting: 0, next: None, foreign: false };
        assert_eq!((found[0], found[2]), (nobody, nobody), "{key}");
        assert_eq!((found[1].holders, found[1].waiting), (1, 0), "{key}");
        assert!(found[1].next.is_some_and(|next| next <= TTL), "{key}");
        assert_eq!(store.run::<String>(&["GET", key]), "x");
    }
}

#[test]
fn a_lease_that_became_a_key_of_another_type_takes_no_route_from_others() {
    let store = Store::new();
    store.hold(&lease(1, 1));
    store.hold(&claim(2, 2, "lease/other"));
    store.run::<()>(&["SET", "tenure:lease:l", "x"]);
    let table = routes(&store, None);
    let listed: Vec<_> = table.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(listed, ["other"]);
    assert!(routes(&store, Some("l")).routes.is_empty());
    assert_eq!(store.run::<String>(&["GET", "tenure:lease:l"]), "x");
}

#[test]
fn a_session_that_is_no_hash_is_passed_over() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    store.run::<()>(&["SET", "prism:session:lola", "{\"as\": \"JSON\"}"]);
    store.run::<()>(&["SADD", SESSIONS, "lola"]);
    let project = master(1, 1, 0);
    assert_eq!(names(&store.inspect(&project.resource)), ["name-1"]);
    // As master it has no name but its id.
    store.run::<()>(&["SET", "prism:master:default:p", "lola", "EX", "90"]);
    assert_eq!(store.inspect(&project.resource).holders.len(), 1, "the first look notes it");
    let standing = store.without_writing(|| store.inspect(&project.resource));
    assert_eq!((standing.holders.len(), names(&standing)), (1, vec!["name-1"]));
    assert!(store.run::<bool>(&["SISMEMBER", SESSIONS, "lola"]));
    store.run::<()>(&["SET", "prism:master:default:p", &sid(1), "EX", "90"]);
    assert!(matches!(store.claim(&project), ClaimAnswer::Held { .. }));
}

#[test]
fn a_claim_that_meets_a_key_of_another_type_writes_nothing() {
    let store = Store::new();
    store.run::<()>(&["HSET", "leader:board", "points", "7"]);
    store.without_writing(|| {
        let request = Request::Claim(claim(1, 1, "leader/board"));
        let (_, call) = Exchange::start(&store.layout, &request, By::default());
        let error = store.try_call(&call).unwrap_err();
        assert_eq!(error.code(), Some("WRONGTYPE"));
    });
    store.hold(&claim(2, 2, "leader/other"));
    store.hold(&permit_of("board", 3, 1));
}
