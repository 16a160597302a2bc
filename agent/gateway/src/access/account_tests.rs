//! What a principal has, by the answers of a store that the tests write.

use std::sync::Arc;

use tenure_bounds::Bounds;
use tenure_core::model::{Beat, BeatAnswer, ClaimAnswer, Owner, SessionRecord, Subject, Terms};
use tenure_wire::{Kind, Role};
use uuid::Uuid;

use super::super::own::SWEEP_EVERY;
use super::super::quotas::Quotas;
use super::*;

const NOW: Boottime = Boottime::from_nanos(9_000_000_000);
const TTL: Duration = Duration::from_secs(30);
const MANY: usize = 10_000;

fn bounds(sessions: usize, holds: usize, waiters: usize) -> KeyBounds {
    let scope =
        Bounds { sessions_max: Some(sessions), holds_max: Some(holds), ..Bounds::default() };
    KeyBounds { scope, waiters_max: Some(waiters), ..KeyBounds::default() }
}

fn id(number: usize) -> ClaimId {
    ClaimId(Uuid::from_u128(number as u128))
}

fn resource() -> Resource {
    Resource { tenant: "t".into(), kind: Kind::Leader, name: "n".into() }
}

fn owner(number: usize) -> Owner {
    Owner {
        session: SessionId(Uuid::from_u128(number as u128)),
        host: "h".into(),
        name: "n".into(),
    }
}

fn claim(number: usize, enqueue: bool) -> Request {
    let (id, resource, owner) = (id(number), resource(), owner(7));
    Request::Claim(Claim { id, resource, owner, ttl: TTL, terms: Terms::Leader, enqueue })
}

fn announce(number: usize) -> Request {
    let word: Arc<str> = "w".into();
    let (tenant, project, surface) = (Arc::clone(&word), Arc::clone(&word), word);
    Request::Announce(SessionRecord {
        owner: owner(number),
        tenant,
        project,
        surface,
        ttl: TTL,
        registered_at: None,
    })
}

fn beat(number: usize) -> Request {
    let subject = Subject::Claim { claim: id(number), resource: resource() };
    Request::Renew(vec![Beat { subject, ttl: TTL }])
}

fn held(token: u64) -> Result<Answer, Failure> {
    Ok(Answer::Claim(ClaimAnswer::Held { token, limit: None, limit_was: None }))
}

fn waiting() -> Result<Answer, Failure> {
    Ok(Answer::Claim(ClaimAnswer::Waiting { position: 1, limit: None, limit_was: None }))
}

fn contended() -> Result<Answer, Failure> {
    let (holder, free_in, limit, limit_was) = (None, None, None, None);
    Ok(Answer::Claim(ClaimAnswer::Contended { holder, free_in, limit, limit_was }))
}

fn beaten(answer: BeatAnswer) -> Result<Answer, Failure> {
    Ok(Answer::Renew(vec![answer]))
}

fn told(facts: &[Fact]) -> Vec<(Event, &str, Option<u64>)> {
    facts.iter().map(|fact| (fact.event, &*fact.outcome, fact.token)).collect()
}

#[test]
fn no_more_than_the_bounds_and_room_comes_back() {
    let (account, bounds) = (Account::default(), bounds(1, 2, 1));
    let allowance = Allowance::default();
    let admit = |at, request: &Request| account.admit(at, request, &bounds, &allowance);
    let bound = |result: Result<(), Denied>| result.err().map(|denied| denied.bound);
    let released = Ok(Answer::Released(true));
    let release = |number| Request::Release { claim: id(number), resource: resource() };

    admit(NOW, &claim(1, true)).unwrap();
    admit(NOW, &claim(1, true)).unwrap();
    assert_eq!(bound(admit(NOW, &claim(2, true))), Some("waiters_max"), "the first may wait");
    account.settle(NOW, &claim(1, true), &held(5));
    admit(NOW, &claim(2, true)).unwrap();
    account.settle(NOW, &claim(2, true), &waiting());
    assert_eq!(bound(admit(NOW, &claim(3, false))), Some("holds_max"), "waiting ones count");
    account.settle(NOW, &release(2), &released);
    admit(NOW, &claim(3, true)).unwrap();
    account.settle(NOW, &claim(3, true), &contended());
    admit(NOW, &claim(4, true)).unwrap();
    account.settle(NOW, &claim(4, true), &Err(Failure::Unavailable(String::new())));
    admit(NOW, &claim(5, true)).unwrap();
    account.settle(NOW, &claim(5, true), &Err(Failure::Unknown(String::new())));
    assert_eq!(bound(admit(NOW, &claim(6, false))), Some("holds_max"), "it may have happened");

    admit(NOW, &announce(1)).unwrap();
    let denied = admit(NOW, &announce(2)).unwrap_err();
    assert!(denied.to_string().starts_with("one more session, beside 1, is more than"), "{denied}");
    admit(NOW, &announce(1)).unwrap();

    // Only what is renewed is counted for longer than its ttl.
    let later = NOW + (TTL - Duration::from_millis(1));
    let answer = BeatAnswer::Held { token: 5, limit: None };
    account.settle(later, &beat(1), &beaten(answer));
    let (after, again) = (NOW + TTL, NOW + TTL + SWEEP_EVERY);
    admit(after, &claim(6, false)).unwrap();
    assert_eq!(bound(admit(again, &claim(7, false))), Some("holds_max"));
    admit(again, &announce(2)).unwrap();
}

