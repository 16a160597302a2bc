//! Semaphores that Tenure agents share with clients of the Python package.

use tenure_core::model::{BeatAnswer, ClaimAnswer, GoneReason};

use super::super::layout::member;
use super::foreign::Foreign;
use super::kinds::{MAIN, check_waits, held_of, look_after, permit, waiting};
use super::store::{Store, resource};

const KEYS: [&str; 5] = [
    MAIN,
    "adv-sem:semaphore_ttl:g",
    "adv-sem:semaphore_max:g",
    "adv-sem:semaphore_waiting:g",
    "adv-sem:semaphore_waiting_heartbeat:g",
];

#[test]
fn both_hold_permits_of_one_semaphore() {
    let store = Store::new();
    let mut theirs = Foreign::new(&store, "g", 0xf1);
    theirs.limit = 2;
    theirs.acquire();
    let a = permit(1, 2);
    store.hold(&a);
    check_waits(&store, &permit(2, 2), 1, 2);
    let late = Foreign::new(&store, "g", 0xf2);
    late.queue();
    assert_eq!(late.wake_up(), 0);
    let standing = store.inspect(&resource("semaphore/g"));
    // A holder without those facts, which is of another program, stands last.
    let names: Vec<_> = standing.holders.iter().map(|it| it.owner.name.to_string()).collect();
    assert_eq!(names, ["name-1".to_owned(), theirs.id.clone()]);
    assert_eq!(&*standing.holders[1].owner.host, "unknown");
    assert_eq!(standing.holders[1].token, 0);
    assert_eq!(standing.waiters[1].claim.0.simple().to_string(), late.id);
    assert_eq!(standing.limit, Some(2));
}

#[test]
fn a_release_hands_over_to_a_waiter_of_another_program_at_once() {
    let store = Store::new();
    let a = permit(1, 1);
    store.hold(&a);
    let theirs = Foreign::new(&store, "g", 0xf1);
    theirs.queue();
    assert_eq!(theirs.wake_up(), 0);
    check_waits(&store, &permit(2, 1), 2, 1);
    assert!(store.release(&a));
    assert!(theirs.is_notified());
    assert!(theirs.confirm());
    assert_eq!(theirs.ping(), (0, 1));
    assert_eq!(store.renew(&permit(2, 1)), waiting(1, 1));
}

#[test]
fn a_waiter_of_another_program_has_ten_seconds_to_confirm() {
    let store = Store::new();
    store.hold(&permit(1, 1));
    let theirs = Foreign::new(&store, "g", 0xf1);
    theirs.queue();
    store.release(&permit(1, 1));
    let until: f64 = store.run(&["ZSCORE", MAIN, &theirs.id]);
    let left = until - store.now();
    assert!(left <= 10.0, "{left}");
    let notification = format!("adv-sem:acquisition_notification:{}", theirs.id);
    assert!((1..=20).contains(&store.run::<i64>(&["TTL", &notification])));
}

#[test]
fn their_release_wakes_nobody_but_upkeep_does() {
    let store = Store::new();
    let theirs = Foreign::new(&store, "g", 0xf1);
    theirs.acquire();
    let (a, other) = (permit(1, 1), Foreign::new(&store, "g", 0xf2));
    check_waits(&store, &a, 1, 1);
    other.queue();
    assert_eq!(theirs.release(), 1);
    let cared = look_after(&store, true);
    assert_eq!((cared.holders, cared.waiting), (1, 1));
    let BeatAnswer::Held { token, .. } = store.renew(&a) else { panic!("not granted") };
    assert!(token > 0);
    // Also where both are of the other program.
    store.release(&a);
    assert!(other.is_notified() && other.confirm());
    theirs.queue();
    assert_eq!(other.release(), 1);
    look_after(&store, false);
    assert!(theirs.is_notified() && theirs.confirm());
}

#[test]
fn a_permit_that_they_granted_gets_its_token_with_the_next_beat() {
    let store = Store::new();
    let theirs = Foreign::new(&store, "g", 0xf1);
    theirs.acquire();
    let a = permit(1, 1);
    check_waits(&store, &a, 1, 1);
    assert_eq!(theirs.release(), 1);
    let waker = Foreign::new(&store, "g", 0xf2);
    waker.queue();
    assert_eq!(waker.wake_up(), 1);
    assert!(!waker.is_notified());
    let notification = format!("adv-sem:acquisition_notification:{}", member(a.id));
    assert!(store.run::<bool>(&["EXISTS", &notification]));
    let before = store.floor.get();
    let answer = store.renew(&a);
    let BeatAnswer::Held { token, limit: Some(1) } = answer else { panic!("{answer:?}") };
    assert!(token > before);
    assert!(!store.run::<bool>(&["EXISTS", &notification]));
    assert_eq!(store.renew(&a), held_of(token, 1));
    assert_eq!(store.hold(&a), token);
    let ends: Option<f64> = store.run(&["ZSCORE", "adv-sem:semaphore_ttl:g", &member(a.id)]);
    assert!(ends.is_some());
}

#[test]
fn a_claim_finds_a_permit_that_they_granted() {
    let store = Store::new();
    let theirs = Foreign::new(&store, "g", 0xf1);
    theirs.acquire();
    let a = permit(1, 1);
    check_waits(&store, &a, 1, 1);
    theirs.release();
    assert_eq!(theirs.wake_up(), 1);
    // The waiter's agent repeats its claim instead of a beat.
    let answer = store.claim(&a);
    assert!(matches!(answer, ClaimAnswer::Held { .. }), "{answer:?}");
}

