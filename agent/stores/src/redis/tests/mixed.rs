//! Calls about several kinds at once.

use tenure_core::model::{Beat, BeatAnswer, GoneReason, Request, Terms};

use super::super::exchange::{By, Exchange, Verified, verified, verify};
use super::super::layout::member;
use super::kinds::{MASTER_ROLE, announce, announced, master};
use super::store::{Store, TTL, announcement, beat, claim};

#[test]
fn whether_a_claim_holds_still_is_seen_without_a_trace() {
    let store = Store::new();
    let claims = [
        claim(1, 1, "leader/x"),
        claim(2, 1, "master/p"),
        claim(3, 1, "lease/l"),
        claim(4, 1, "acme:leader/x"),
        claim(5, 1, "leader/never"),
        claim(6, 1, "master/never"),
        claim(7, 1, "lease/never"),
        claim(8, 1, "semaphore/g"),
        claim(9, 1, "semaphore/g"),
    ];
    for held in claims[..4].iter().chain(&claims[7..8]) {
        store.hold(held);
    }
    let look = || {
        let claims: Vec<_> = claims.iter().map(|it| (it.id, it.resource.clone())).collect();
        let call = verify(&store.layout, &claims);
        let found = store.without_writing(|| verified(store.call(&call)).unwrap());
        found.into_iter().map(|found| found != Verified::Gone).collect::<Vec<_>>()
    };
    assert_eq!(look(), [true, true, true, true, false, false, false, true, false]);
    store.hold(&master(10, 2, 1));
    store.release(&claims[0]);
    store.expire(&claims[2]);
    store.run::<()>(&["ZREM", "adv-sem:semaphore_main:g", &member(claims[7].id)]);
    assert_eq!(look(), [false, false, false, true, false, false, false, false, false]);
    // The same session as master by another hold.
    store.release(&master(10, 2, 1));
    store.hold(&claim(11, 1, "master/p"));
    assert!(!look()[1]);
    assert_eq!(verified(store.call(&verify(&store.layout, &[]))), Ok(Vec::new()));
}

#[test]
fn a_permit_whose_key_expires_before_long_is_told_apart() {
    let store = Store::new();
    let permit = claim(1, 1, "semaphore/g");
    store.hold(&permit);
    let look = || {
        let call = verify(&store.layout, &[(permit.id, permit.resource.clone())]);
        store.without_writing(|| verified(store.call(&call)).unwrap())
    };
    assert_eq!(look(), [Verified::Held]);
    store.run::<()>(&["EXPIRE", "adv-sem:semaphore_main:g", "3600"]);
    assert_eq!(look(), [Verified::ExpiresSoon]);
}

#[test]
fn what_other_programs_share_can_be_tracked() {
    let store = Store::new();
    let mut command = redis::cmd("CLIENT");
    command.arg("TRACKING").arg("ON").arg("BCAST");
    for prefix in store.layout.shared_prefixes() {
        command.arg("PREFIX").arg(prefix);
    }
    assert_eq!(command.query::<String>(&mut store.connect()).unwrap(), "OK");
}

#[test]
fn terms_of_another_kind_are_refused() {
    let store = Store::new();
    let mut misfit = claim(1, 1, "lease/l");
    misfit.terms = Terms::Leader;
    assert_eq!(store.without_writing(|| store.gone(&misfit)), GoneReason::Conflict);
}

#[test]
fn a_server_without_memory_grants_nothing_but_renews_and_takes_back() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    let kinds = ["leader/x", "master/p", "lease/l", "semaphore/g"];
    let claims: Vec<_> = (1..).zip(kinds).map(|(id, of)| claim(id, 1, of)).collect();
    let tokens: Vec<_> = claims.iter().map(|it| store.hold(it)).collect();
    store.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    for (it, token) in claims.iter().zip(tokens) {
        let answer = store.renew(it);
        assert!(matches!(answer, BeatAnswer::Held { token: it, .. } if it == token), "{answer:?}");
    }
    let beat = Beat { subject: announced(1), ttl: TTL };
    assert_eq!(store.renew_all(vec![beat]), [MASTER_ROLE]);
    for (id, of) in (11..).zip(["leader/y", "master/q", "lease/m", "semaphore/h"]) {
        let request = Request::Claim(claim(id, 1, of));
        let (_, call) = Exchange::start(&store.layout, &request, By::default());
        let error = store.without_writing(|| store.try_call(&call)).unwrap_err();
        assert!(error.to_string().contains("OOM"), "{error}");
    }
    for it in &claims {
        assert!(store.release(it));
    }
}

#[test]
fn everything_is_renewed_in_one_call() {
    let store = Store::new();
    announce(&store, &announcement(1, "p"));
    let kinds =
        ["leader/x", "master/p", "lease/l", "semaphore/g", "acme:leader/x", "acme:semaphore/g"];
    let claims: Vec<_> = (1..).zip(kinds).map(|(id, of)| claim(id, 1, of)).collect();
    let tokens: Vec<_> = claims.iter().map(|it| store.hold(it)).collect();
    let mut beats: Vec<_> = claims.iter().map(beat).collect();
    beats.insert(3, Beat { subject: announced(1), ttl: TTL });
    beats.push(beat(&claim(99, 1, "acme:lease/never")));
    let answers = store.renew_all(beats);
    let mut expected: Vec<_> = claims
        .iter()
        .zip(&tokens)
        .map(|(it, &token)| BeatAnswer::Held {
            token,
            limit: (it.resource.kind == tenure_wire::Kind::Semaphore).then_some(1),
        })
        .collect();
    expected.insert(3, MASTER_ROLE);
    expected.push(BeatAnswer::Gone(GoneReason::Unknown));
    assert_eq!(answers, expected);
}