#[test]
fn what_became_of_a_claim_is_told_once_and_in_order() {
    let account = Account::default();
    let none = KeyBounds::default();
    let mut facts = Vec::new();
    let gone = |reason| beaten(BeatAnswer::Gone(reason));
    let held_beat = |token| beaten(BeatAnswer::Held { token, limit: None });
    for (request, result) in [
        (announce(7), Ok(Answer::Announced)),
        (claim(1, true), waiting()),
        (beat(1), held_beat(3)),
        (beat(1), held_beat(3)),
        (claim(1, true), held(3)),
        (beat(1), gone(GoneReason::Preempted)),
        (beat(1), gone(GoneReason::Preempted)),
        (claim(2, false), held(4)),
        (Request::Release { claim: id(2), resource: resource() }, Ok(Answer::Released(true))),
        (beat(3), held_beat(9)),
    ] {
        account.admit(NOW, &request, &none, &Allowance::default()).unwrap();
        facts.extend(account.settle(NOW, &request, &result));
    }
    facts.extend(account.lost(id(3), GoneReason::Expired));
    facts.extend(account.lost(id(3), GoneReason::Expired));
    let expected = [
        (Event::Register, "announced", None),
        (Event::Wait, "waiting", None),
        (Event::Grant, "granted", Some(3)),
        (Event::Preemption, "preempted", Some(3)),
        (Event::Grant, "granted", Some(4)),
        (Event::Release, "released", Some(4)),
        (Event::Grant, "found_held", Some(9)),
        (Event::Loss, "expired", Some(9)),
    ];
    assert_eq!(told(&facts), expected);
    assert_eq!(facts[1].session, Some(owner(7).session));
    assert_eq!(facts[1].resource, Some(resource()));
}

#[test]
fn ten_thousand_of_everything_are_counted_and_leave_nothing_behind() {
    let (account, bounds) = (Account::default(), bounds(MANY, MANY, MANY));
    let allowance = Allowance::default();
    for number in 0..MANY {
        for request in [announce(number), claim(number, true)] {
            account.admit(NOW, &request, &bounds, &allowance).unwrap();
        }
        account.settle(NOW, &claim(number, true), &waiting());
    }
    for request in [announce(MANY), claim(MANY, true)] {
        account.admit(NOW, &request, &bounds, &allowance).unwrap_err();
    }
    let role = beaten(BeatAnswer::Session { role: Role::Peer });
    let master = Resource { kind: Kind::Master, ..resource() };
    let subject = Subject::Session { session: owner(0).session, master };
    let beat = Request::Renew(vec![Beat { subject, ttl: TTL * 2 }]);
    account.settle(NOW, &beat, &role);
    let before = NOW + (TTL - Duration::from_millis(1));
    account.admit(before, &claim(MANY, true), &bounds, &allowance).unwrap_err();
    account.admit(before + SWEEP_EVERY, &claim(MANY, true), &bounds, &allowance).unwrap();
    let own = account.own();
    assert_eq!((own.sessions.len(), own.claims.len(), own.waiting), (1, 1, 1));
}

#[test]
fn what_is_kept_is_counted_in_all_and_given_back() {
    let quotas = Quotas { bytes: 3 * 270, ..Quotas::default() };
    let (allowance, bounds) = (Allowance::new(quotas, 4 * 270), KeyBounds::default());
    let (first, second) = (Account::default(), Account::default());
    let admit = |account: &Account, request| account.admit(NOW, &request, &bounds, &allowance);
    for number in 0..3 {
        admit(&first, claim(number, true)).unwrap();
        first.settle(NOW, &claim(number, true), &held(1));
        first.settle(NOW, &beat(number), &beaten(BeatAnswer::Held { token: 1, limit: None }));
    }
    let denied = admit(&first, claim(3, true)).unwrap_err();
    assert_eq!(denied.bound, "limits.bytes_kept_per_principal");
    let text = denied.to_string();
    assert!(text.contains("260 bytes, beside 780 bytes") && text.contains("= 810"), "{text}");
    let denied = [claim(7, true), announce(1)].map(|request| admit(&second, request));
    assert_eq!(denied[0], Ok(()));
    assert_eq!(denied[1].as_ref().unwrap_err().bound, "limits.bytes_kept");
    first.lost(id(0), GoneReason::Expired).unwrap();
    admit(&second, announce(1)).unwrap();
    drop(first);
    assert_eq!(allowance.kept().load(Relaxed), 260 + 256 + 5, "a principal is forgotten");
    let end =
        Request::EndSession { session: owner(1).session, tenant: "w".into(), project: "w".into() };
    second.settle(NOW, &end, &Ok(Answer::Ended(true)));
    second.settle(NOW, &claim(7, true), &contended());
    assert_eq!(allowance.kept().load(Relaxed), 0);
}

