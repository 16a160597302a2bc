//! Tokens, quarantine, and the limits of [`EngineSettings`].

use std::time::Duration;

use tenure_wire::Kind;
use uuid::Uuid;

use super::super::{Engine, EngineSettings, TokenRange};
use super::check;
use super::transcript::{TOKENS, check_with};
use crate::model::{
    Answer, Claim, ClaimId, Owner, Request, Resource, SessionId, SessionRecord, Terms,
};
use crate::time::Boottime;

#[test]
fn tokens_are_asked_for_in_time_and_never_overdrawn() {
    check_with(
        EngineSettings::default(),
        TokenRange { first: 100, last: 103 },
        "0 claim a by s1 semaphore/g limit=9
         = held 100 of 9
         ! changed semaphore/g
         0 claim b by s1 semaphore/g limit=9
         = held 101 of 9
         ! changed semaphore/g
         0 claim c by s1 semaphore/g limit=3
         = held 102 of 3 instead of 9
         ! changed semaphore/g
         ! reserve tokens
         0 claim d by s1 semaphore/g limit=3
         = waiting 1 of 3
         ! changed semaphore/g
         0 claim e by s1 leader/x
         = held 103
         ! changed leader/x
         0 claim f by s1 leader/y
         = quarantined 0.05
         # Nobody is granted what is not durable.
         1 release a semaphore/g
         = true
         ! changed semaphore/g
         2 extend upto=200
         2 wait
         ! changed semaphore/g
         ! granted d
         2 renew d semaphore/g
         = held 104 of 3",
    );
}

#[test]
fn a_quarantine_grants_nothing_but_renews_and_releases() {
    check(
        "0 claim a by s1 semaphore/g
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g
         = waiting 1 of 1
         ! changed semaphore/g
         5 quarantine until=20
         5 claim c by s1 leader/x
         = quarantined 15
         6 renew a semaphore/g
         = held 1 of 1
         6 claim a by s1 semaphore/g
         = held 1 of 1
         7 release a semaphore/g
         = true
         ! changed semaphore/g
         19 wait
         20 wait
         ! changed semaphore/g
         ! granted b
         20 claim c by s1 leader/x
         = held 3
         ! changed leader/x",
    );
}

#[test]
fn whoever_queues_in_a_quarantine_keeps_the_order_of_claiming() {
    check(
        "0 quarantine until=20
         1 claim a by s1 semaphore/g
         = waiting 1 of 1
         ! changed semaphore/g
         1 claim b by s2 semaphore/g
         = waiting 2 of 1
         ! changed semaphore/g
         2 claim c by s3 semaphore/g try
         = quarantined 18
         3 claim d by s3 semaphore/g
         = waiting 3 of 1
         ! changed semaphore/g
         4 release b semaphore/g
         = true
         ! changed semaphore/g
         19 wait
         20 wait
         ! changed semaphore/g
         ! granted a
         21 release a semaphore/g
         = true
         ! changed semaphore/g
         ! granted d",
    );
}

#[test]
fn a_full_queue_answers_as_if_nobody_wanted_to_queue() {
    check_with(
        EngineSettings { queue_max: 1, ..EngineSettings::default() },
        TOKENS,
        "0 claim a by s1 semaphore/g
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s1 semaphore/g
         = waiting 1 of 1
         ! changed semaphore/g
         0 claim c by s1 semaphore/g
         = contended a free_in=30 of 1",
    );
}

#[test]
fn the_oldest_mark_gives_way() {
    check_with(
        EngineSettings { tombstones_max: 2, ..EngineSettings::default() },
        TOKENS,
        "0 release a leader/x
         = false
         0 release b leader/x
         = false
         0 release c leader/x
         = false
         0 claim c by s1 leader/x
         = gone Released
         0 claim b by s1 leader/x
         = gone Released
         0 claim a by s1 leader/x
         = held 1
         ! changed leader/x",
    );
}

#[test]
fn time_does_not_run_backwards() {
    check(
        "50 claim a by s1 leader/x
         = held 1
         ! changed leader/x
         10 claim b by s2 leader/x
         = contended a free_in=30",
    );
}

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
            }),
        );
        engine.handle(
            instant,
            Request::Claim(Claim {
                id: ClaimId(Uuid::from_u128(number)),
                resource: resource(Kind::Semaphore),
                owner: owner(number),
                ttl: Duration::from_secs(90),
                max_hold: None,
                terms: Terms::Semaphore { limit: 120, keeps: false },
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
