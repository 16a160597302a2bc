//! The cost of a beat as grants grow in number. Prints, and asserts nothing: `cargo test --release
//! -p tenure-core --lib engine::tests::timing -- --ignored --nocapture`.

#![expect(clippy::disallowed_methods, reason = "a sleep would spoil the measurement anyway")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_wire::Kind;
use uuid::Uuid;

use super::super::{Engine, EngineSettings};
use super::TOKENS;
use crate::model::{Beat, Claim, ClaimId, Owner, Request, Resource, SessionId, Subject, Terms};
use crate::time::Boottime;

const TTL: Duration = Duration::from_secs(30);
const BATCH: usize = 512;

fn claim(number: usize) -> Claim {
    let id = Uuid::from_u128(number as u128);
    let owner = Owner { session: SessionId(id), host: Arc::from("host"), name: Arc::from("name") };
    let name = Arc::from(format!("role-{number}"));
    let resource = Resource { tenant: Arc::from("default"), kind: Kind::Leader, name };
    let terms = Terms::Leader;
    Claim { id: ClaimId(id), resource, owner, ttl: TTL, terms, enqueue: false }
}

#[test]
#[ignore = "prints timings"]
fn beats() {
    for grants in [100, 10_000, 100_000] {
        let mut engine = Engine::new(EngineSettings::default(), TOKENS);
        let mut now = Boottime::from_nanos(1);
        let mut beats = Vec::new();
        for number in 0..grants {
            let claim = claim(number);
            let subject = Subject::Claim { claim: claim.id, resource: claim.resource.clone() };
            beats.push(Beat { subject, ttl: TTL });
            engine.handle(now, Request::Claim(claim));
            while engine.poll_effect().is_some() {}
        }
        // Every 10 s all of them, for two minutes: timers come due on the way.
        let mut spent = Duration::ZERO;
        for _ in 0..12 {
            now = now + Duration::from_secs(10);
            for batch in beats.chunks(BATCH) {
                let request = Request::Renew(batch.to_vec());
                let start = Instant::now();
                engine.handle_timeout(now);
                engine.handle(now, request);
                spent += start.elapsed();
            }
        }
        let each = spent / u32::try_from(12 * grants).unwrap();
        println!("{grants:>6} grants: {each:?} a beat");
    }
}
