//! The limits of a standing.

use std::time::Duration;

use tenure_wire::Kind;
use uuid::Uuid;

use super::super::{Engine, EngineSettings, TokenRange};
use crate::model::{
    Answer, Claim, ClaimId, Owner, Request, Resource, SessionId, SessionRecord, Terms,
};
use crate::time::Boottime;

#[test]
fn a_standing_lists_the_first_of_each_and_counts_all() {
    let instant = Boottime::from_nanos(1);
    let tokens = TokenRange { first: 1, last: 10_000 };
    let mut engine = Engine::new(EngineSettings::default(), tokens);
    let resource = |kind| Resource { tenant: "default".into(), kind, name: "p".into() };
    let owner = |number: u128| Owner {
        session: SessionId(Uuid::from_u128(number)),
        host: "here".into(),
        name: format!("program {number}").into(),
    };
    for number in 1..=250 {
        engine.handle(
            instant,
            Request::Announce(SessionRecord {
                owner: owner(number),
                tenant: "default".into(),
                project: "p".into(),
                surface: "test".into(),
                ttl: Duration::from_secs(90),
                registered_at: None,
            }),
        );
        engine.handle(
            instant,
            Request::Claim(Claim {
                id: ClaimId(Uuid::from_u128(number)),
                resource: resource(Kind::Semaphore),
                owner: owner(number),
                ttl: Duration::from_secs(90),
                terms: Terms::Semaphore { limit: 120, keeps: false, only_own: false },
                enqueue: true,
            }),
        );
    }
    let mut look = |request| match engine.handle(instant, request) {
        Answer::Standing(standing) => standing,
        other => panic!("{other:?} is no standing"),
    };
    let semaphore = look(Request::Inspect(resource(Kind::Semaphore)));
    assert_eq!((semaphore.holders.len(), semaphore.holding), (100, 120));
    assert_eq!((semaphore.waiters.len(), semaphore.waiting), (100, 130));
    assert_eq!(semaphore.waiters[0].owner, owner(121), "the first ones");
    let master = look(Request::Inspect(resource(Kind::Master)));
    assert_eq!((master.sessions.len(), master.members), (100, 250));
    assert_eq!(&*master.sessions[0], "program 1", "the first ones");
    assert_eq!(look(Request::Holders(resource(Kind::Semaphore))).holders.len(), 120);
}