#[test]
fn a_key_lowers_and_raises_what_its_principal_may_have() {
    let quotas = Quotas { holds: 2, ..Quotas::default() };
    let (allowance, account) = (Allowance::new(quotas, usize::MAX), Account::default());
    let admit = |number, bounds: &KeyBounds| {
        account.admit(NOW, &claim(number, false), bounds, &allowance).map_err(|it| it.bound)
    };
    let default = KeyBounds::default();
    admit(0, &default).unwrap();
    assert_eq!(admit(1, &bounds(1, 1, 1)), Err("holds_max"));
    admit(1, &default).unwrap();
    assert_eq!(admit(2, &default), Err("limits.holds_per_principal"));
    admit(2, &bounds(1, 3, 1)).unwrap();
}

#[test]
fn calls_under_way_are_counted_apart_from_beats() {
    let quotas = Quotas { calls: 2, ..Quotas::default() };
    let (allowance, bounds) = (Allowance::new(quotas, usize::MAX), KeyBounds::default());
    let account = Account::default();
    let begin = |beats| account.begin_call(beats, &bounds, &allowance);
    let held = [begin(false).unwrap(), begin(false).unwrap(), begin(true).unwrap()];
    assert_eq!(begin(false).unwrap_err().bound, "limits.calls_per_principal");
    begin(true).unwrap();
    drop(held);
    begin(false).unwrap();
}

#[test]
fn the_normal_load_of_an_agent_is_within_the_defaults() {
    let (account, allowance) = (Account::default(), Allowance::default());
    for number in 0..5 * MANY {
        let request = claim(number, number >= 4 * MANY);
        account.admit(NOW, &request, &KeyBounds::default(), &allowance).unwrap();
    }
}

/// What a store says of another resource, or of another project, says nothing of what a principal has.
#[test]
fn a_quota_is_not_forgotten_by_asking_about_something_else() {
    let (account, bounds, allowance) = (Account::default(), bounds(1, 1, 1), Allowance::default());
    let settle = |request: &Request, result| account.settle(NOW, request, &result);
    let is_full = || {
        let is_refused = |request| account.admit(NOW, &request, &bounds, &allowance).is_err();
        is_refused(claim(2, false)) && is_refused(announce(2))
    };
    for request in [announce(1), claim(1, false)] {
        account.admit(NOW, &request, &bounds, &allowance).unwrap();
    }
    settle(&announce(1), Ok(Answer::Announced));
    settle(&claim(1, false), held(5));
    assert!(is_full());

    let other = Resource { name: "other".into(), ..resource() };
    let of_claim = Subject::Claim { claim: id(1), resource: other.clone() };
    let master = Resource { kind: Kind::Master, ..other.clone() };
    let of_session = Subject::Session { session: owner(1).session, master };
    for reason in [GoneReason::Conflict, GoneReason::Unknown, GoneReason::Expired] {
        for subject in [of_claim.clone(), of_session.clone()] {
            let beat = Request::Renew(vec![Beat { subject, ttl: TTL }]);
            assert_eq!(settle(&beat, beaten(BeatAnswer::Gone(reason))), []);
        }
        let Request::Claim(again) = claim(1, false) else { unreachable!() };
        let again = Request::Claim(Claim { resource: other.clone(), ..again });
        assert_eq!(settle(&again, Ok(Answer::Claim(ClaimAnswer::Gone(reason)))), []);
    }
    let release = Request::Release { claim: id(1), resource: other.clone() };
    assert!(!settle(&release, Ok(Answer::Released(false)))[0].has_effect());
    let (session, word) = (owner(1).session, Arc::from("other"));
    let end = Request::EndSession { session, tenant: Arc::clone(&word), project: word };
    assert!(!settle(&end, Ok(Answer::Ended(false)))[0].has_effect());
    assert!(is_full(), "all of it was about something else");

    // A beat, or an announcement, with a shorter ttl takes no time away.
    let short = Duration::from_millis(1);
    let subject = Subject::Claim { claim: id(1), resource: resource() };
    let beat = Request::Renew(vec![Beat { subject, ttl: short }]);
    settle(&beat, beaten(BeatAnswer::Held { token: 5, limit: None }));
    let Request::Announce(record) = announce(1) else { unreachable!() };
    settle(&Request::Announce(SessionRecord { ttl: short, ..record }), Ok(Answer::Announced));
    let later = NOW + TTL / 2;
    assert!(account.admit(later, &claim(2, false), &bounds, &allowance).is_err());
    assert!(account.admit(later, &announce(2), &bounds, &allowance).is_err());

    // Nor does an announcement that the store refuses.
    settle(&announce(1), Err(Failure::Unavailable(String::new())));
    assert!(account.admit(later, &announce(2), &bounds, &allowance).is_err());

    // The id of a claim is known in its tenant alone.
    let Request::Claim(elsewhere) = claim(1, false) else { unreachable!() };
    assert!(!account.is_elsewhere(NOW, &elsewhere));
    let resource = Resource { tenant: "another".into(), ..resource() };
    assert!(account.is_elsewhere(NOW, &Claim { resource, ..elsewhere }));
}

