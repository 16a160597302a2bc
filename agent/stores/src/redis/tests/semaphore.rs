//! Semaphores among Tenure agents.

use std::time::Duration;

use tenure_core::model::{BeatAnswer, Claim, ClaimAnswer, GoneReason, Terms, UpstreamStanding};

use super::super::exchange::{CareOf, Cared, care, cared};
use super::super::layout::{hyphenated, member};
use super::store::{Store, TTL, beat, claim, resource};

const MAIN: &str = "adv-sem:semaphore_main:g";
const LONGEST: &str = "adv-sem:semaphore_ttl:g";
const MAX: &str = "adv-sem:semaphore_max:g";
const WAITING: &str = "adv-sem:semaphore_waiting:g";
const HEARTBEAT: &str = "adv-sem:semaphore_waiting_heartbeat:g";
const FOREVER: Duration = Duration::from_secs(2_147_483_647);

pub(super) fn permit(id: u128, limit: u32) -> Claim {
    permit_of("g", id, limit)
}

fn permit_of(name: &str, id: u128, limit: u32) -> Claim {
    let mut claim = claim(id, id, &format!("semaphore/{name}"));
    claim.terms = Terms::Semaphore { limit, keeps: false };
    claim
}

fn trying(mut claim: Claim) -> Claim {
    claim.enqueue = false;
    claim
}

pub(super) fn held(token: u64, limit: u32) -> BeatAnswer {
    BeatAnswer::Held { token, limit: Some(limit) }
}

pub(super) fn waiting(position: u64, limit: u32) -> BeatAnswer {
    BeatAnswer::Waiting { position, limit: Some(limit) }
}

#[track_caller]
pub(super) fn check_waits(store: &Store, claim: &Claim, position: u64, limit: u32) {
    let expected = ClaimAnswer::Waiting { position, limit: Some(limit), limit_was: None };
    assert_eq!(store.claim(claim), expected);
}

fn score(store: &Store, key: &str, claim: &Claim) -> Option<f64> {
    store.run(&["ZSCORE", key, &member(claim.id)])
}

/// As if the time of a holder or waiter had passed.
pub(super) fn overdue(store: &Store, claim: &Claim) {
    let past = (store.now() - 1.0).to_string();
    for key in [MAIN, HEARTBEAT] {
        store.run::<()>(&["ZADD", key, "XX", &past, &member(claim.id)]);
    }
    store.run::<()>(&["PEXPIRE", &store.record(claim), "59000"]);
}

pub(super) fn look_after(store: &Store, shared: bool) -> Cared {
    let of = CareOf { tenant: "default".into(), name: "g".into(), shared };
    let call = care(&store.layout, &[of], store.floor.get());
    cared(store.call(&call)).unwrap()[0]
}

fn ids(standing: &UpstreamStanding) -> (Vec<u128>, Vec<u128>) {
    let number = |entry: &tenure_core::model::StandingEntry| entry.claim.0.as_u128() >> 64;
    (standing.holders.iter().map(number).collect(), standing.waiters.iter().map(number).collect())
}

#[test]
fn a_permit_is_written_as_the_python_package_reads_it() {
    let store = Store::new();
    let a = permit(1, 3);
    let token = store.hold(&a);
    assert_eq!(
        store.keys(),
        [MAIN, MAX, LONGEST, &store.record(&a), "tenure:fence"].map(str::to_owned)
    );
    assert_eq!(store.run::<Vec<String>>(&["ZRANGE", MAIN, "0", "-1"]), [member(a.id)]);
    assert_eq!(member(a.id).len(), 32);
    let now = store.now();
    let until = score(&store, MAIN, &a).unwrap();
    assert!((until - now - TTL.as_secs_f64()).abs() < 60.0, "{until}");
    let ends = score(&store, LONGEST, &a).unwrap();
    assert!((ends - now - 2_147_483_637.0).abs() < 60.0, "{ends}");
    assert_eq!(store.run::<u32>(&["GET", MAX]), 3);
    for key in [MAIN, LONGEST, MAX] {
        store.check_expiry(key, FOREVER);
    }
    let record = store.hash(&store.record(&a));
    assert_eq!(record["r"], "semaphore:g");
    assert_eq!(record["token"], token.to_string());
    store.check_expiry(&store.record(&a), TTL + Duration::from_secs(60));
}

