//! An image of thousands of claims that hold and wait.

use std::time::Duration;

use tenure_wire::Kind;
use uuid::Uuid;

use super::super::{Effect, Engine, EngineSettings};
use super::TOKENS;
use crate::model::{
    Answer, Beat, Claim, ClaimId, Owner, Request, Resource, SessionId, Subject, Terms,
};
use crate::time::Boottime;

const RESOURCES: u128 = 100;
const CLAIMS: u128 = 10_000;
const LIMIT: u32 = 10;
const TTL: Duration = Duration::from_secs(30);

fn resource(number: u128) -> Resource {
    let name = format!("r{}", number % RESOURCES).into();
    Resource { tenant: "default".into(), kind: Kind::Semaphore, name }
}

fn claim(number: u128) -> Request {
    let id = Uuid::from_u128(number + 1);
    Request::Claim(Claim {
        id: ClaimId(id),
        resource: resource(number),
        owner: Owner { session: SessionId(id), host: "here".into(), name: "program".into() },
        ttl: TTL,
        terms: Terms::Semaphore { limit: LIMIT, keeps: false, only_own: false },
        enqueue: true,
    })
}

fn effects(engine: &mut Engine) -> Vec<Effect> {
    std::iter::from_fn(|| engine.poll_effect()).collect()
}

fn step(engine: &mut Engine, now: Boottime, request: Request) -> (Answer, Vec<Effect>) {
    let answer = engine.handle(now, request);
    (answer, effects(engine))
}

#[test]
fn ten_thousand_claims_with_queues_go_on_alike_after_a_thaw() {
    let begin = Boottime::from_nanos(1_000_000_000);
    let mut engine = Engine::new(EngineSettings::default(), TOKENS);
    for number in 0..CLAIMS {
        step(&mut engine, begin, claim(number));
    }
    let text = serde_json::to_string(&engine.freeze()).unwrap();
    let mut twin = Engine::thaw(serde_json::from_str(&text).unwrap());
    let mut both = |now: Boottime, request: Request| {
        let one = step(&mut engine, now, request.clone());
        assert_eq!(one, step(&mut twin, now, request), "at {now:?}");
        one
    };

    let later = begin + Duration::from_secs(1);
    let mut granted = 0;
    for number in 0..CLAIMS {
        let id = ClaimId(Uuid::from_u128(number + 1));
        // Repetitions, renewals and releases in turn, of those that hold and of those that wait.
        match number % 3 {
            0 => both(later, claim(number)),
            1 => {
                let subject = Subject::Claim { claim: id, resource: resource(number) };
                both(later, Request::Renew(vec![Beat { subject, ttl: TTL }]))
            }
            _ => {
                let release = Request::Release { claim: id, resource: resource(number) };
                let (answer, effects) = both(later, release);
                granted += effects.len();
                (answer, effects)
            }
        };
    }
    assert!(granted > 0, "waiters moved up");

    // Everybody else runs out, in as many steps as it takes.
    let mut now = later;
    while let Some(due) = engine.poll_timeout() {
        assert_eq!(twin.poll_timeout(), Some(due));
        now = now.max(due);
        engine.handle_timeout(now);
        twin.handle_timeout(now);
        assert_eq!(effects(&mut engine), effects(&mut twin), "at {now:?}");
        if engine.count_claims() == 0 {
            break;
        }
    }
    assert_eq!((engine.count_claims(), twin.count_claims()), (0, 0));
    assert_eq!(engine.freeze(), twin.freeze());
}