#[test]
fn a_client_with_a_short_ttl_takes_no_keys_away() {
    let store = Store::new();
    let a = permit(1, 2);
    let token = store.hold(&a);
    let mut theirs = Foreign::new(&store, "g", 0xf1);
    (theirs.ttl, theirs.limit) = (5, 2);
    theirs.acquire();
    theirs.ping();
    let b = permit(2, 2);
    check_waits(&store, &b, 1, 2);
    theirs.ping();
    assert!(store.run::<u64>(&["TTL", MAIN]) <= 15);
    look_after(&store, true);
    for key in KEYS {
        let left: u64 = store.run(&["TTL", key]);
        assert!(left > 2_000_000_000, "{key}: {left} s");
    }
    store.without_writing(|| look_after(&store, true));
    // Its limit may expire; then the claims' own is in force.
    store.run::<()>(&["DEL", "adv-sem:semaphore_max:g"]);
    assert_eq!(store.renew(&a), held_of(token, 2));
    assert_eq!(store.run::<u32>(&["GET", "adv-sem:semaphore_max:g"]), 2);
}

#[test]
fn what_their_purge_leaves_behind_is_cleared_away() {
    let store = Store::new();
    let mut theirs = Foreign::new(&store, "g", 0xf1);
    theirs.limit = 2;
    theirs.acquire();
    store.hold(&permit(1, 2));
    store.run::<()>(&["ZADD", MAIN, "XX", "1", &theirs.id]);
    Foreign::new(&store, "g", 0xf2).wake_up();
    let longest = "adv-sem:semaphore_ttl:g";
    assert_eq!(store.run::<u64>(&["ZCARD", longest]), 2);
    look_after(&store, true);
    assert_eq!(
        store.run::<Vec<String>>(&["ZRANGE", longest, "0", "-1"]),
        [member(permit(1, 2).id)]
    );
    store.without_writing(|| look_after(&store, true));
}

#[test]
fn keys_that_the_agent_does_not_share_outlive_their_last_member() {
    let store = Store::new();
    let mut brief = Foreign::new(&store, "g", 0xf1);
    (brief.ttl, brief.limit) = (5, 2);
    let mut lasting = Foreign::new(&store, "g", 0xf2);
    (lasting.heartbeat, lasting.limit) = (600, 2);
    lasting.acquire();
    brief.acquire();
    brief.ping();
    assert!(store.run::<u64>(&["TTL", MAIN]) <= 15);
    look_after(&store, false);
    let left: u64 = store.run(&["TTL", MAIN]);
    assert!((550..=630).contains(&left), "{left}");
    store.without_writing(|| look_after(&store, false));
}

#[test]
fn who_is_evicted_by_a_clock_that_is_ahead_is_told_so() {
    let store = Store::new();
    let (a, b) = (permit(1, 1), permit(2, 1));
    let token = store.hold(&a);
    let mut ahead = Foreign::new(&store, "g", 0xf1);
    ahead.ahead = 3600.0;
    ahead.queue();
    // It came first, and is not waited for behind its clock.
    check_waits(&store, &b, 1, 1);
    assert_eq!(store.renew(&a), held_of(token, 1));
    // It takes both for dead.
    assert_eq!(ahead.wake_up(), 1);
    assert!(ahead.is_notified() && ahead.confirm());
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Conflict));
    assert_eq!(store.renew(&b), BeatAnswer::Gone(GoneReason::Expired));
    check_waits(&store, &b, 1, 1);
    let (holder, _) = store.contended(&{
        let mut late = permit(3, 1);
        late.enqueue = false;
        late
    });
    assert_eq!(holder.claim.0.simple().to_string(), ahead.id);
}

#[test]
fn ids_that_are_no_uuids_are_let_be() {
    let store = Store::new();
    let mut theirs = Foreign::new(&store, "g", 0xf1);
    theirs.id = "worker 7: ümläut%d".to_owned();
    store.hold(&permit(1, 1));
    theirs.queue();
    check_waits(&store, &permit(2, 1), 2, 1);
    store.release(&permit(1, 1));
    assert!(theirs.is_notified() && theirs.confirm());
    let standing = store.inspect(&resource("semaphore/g"));
    assert_eq!(&*standing.holders[0].owner.name, theirs.id.as_str());
    assert_eq!(store.revoke(&resource("semaphore/g"), None), 1);
    assert_eq!(theirs.ping(), (0, 0));
    assert!(matches!(store.renew(&permit(2, 1)), BeatAnswer::Held { .. }));
}

#[test]
fn whoever_waits_on_both_sides_is_served_in_order() {
    let store = Store::new();
    let first = permit(1, 1);
    store.hold(&first);
    let theirs: Vec<_> = (0..3).map(|n| Foreign::new(&store, "g", 0xf0 + n)).collect();
    let ours: Vec<_> = (2..5).map(|id| permit(id, 1)).collect();
    for ((theirs, ours), position) in theirs.iter().zip(&ours).zip([2, 4, 6]) {
        theirs.queue();
        check_waits(&store, ours, position, 1);
    }
    store.release(&first);
    let mut token = 0;
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert!(theirs.is_notified() && theirs.confirm());
        assert_eq!(store.run::<u64>(&["ZCARD", MAIN]), 1);
        theirs.release();
        assert_eq!(look_after(&store, true).holders, 1);
        let BeatAnswer::Held { token: next, .. } = store.renew(ours) else { panic!("overtaken") };
        assert!(next > token);
        token = next;
        assert!(store.release(ours));
    }
    let left = store.keys();
    assert!(left.iter().all(|key| key.starts_with("tenure:")), "{left:?}");
}