#[test]
fn a_waiter_is_written_as_the_python_package_reads_it() {
    let store = Store::new();
    store.hold(&permit(1, 1));
    let b = permit(2, 1);
    check_waits(&store, &b, 1, 1);
    let now = store.now();
    assert!((score(&store, WAITING, &b).unwrap() - now).abs() < 60.0);
    let until = score(&store, HEARTBEAT, &b).unwrap();
    assert!((until - now - TTL.as_secs_f64()).abs() < 60.0, "{until}");
    for key in [WAITING, HEARTBEAT] {
        store.check_expiry(key, FOREVER);
    }
    assert!(!store.hash(&store.record(&b)).contains_key("token"));
}

#[test]
fn permits_go_in_the_order_of_claiming() {
    let store = Store::new();
    let claims: Vec<_> = (1..=5).map(|id| permit(id, 2)).collect();
    let first = store.hold(&claims[0]);
    let second = store.hold(&claims[1]);
    assert!(second > first);
    for (position, claim) in (1..).zip(&claims[2..]) {
        check_waits(&store, claim, position, 2);
    }
    assert_eq!(ids(&store.inspect(&resource("semaphore/g"))), (vec![1, 2], vec![3, 4, 5]));
    assert!(store.release(&claims[1]));
    // The permit is given in the same step, and its holder told.
    let notification = format!("adv-sem:acquisition_notification:{}", member(claims[2].id));
    assert_eq!(store.run::<Vec<String>>(&["LRANGE", &notification, "0", "-1"]), ["1"]);
    assert!(store.run::<i64>(&["TTL", &notification]) > 0);
    let BeatAnswer::Held { token, .. } = store.renew(&claims[2]) else { panic!("not granted") };
    assert!(token > second);
    assert!(!store.run::<bool>(&["EXISTS", &notification]));
    assert_eq!(store.renew(&claims[3]), waiting(1, 2));
    assert_eq!(store.renew(&claims[4]), waiting(2, 2));
    // A wait that is given up leaves nothing behind.
    assert!(store.release(&claims[3]));
    assert_eq!(store.renew(&claims[4]), waiting(1, 2));
    for claim in &claims {
        store.release(claim);
    }
    for claim in &claims {
        assert_eq!(store.gone(claim), GoneReason::Released);
    }
    let left = store.keys();
    assert!(left.iter().all(|key| key.starts_with("tenure:")), "{left:?}");
}

#[test]
fn every_operation_may_be_repeated() {
    let store = Store::new();
    let (a, b, c) = (permit(1, 1), permit(2, 1), permit(3, 1));
    let token = store.hold(&a);
    check_waits(&store, &b, 1, 1);
    check_waits(&store, &c, 2, 1);
    assert_eq!(store.hold(&a), token);
    check_waits(&store, &b, 1, 1);
    assert_eq!(store.renew(&a), held(token, 1));
    assert!(store.release(&a));
    assert!(!store.release(&a));
    // The reply to the beat that confirmed is lost, too.
    let granted = store.renew(&b);
    assert_eq!(store.renew(&b), granted);
    let BeatAnswer::Held { token, .. } = granted else { panic!("{granted:?}") };
    assert_eq!(store.hold(&b), token);
    assert_eq!(store.run::<u64>(&["ZCARD", MAIN]), 1);
}

#[test]
fn a_refused_claim_names_the_oldest_holder_and_writes_nothing() {
    let store = Store::new();
    let mut oldest = permit(1, 2);
    oldest.ttl = TTL * 2;
    let token = store.hold(&oldest);
    store.hold(&permit(2, 2));
    let late = trying(permit(3, 2));
    let (holder, free_in) = store.without_writing(|| store.contended(&late));
    assert_eq!((holder.claim, holder.token, &holder.owner), (oldest.id, token, &oldest.owner));
    assert!(free_in > TTL && free_in <= TTL * 2);
    assert_eq!(store.renew(&late), BeatAnswer::Gone(GoneReason::Unknown));
    // The same claim may queue later.
    check_waits(&store, &permit(3, 2), 1, 2);
    store.without_writing(|| store.inspect(&late.resource));
}

#[test]
fn permits_given_in_one_step_stand_in_their_order() {
    let store = Store::new();
    store.hold(&permit(9, 1));
    for id in 1..=3 {
        check_waits(&store, &permit(id, 1), id as u64, 1);
    }
    // A higher limit lets all of them in at once.
    let answer = store.claim(&trying(permit(4, 4)));
    let ClaimAnswer::Contended { holder: Some(holder), limit: Some(4), .. } = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(holder.claim, permit(9, 1).id);
    assert_eq!(ids(&store.inspect(&resource("semaphore/g"))).0, [9, 1, 2, 3]);
    let order: Vec<String> = store.run(&["ZRANGE", LONGEST, "0", "-1"]);
    assert_eq!(order, [9, 1, 2, 3].map(|id| member(permit(id, 1).id)));
}

