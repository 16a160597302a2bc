//! Hints that carry a grant.

use std::time::Duration;

use serde_json::json;
use tenure_wire::{Kind, LostReason};
use uuid::Uuid;

use super::bench::{ALICE, Bench, Link, lost};
use crate::keeper::{self, Reply};
use crate::model::{Change, ClaimId, GrantHint, Quota, Request, Resource};
use crate::time::Boottime;

const KINDS: [Kind; 4] = [Kind::Leader, Kind::Master, Kind::Lease, Kind::Semaphore];

/// Somebody who waits for what another one has.
struct Wait {
    bench: Bench,
    resource: Resource,
    holder: ClaimId,
    waiter: ClaimId,
    session: Uuid,
}

impl Wait {
    fn begin(kind: Kind) -> Wait {
        let mut bench = Bench::new();
        let [first, session] =
            [(); 2].map(|()| bench.register(json!({"tether": "process", "project": "p"})));
        let holder = ClaimId(bench.hold(first, json!({"kind": kind, "name": "p"})));
        let ticket = bench.acquire(session, json!({"kind": kind, "name": "p", "wait": "queue"}));
        let waiter = match bench.reply(ticket) {
            Some(Ok(Reply::Waiting(waiting))) => ClaimId(waiting.hold),
            other => panic!("{other:?}"),
        };
        let resource = Resource { tenant: "default".into(), kind, name: "p".into() };
        Wait { bench, resource, holder, waiter, session }
    }

    /// The holder goes, and nobody here hears of that. The grant to the waiter.
    fn pass_on(&mut self) -> GrantHint {
        let release = Request::Release { claim: self.holder, resource: self.resource.clone() };
        let now = self.bench.now;
        self.bench.engine.handle(now, release);
        let effects = std::iter::from_fn(|| self.bench.engine.poll_effect());
        let hint = effects.filter_map(|effect| match effect {
            crate::engine::Effect::Change(Change::Granted { claim, grant, .. }) => {
                grant.filter(|_| claim == self.waiter)
            }
            _ => None,
        });
        hint.last().unwrap()
    }

    fn tell(&mut self, grant: &GrantHint) {
        let (claim, resource) = (self.waiter, self.resource.clone());
        let change = Change::Granted { claim, resource, grant: Some(grant.clone()) };
        let now = self.bench.now;
        self.bench.keeper.handle_change(now, change);
        self.bench.settle();
    }

    fn valid_until(&self) -> Boottime {
        self.bench.page.get(&self.waiter).map_or(Boottime::ZERO, |(_, until, _)| *until)
    }
}

#[test]
fn a_hint_makes_its_waiter_a_holder_until_others_may_be_granted_it_and_a_beat_for_longer() {
    for kind in KINDS {
        let mut wait = Wait::begin(kind);
        wait.bench.link = Link::Hung;
        let hint = wait.pass_on();
        wait.tell(&hint);
        assert!(wait.valid_until() > wait.bench.now, "{kind}: without an answer");
        assert!(wait.valid_until() < hint.confirm_by, "{kind}");
        let until = wait.valid_until();
        // Once more is the same once.
        wait.tell(&hint);
        assert_eq!(wait.valid_until(), until, "{kind}: it never prolongs");
        wait.bench.set_link(Link::Up);
        assert!(wait.valid_until() > hint.confirm_by, "{kind}: the beat is answered");
    }
}

#[test]
fn a_hint_whose_beat_is_never_answered_holds_no_longer_than_it_says() {
    for kind in KINDS {
        let mut wait = Wait::begin(kind);
        let stream = wait.bench.listen(wait.session, None);
        wait.bench.link = Link::Down;
        let hint = wait.pass_on();
        wait.tell(&hint);
        let until = wait.valid_until();
        wait.bench.pass(until.since(wait.bench.now));
        assert!(!wait.bench.is_valid(wait.waiter.0), "{kind}");
        assert!(wait.bench.heard(stream).contains(&lost(LostReason::Expired)), "{kind}");
    }
}

#[test]
fn a_hint_that_comes_too_late_or_for_nobody_grants_nothing() {
    for kind in KINDS {
        // The store has passed it on.
        let mut wait = Wait::begin(kind);
        wait.bench.link = Link::Down;
        let hint = wait.pass_on();
        wait.bench.pass(hint.confirm_by.since(wait.bench.now) + Duration::from_secs(1));
        wait.tell(&hint);
        assert_eq!(wait.valid_until(), Boottime::ZERO, "{kind}: too late");

        // The wait was given up meanwhile.
        let mut wait = Wait::begin(kind);
        let hint = wait.pass_on();
        let (session, hold) = (wait.session, wait.waiter.0);
        wait.bench.release(session, Some(hold)).unwrap();
        wait.tell(&hint);
        assert_eq!(wait.valid_until(), Boottime::ZERO, "{kind}: nobody waits");
    }
}

#[test]
fn a_waiter_whose_claim_took_effect_late_claims_again_when_it_is_granted() {
    for kind in KINDS {
        let mut wait = Wait::begin(kind);
        let bench = &mut wait.bench;
        bench.release(wait.session, Some(wait.waiter.0)).unwrap();
        let front = bench.register(json!({"tether": "process", "project": "p"}));
        // Both claim in one turn, and stand in line here since no answer came.
        bench.link = Link::RepliesLost;
        for session in [front, wait.session] {
            let fields = json!({"session": session, "kind": kind, "name": "p", "wait": "queue"});
            let acquire = keeper::Request::Acquire(serde_json::from_value(fields).unwrap());
            bench.say(Quota::default(), ALICE, acquire);
        }
        bench.settle();
        bench.link = Link::Up;
        let now = bench.now;
        let waiters = bench.engine.inspect(now, &wait.resource).waiters;
        let [first, second] = [0, 1].map(|place| waiters[place].claim);
        for claim in [first, wait.holder] {
            let request = Request::Release { claim, resource: wait.resource.clone() };
            wait.bench.engine.handle(now, request);
        }
        wait.waiter = second;
        let (claim, resource) = (second, wait.resource.clone());
        wait.bench.keeper.handle_change(now, Change::Granted { claim, resource, grant: None });
        wait.bench.settle();
        assert!(wait.bench.is_valid(second.0), "{kind}");
        assert!(!wait.bench.is_valid(first.0), "{kind}");
    }
}
