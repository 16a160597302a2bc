//! Calls about several kinds at once.

use crate::model::{Beat, BeatAnswer, GoneReason, Subject};

use super::super::exchange::{verified, verify};
use super::master::{MASTER_ROLE, announce, master};
use super::store::{Store, TTL, announcement, beat, claim, session};

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
    ];
    for held in &claims[..4] {
        store.hold(held);
    }
    let look = || {
        let claims: Vec<_> = claims.iter().map(|it| (it.id, it.resource.clone())).collect();
        let call = verify(&store.layout, &claims);
        store.without_writing(|| verified(store.call(&call)).unwrap())
    };
    assert_eq!(look(), [true, true, true, true, false, false, false]);
    store.hold(&master(8, 2, 1));
    store.release(&claims[0]);
    store.expire(&claims[2]);
    assert_eq!(look(), [false, false, false, true, false, false, false]);
    // The same session as master by another hold.
    store.release(&master(8, 2, 1));
    store.hold(&claim(9, 1, "master/p"));
    assert!(!look()[1]);
    assert_eq!(verified(store.call(&verify(&store.layout, &[]))), Ok(Vec::new()));
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
    beats.insert(3, Beat { subject: Subject::Session(session(1)), ttl: TTL });
    beats.push(beat(&claim(99, 1, "acme:lease/never")));
    let answers = store.renew_all(beats);
    let mut expected: Vec<_> = claims
        .iter()
        .zip(&tokens)
        .map(|(it, &token)| BeatAnswer::Held {
            token,
            limit: (it.resource.kind == tenure::wire::Kind::Semaphore).then_some(1),
        })
        .collect();
    expected.insert(3, MASTER_ROLE);
    expected.push(BeatAnswer::Gone(GoneReason::Unknown));
    assert_eq!(answers, expected);
}