#[test]
fn a_claim_with_another_limit_changes_it_for_everybody() {
    let store = Store::new();
    let a = permit(1, 1);
    let token = store.hold(&a);
    check_waits(&store, &permit(2, 1), 1, 1);
    check_waits(&store, &permit(3, 1), 2, 1);
    // Raising lets waiters in first, and then the claim itself.
    let BeatAnswer::Waiting { .. } = store.renew(&permit(2, 1)) else { panic!() };
    store.hold(&permit(4, 4));
    assert_eq!(store.renew(&a), held(token, 4));
    // Lowering takes from nobody.
    let answer = store.claim(&trying(permit(5, 1)));
    assert!(matches!(answer, ClaimAnswer::Contended { limit: Some(1), .. }), "{answer:?}");
    assert_eq!(store.renew(&a), held(token, 1));
    assert_eq!(store.run::<u64>(&["ZCARD", MAIN]), 4);
    store.check_expiry(MAX, FOREVER);
}

#[test]
fn a_claim_that_names_no_limit_takes_the_one_in_force() {
    let store = Store::new();
    let unnamed = |id| {
        let mut claim = permit(id, 1);
        claim.terms = Terms::Semaphore { limit: 1, keeps: true };
        claim
    };
    let answer = |claim: &Claim| match store.claim(claim) {
        ClaimAnswer::Held { limit, limit_was, .. }
        | ClaimAnswer::Waiting { limit, limit_was, .. }
        | ClaimAnswer::Contended { limit, limit_was, .. } => (limit, limit_was),
        other => panic!("{other:?}"),
    };
    assert_eq!(answer(&unnamed(1)), (Some(1), None));
    assert_eq!(answer(&permit(2, 3)), (Some(3), Some(1)));
    assert_eq!(answer(&unnamed(3)), (Some(3), None));
    assert_eq!(answer(&unnamed(4)), (Some(3), None), "in the queue");
    assert_eq!(answer(&permit(5, 2)), (Some(2), Some(3)), "in the queue");
    let mut once = permit(6, 1);
    once.enqueue = false;
    assert_eq!(answer(&once), (Some(1), Some(2)), "refused");
    // Without the key it is as the records say.
    store.run::<()>(&["DEL", MAX]);
    assert_eq!(answer(&unnamed(7)), (Some(3), None));
}

#[test]
fn a_limit_goes_with_the_last_user() {
    let store = Store::new();
    store.hold(&permit(1, 5));
    assert!(store.release(&permit(1, 5)));
    assert_eq!(store.inspect(&resource("semaphore/g")), UpstreamStanding::default());
    let nobody = trying(permit(2, 0));
    let answer = store.claim(&nobody);
    let expected =
        ClaimAnswer::Contended { holder: None, free_in: None, limit: Some(0), limit_was: None };
    assert_eq!(answer, expected);
    assert!(!store.run::<bool>(&["EXISTS", MAX]));
    check_waits(&store, &permit(3, 0), 1, 0);
}

#[test]
fn a_dead_holder_is_followed_by_whoever_waits() {
    let store = Store::new();
    let (a, b) = (permit(1, 1), permit(2, 1));
    store.hold(&a);
    check_waits(&store, &b, 1, 1);
    overdue(&store, &a);
    let cared = look_after(&store, true);
    assert_eq!((cared.holders, cared.waiting), (1, 0));
    assert!(cared.next.unwrap() <= Duration::from_secs(5), "until it confirms");
    assert!(matches!(store.renew(&b), BeatAnswer::Held { .. }));
    assert!(look_after(&store, true).next.unwrap() > TTL - Duration::from_secs(60));
    assert_eq!(store.renew(&a), BeatAnswer::Gone(GoneReason::Expired));
    // It may queue again, at the end.
    check_waits(&store, &a, 1, 1);
}

