//! What comes due at one instant is done in bounded steps.

use std::sync::Arc;
use std::time::Duration;

use tenure_wire::Kind;
use uuid::Uuid;

use super::super::{Effect, Engine, EngineSettings};
use super::TOKENS;
use crate::model::{
    Answer, Beat, BeatAnswer, Change, Claim, ClaimAnswer, ClaimId, GoneReason, Owner, Request,
    Resource, SessionId, Subject, Terms,
};
use crate::time::Boottime;

const CLAIMS: usize = 10_000;
/// So many effects at most come of one step.
const EFFECTS_MAX: usize = 5000;
const TTL: Duration = Duration::from_secs(30);

fn claim(number: usize, kind: Kind, name: &str) -> Claim {
    let id = Uuid::from_u128(number as u128);
    let owner = Owner { session: SessionId(id), host: Arc::from("host"), name: Arc::from("name") };
    let resource = Resource { tenant: Arc::from("default"), kind, name: Arc::from(name) };
    let terms = match kind {
        Kind::Semaphore => Terms::Semaphore { limit: 20_000, keeps: false, only_own: false },
        _ => Terms::Leader,
    };
    Claim { id: ClaimId(id), resource, owner, ttl: TTL, terms, enqueue: true }
}

fn leader(number: usize) -> Claim {
    claim(number, Kind::Leader, &format!("role-{number}"))
}

fn drain(engine: &mut Engine) -> Vec<Effect> {
    let effects: Vec<_> = std::iter::from_fn(|| engine.poll_effect()).collect();
    assert!(effects.len() < EFFECTS_MAX, "{} effects of one step", effects.len());
    effects
}

fn leaders() -> Engine {
    let mut engine = Engine::new(EngineSettings::default(), TOKENS);
    for number in 1..=CLAIMS {
        engine.handle(Boottime::from_nanos(1), Request::Claim(leader(number)));
        drain(&mut engine);
    }
    engine
}

#[test]
fn claims_that_run_out_at_one_instant_end_in_several_steps() {
    let mut engine = leaders();
    let now = Boottime::from_nanos(1) + TTL;
    let mut steps = 0;
    while engine.poll_timeout().is_some_and(|due| due <= now) {
        engine.handle_timeout(now);
        drain(&mut engine);
        steps += 1;
    }
    assert!((5..100).contains(&steps), "{steps}");
    assert_eq!(engine.count_claims(), 0);
    // Their marks end together as well.
    let later = now + Duration::from_secs(3600);
    while engine.poll_timeout().is_some_and(|due| due <= later) {
        engine.handle_timeout(later);
    }
    assert_eq!(engine.poll_timeout(), None);
}

#[test]
fn a_request_finds_ended_what_ran_out_though_no_step_had_room_for_it() {
    let now = Boottime::from_nanos(1) + TTL;
    let renew = |number| {
        let resource = leader(number).resource;
        let subject = Subject::Claim { claim: leader(number).id, resource };
        Request::Renew(vec![Beat { subject, ttl: TTL }])
    };
    // Claims end in the order of their ids.
    let mut engine = leaders();
    let answer = engine.handle(now, renew(CLAIMS));
    assert_eq!(answer, Answer::Renew(vec![BeatAnswer::Gone(GoneReason::Expired)]));
    assert!(engine.count_claims() > CLAIMS / 2, "the others still wait for their end");

    let mut engine = leaders();
    let mut next = leader(CLAIMS);
    next.id = ClaimId(Uuid::from_u128(1 << 64));
    let answer = engine.handle(now, Request::Claim(next.clone()));
    assert!(matches!(answer, Answer::Claim(ClaimAnswer::Held { .. })), "{answer:?}");
    let effects = drain(&mut engine);
    let lost = |effect: &Effect| matches!(effect, Effect::Change(Change::Lost { claim, .. }) if *claim == leader(CLAIMS).id);
    assert!(effects.iter().any(lost), "its holder is told");

    let mut engine = leaders();
    let Claim { id, resource, .. } = leader(CLAIMS);
    let released = engine.handle(now, Request::Release { claim: id, resource });
    assert_eq!(released, Answer::Released(false));
}

#[test]
fn the_end_of_a_quarantine_grants_in_several_steps_and_in_order() {
    for name in [|_| "one".to_owned(), |number: usize| format!("gpu-{number}")] {
        let mut engine = Engine::new(EngineSettings::default(), TOKENS);
        let end = Boottime::from_nanos(1) + TTL / 2;
        engine.quarantine(end);
        for number in 1..=4000 {
            let claim = claim(number, Kind::Semaphore, &name(number));
            engine.handle(Boottime::from_nanos(1), Request::Claim(claim));
            drain(&mut engine);
        }
        let mut granted = Vec::new();
        let mut steps = 0;
        while engine.poll_timeout().is_some_and(|due| due <= end) {
            engine.handle_timeout(end);
            granted.extend(drain(&mut engine).into_iter().filter_map(|effect| match effect {
                Effect::Change(Change::Granted { claim, .. }) => Some(claim),
                _ => None,
            }));
            steps += 1;
        }
        assert!((2..100).contains(&steps), "{steps}");
        assert_eq!(granted.len(), 4000);
        assert!(name(1) != name(2) || granted.is_sorted());
    }
}

#[test]
fn waiters_that_run_out_with_their_holder_end_in_several_steps_and_a_living_one_is_granted() {
    let permit = |number| {
        let terms = Terms::Semaphore { limit: 1, keeps: false, only_own: false };
        Claim { terms, ..claim(number, Kind::Semaphore, "one") }
    };
    let mut engine = Engine::new(EngineSettings::default(), TOKENS);
    for number in 1..=CLAIMS {
        engine.handle(Boottime::from_nanos(1), Request::Claim(permit(number)));
        drain(&mut engine);
    }
    let last = Claim { ttl: 2 * TTL, ..permit(CLAIMS + 1) };
    engine.handle(Boottime::from_nanos(1), Request::Claim(last.clone()));
    drain(&mut engine);
    let now = Boottime::from_nanos(1) + TTL;
    let mut granted = Vec::new();
    while engine.poll_timeout().is_some_and(|due| due <= now) {
        engine.handle_timeout(now);
        granted.extend(drain(&mut engine).into_iter().filter_map(|effect| match effect {
            Effect::Change(Change::Granted { claim, .. }) => Some(claim),
            _ => None,
        }));
    }
    assert_eq!(granted, [last.id]);
    assert_eq!(engine.count_claims(), 1);
}
