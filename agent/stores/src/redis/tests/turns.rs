//! What goes from waiter to waiter is left open for a moment to programs that poll.

use tenure_core::model::{BeatAnswer, Claim, ClaimAnswer};

use super::kinds::master;
use super::store::{Store, claim};

const KINDS: [(&str, &str, &str); 2] = [
    ("leader", "leader:x", "tenure:queue_turns:leader:x"),
    ("master", "prism:master:default:p", "tenure:queue_turns:master:p"),
];

fn claim_of(kind: &str, id: u128) -> Claim {
    let mut claim = match kind {
        "master" => master(id, id, 0),
        _ => claim(id, id, "leader/x"),
    };
    claim.enqueue = true;
    claim
}

/// The resource went from waiter to waiter since so long ago, and did last so long ago.
fn went_on(store: &Store, turns: &str, since_ms: u64, last_ms: u64) {
    const SET: &str = "
        local t = redis.call('TIME')
        local now = t[1] * 1000 + math.floor(t[2] / 1000)
        redis.call('HSET', KEYS[1], 'since', now - ARGV[1], 'last', now - ARGV[2])";
    let () = store.run(&["EVAL", SET, "1", turns, &since_ms.to_string(), &last_ms.to_string()]);
}

/// The moment for which it is left open has passed.
fn moment_passes(store: &Store, turns: &str) {
    let _: i64 = store.run(&["HSET", turns, "open", "1"]);
}

fn exists(store: &Store, key: &str) -> bool {
    store.run::<i64>(&["EXISTS", key]) == 1
}

#[track_caller]
fn holds(store: &Store, claim: &Claim) {
    let answer = store.renew(claim);
    assert!(matches!(answer, BeatAnswer::Held { .. }), "{answer:?}");
}

#[track_caller]
fn waits(store: &Store, claim: &Claim) {
    let answer = store.renew(claim);
    assert!(matches!(answer, BeatAnswer::Waiting { position: 1, .. }), "{answer:?}");
}

#[test]
fn what_is_handed_over_all_the_time_is_left_open_now_and_then() {
    for (kind, main, turns) in KINDS {
        let store = Store::new();
        let [first, second, third] = [1, 2, 3].map(|id| claim_of(kind, id));
        store.hold(&first);
        store.claim(&second);
        store.release(&first);
        holds(&store, &second);

        store.claim(&third);
        went_on(&store, turns, 31_000, 10);
        store.release(&second);
        assert!(!exists(&store, main), "{kind} is left open");
        waits(&store, &third);
        let mut other = claim_of(kind, 4);
        other.enqueue = false;
        let refused = store.claim(&other);
        assert!(
            matches!(refused, ClaimAnswer::Contended { holder: None, .. }),
            "{kind}: {refused:?}"
        );
        let behind = store.claim(&claim_of(kind, 5));
        assert!(matches!(behind, ClaimAnswer::Waiting { position: 2, .. }), "{kind}: {behind:?}");
        waits(&store, &third);

        moment_passes(&store, turns);
        holds(&store, &third);
        store.release(&third);
        holds(&store, &claim_of(kind, 5));
    }
}

#[test]
fn what_is_handed_over_after_a_rest_is_not_left_open() {
    for (kind, _, turns) in KINDS {
        let store = Store::new();
        let [first, second] = [1, 2].map(|id| claim_of(kind, id));
        store.hold(&first);
        store.claim(&second);
        went_on(&store, turns, 31_000, 6_000);
        store.release(&first);
        holds(&store, &second);
    }
}

#[test]
fn who_polls_and_was_seen_is_left_more() {
    for (kind, main, turns) in KINDS {
        let store = Store::new();
        let _: String = store.run(&["SET", main, "a stranger", "PX", "60000"]);
        let [first, second] = [1, 2].map(|id| claim_of(kind, id));
        store.claim(&first);
        let _: i64 = store.run(&["DEL", main]);
        holds(&store, &first);
        store.claim(&second);
        went_on(&store, turns, 5_100, 5_100);
        store.release(&first);
        waits(&store, &second);
        // Whoever polls took it meanwhile.
        let _: String = store.run(&["SET", main, "a stranger", "PX", "60000"]);
        moment_passes(&store, turns);
        waits(&store, &second);
        let _: i64 = store.run(&["DEL", main]);
        holds(&store, &second);
    }
}