#[test]
fn a_waiter_that_died_keeps_a_permit_for_moments_only() {
    let store = Store::new();
    let (a, b, c) = (permit(1, 1), permit(2, 1), permit(3, 1));
    store.hold(&a);
    check_waits(&store, &b, 1, 1);
    check_waits(&store, &c, 2, 1);
    assert!(store.release(&a));
    let left = |claim| score(&store, MAIN, claim).unwrap() - store.now();
    assert!(left(&b) <= 5.0, "{}", left(&b));
    let record_left: i64 = store.run(&["PTTL", &store.record(&b)]);
    assert!(record_left <= 65_000, "{record_left}");
    // A beat in time makes it a grant like any other.
    assert!(matches!(store.renew(&b), BeatAnswer::Held { .. }));
    assert!(left(&b) > TTL.as_secs_f64() - 60.0);
    assert!(store.release(&b));
    overdue(&store, &c);
    let d = permit(4, 1);
    store.hold(&d);
    // It was alive after all, and comes late.
    assert_eq!(store.renew(&c), BeatAnswer::Gone(GoneReason::Expired));
    check_waits(&store, &c, 1, 1);
}

#[test]
fn a_beat_that_comes_too_late_revives_nothing() {
    let store = Store::new();
    let (a, b) = (permit(1, 1), permit(2, 1));
    store.hold(&a);
    check_waits(&store, &b, 1, 1);
    overdue(&store, &a);
    // Nobody has looked after the semaphore in between.
    let answers = store.renew_all(vec![beat(&a), beat(&b)]);
    assert_eq!(answers[0], BeatAnswer::Gone(GoneReason::Expired));
    assert!(matches!(answers[1], BeatAnswer::Held { .. }), "{answers:?}");
    assert_eq!(score(&store, LONGEST, &a), None);
}

#[test]
fn a_waiter_lives_by_its_beats() {
    let store = Store::new();
    let (a, b, c) = (permit(1, 1), permit(2, 1), permit(3, 1));
    store.hold(&a);
    check_waits(&store, &b, 1, 1);
    check_waits(&store, &c, 2, 1);
    assert_eq!(store.renew(&c), waiting(2, 1));
    overdue(&store, &b);
    assert_eq!(store.renew(&c), waiting(1, 1));
    assert_eq!(store.renew(&b), BeatAnswer::Gone(GoneReason::Expired));
    check_waits(&store, &b, 2, 1);
    assert!(store.release(&a));
    assert_eq!(store.renew(&b), waiting(1, 1));
    // One that was purged and is released does not come back.
    overdue(&store, &b);
    assert!(!store.release(&b));
    assert_eq!(store.gone(&b), GoneReason::Released);
}