/// An announcement of a session that is known is judged by the bytes that it adds.
#[test]
fn bytes_of_a_session_are_judged_when_they_grow() {
    let account = Account::default();
    let scope = Bounds { sessions_max: Some(1), ..Bounds::default() };
    let bounds = KeyBounds { scope, bytes_max: Some(1000), ..KeyBounds::default() };
    let announced = |length: usize| {
        let Request::Announce(record) = announce(1) else { unreachable!() };
        let request =
            Request::Announce(SessionRecord { surface: "x".repeat(length).into(), ..record });
        account.admit(NOW, &request, &bounds, &Allowance::default())?;
        account.settle(NOW, &request, &Ok(Answer::Announced));
        Ok::<(), Denied>(())
    };
    announced(100).unwrap();
    announced(600).unwrap();
    assert_eq!(announced(900).unwrap_err().bound, "bytes_max");
    announced(600).unwrap();
}

#[test]
fn what_runs_out_is_asked_about_until_the_store_tells_and_told_once() {
    let account = Account::default();
    account.settle(NOW, &claim(1, false), &held(5));
    account.settle(NOW, &claim(2, false), &held(6));
    account.settle(NOW, &announce(1), &Ok(Answer::Announced));
    assert_eq!(account.overdue(NOW + SWEEP_EVERY), []);
    let later = NOW + TTL * 2;
    let overdue = account.overdue(later);
    assert_eq!(overdue.len(), 3);
    let beats = overdue.into_iter().map(|subject| Beat { subject, ttl: Duration::ZERO });
    let request = Request::Renew(beats.collect());
    let Request::Renew(beats) = &request else { unreachable!() };
    let answers = |of: &dyn Fn(&Subject) -> BeatAnswer| {
        Ok(Answer::Renew(beats.iter().map(|beat| of(&beat.subject)).collect()))
    };
    let away = answers(&|_| BeatAnswer::Failed("away".to_owned()));
    assert_eq!(account.settle_ends(&request, &away), []);
    assert_eq!(account.overdue(later + SWEEP_EVERY).len(), 3, "they are asked about again");
    // The second one was renewed through another gateway.
    let told_now = answers(&|subject| match subject {
        Subject::Claim { claim, .. } if *claim == id(2) => {
            BeatAnswer::Held { token: 6, limit: None }
        }
        Subject::Claim { .. } => BeatAnswer::Gone(GoneReason::Expired),
        Subject::Session { .. } => BeatAnswer::Gone(GoneReason::Unknown),
    });
    let facts = account.settle_ends(&request, &told_now);
    let mut losses = told(&facts);
    losses.sort_unstable_by_key(|(_, _, token)| *token);
    let loss = (Event::Loss, "expired");
    assert_eq!(losses, [(loss.0, loss.1, None), (loss.0, loss.1, Some(5))]);
    assert_eq!(account.settle_ends(&request, &told_now), []);
    assert_eq!(account.overdue(later + SWEEP_EVERY * 2), []);
}

#[test]
fn what_runs_out_and_is_heard_of_again_is_as_it_was() {
    let account = Account::default();
    account.settle(NOW, &claim(1, false), &held(5));
    let later = NOW + TTL * 2;
    assert_eq!(account.overdue(later).len(), 1);
    let answer = beaten(BeatAnswer::Held { token: 5, limit: None });
    assert_eq!(account.settle(later, &beat(1), &answer), [], "its grant was told");
    assert_eq!(account.overdue(later + SWEEP_EVERY), []);
    let gone = beaten(BeatAnswer::Gone(GoneReason::Preempted));
    let facts = account.settle(later, &beat(1), &gone);
    assert_eq!(told(&facts), [(Event::Preemption, "preempted", Some(5))]);
}