#[test]
fn trying_once_does_not_overtake_but_gives_heads_their_due() {
    let store = Store::new();
    let (a, b) = (permit(1, 1), permit(2, 1));
    store.hold(&a);
    check_waits(&store, &b, 1, 1);
    overdue(&store, &a);
    let (holder, _) = store.contended(&trying(permit(3, 1)));
    assert_eq!(holder.claim, b.id);
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
fn a_beat_never_shortens_a_permit() {
    let store = Store::new();
    let a = permit(1, 1);
    let token = store.hold(&a);
    let before = score(&store, MAIN, &a).unwrap();
    let mut shorter = beat(&a);
    shorter.ttl = Duration::from_secs(2);
    assert_eq!(store.renew_all(vec![shorter]), [held(token, 1)]);
    assert_eq!(score(&store, MAIN, &a), Some(before));
    assert_eq!(store.renew(&a), held(token, 1));
    assert!(score(&store, MAIN, &a).unwrap() > before);
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
    store.renew(&claims[0]);
    store.run::<()>(&["CONFIG", "RESETSTAT"]);
    let answers = store.renew_all(claims.iter().map(beat).collect());
    assert!(answers.iter().all(|answer| matches!(answer, BeatAnswer::Held { .. })));
    let calls = |command: &str| {
        let stats: String = store.run(&["INFO", "commandstats"]);
        let line = format!("cmdstat_{command}:calls=");
        let found = stats.lines().find_map(|found| found.strip_prefix(&line)?.split(',').next());
        found.map_or(0, |count| count.parse().unwrap())
    };
    assert_eq!((calls("evalsha"), calls("zadd"), calls("pexpireat")), (1, HOLDERS, HOLDERS));
    let in_all: u64 = ["hmget", "get", "zscore", "zcard", "zrange", "zrangebyscore", "pttl", "del"]
        .map(calls)
        .iter()
        .sum();
    assert_eq!(in_all, 3 * HOLDERS, "the record, the limit and the place");
}

#[test]
fn a_revoked_permit_goes_to_whoever_waits() {
    let store = Store::new();
    let mut pushed = store.connect();
    let mut subscription = pushed.as_pubsub();
    subscription.subscribe("tenure:lost").unwrap();
    let (a, b, c) = (permit(1, 2), permit(2, 2), permit(3, 2));
    let (_, token) = (store.hold(&a), store.hold(&b));
    check_waits(&store, &c, 1, 2);
    assert_eq!(store.without_writing(|| store.revoke(&a.resource, Some(token + 99))), 0);
    assert_eq!(store.revoke(&a.resource, Some(token)), 1);
    let lost: String = subscription.get_message().unwrap().get_payload().unwrap();
    assert_eq!(lost, hyphenated(b.id.0));
    assert_eq!(store.renew(&b), BeatAnswer::Gone(GoneReason::Revoked));
    assert!(matches!(store.renew(&c), BeatAnswer::Held { .. }));
    assert_eq!(store.revoke(&a.resource, None), 2);
    assert_eq!(store.gone(&a), GoneReason::Revoked);
    assert_eq!(store.inspect(&a.resource), UpstreamStanding::default());
}

#[test]
fn upkeep_writes_nothing_where_nothing_is_due() {
    let store = Store::new();
    let none = store.without_writing(|| look_after(&store, true));
    assert_eq!(none, Cared { holders: 0, waiting: 0, next: None, foreign: false });
    store.hold(&permit(1, 1));
    check_waits(&store, &permit(2, 1), 1, 1);
    for shared in [true, false] {
        let cared = store.without_writing(|| look_after(&store, shared));
        assert_eq!((cared.holders, cared.waiting), (1, 1));
        let next = cared.next.unwrap();
        assert!(next <= TTL && next > TTL - Duration::from_secs(60));
    }
}

#[test]
fn upkeep_clears_away_what_the_dead_leave() {
    let store = Store::new();
    let (a, b) = (permit(1, 1), permit(2, 1));
    store.hold(&a);
    check_waits(&store, &b, 1, 1);
    overdue(&store, &a);
    overdue(&store, &b);
    let cared = look_after(&store, false);
    assert_eq!(cared, Cared { holders: 0, waiting: 0, next: None, foreign: false });
    let left = store.keys();
    assert!(left.iter().all(|key| key.starts_with("tenure:")), "{left:?}");
}

#[test]
fn a_long_standing_lists_the_first_and_counts_all() {
    let store = Store::new();
    let ids: Vec<u128> = (1..=600).collect();
    for id in &ids[..300] {
        store.hold(&permit(*id, 300));
    }
    for (position, id) in (1..).zip(&ids[300..]) {
        check_waits(&store, &permit(*id, 300), position, 300);
    }
    let standing = store.without_writing(|| store.inspect(&resource("semaphore/g")));
    assert_eq!(standing.limit, Some(300));
    assert_eq!((standing.holding, standing.waiting), (300, 300));
    let (holders, waiters) = self::ids(&standing);
    assert_eq!((holders.len(), waiters), (100, ids[300..400].to_vec()));
    // Whoever takes it away from all of them sees all of them.
    let standing = store.holders(&resource("semaphore/g"));
    assert_eq!(self::ids(&standing).0, ids[..300].to_vec());
}

#[test]
fn names_and_tenants_do_not_meet() {
    let store = Store::new();
    let names = ["semaphore/g", "semaphore/a:b", "semaphore/日本", "acme:semaphore/g"];
    for (id, name) in (1..).zip(names) {
        let mut it = claim(id, id, name);
        it.terms = Terms::Semaphore { limit: 1, keeps: false };
        store.hold(&it);
        let mut second = claim(id + 10, id, name);
        second.terms = Terms::Semaphore { limit: 1, keeps: false };
        check_waits(&store, &second, 1, 1);
        assert!(store.release(&it));
        assert!(matches!(store.renew(&second), BeatAnswer::Held { .. }));
    }
    assert!(store.run::<bool>(&["EXISTS", "tenant:acme:adv-sem:semaphore_main:g"]));
    assert!(store.run::<bool>(&["EXISTS", "adv-sem:semaphore_main:a:b"]));
    let elsewhere = permit_of("h", 11, 1);
    store.without_writing(|| {
        assert_eq!(store.gone(&elsewhere), GoneReason::Conflict);
        assert!(!store.release(&elsewhere));
    });
    assert_eq!(store.renew(&elsewhere), BeatAnswer::Gone(GoneReason::Conflict));
}
