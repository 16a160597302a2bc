//! A server that came back empty or older, under agents that knew of more.

use std::time::Duration;

use tenure_core::model::{Answer, BeatAnswer, Claim, ClaimAnswer, Request};

use super::super::exchange::{By, Exchange, Invocation, Step, epoch};
use super::store::{Store, beat, claim};
use crate::remote::SharedEpoch;

/// One of every kind.
const KINDS: [&str; 4] = ["leader/x", "lease/l", "semaphore/g", "master/p"];

/// An agent that remembers what it knows of a store.
struct Agent<'a> {
    store: &'a Store,
    epoch: SharedEpoch,
}

impl Agent<'_> {
    fn new(store: &Store) -> Agent<'_> {
        Agent { store, epoch: SharedEpoch::default() }
    }

    fn call(&self, call: &Invocation) -> redis::Value {
        if !call.script.grants() {
            return self.store.call(call);
        }
        let view = self.epoch.ask(call.ttl);
        self.store.say(&call.script.load());
        let reply = self.store.say(&call.judged(&self.store.layout, &view));
        let (report, reply) = epoch::read(&view, reply).unwrap();
        report.into_iter().for_each(|report| self.epoch.hear(&view, report));
        reply
    }

    fn ask(&self, request: &Request) -> Answer {
        let layout = &self.store.layout;
        let (mut exchange, mut call) = Exchange::start(layout, request, By::default());
        loop {
            match exchange.step(layout, self.call(&call)).unwrap() {
                Step::Done(answer) => return answer,
                Step::Next(next, invocation) => (exchange, call) = (next, invocation),
            }
        }
    }

    fn claim(&self, id: u128, of: &str) -> ClaimAnswer {
        self.claim_as(Claim { enqueue: false, ..claim(id, id, of) })
    }

    fn claim_as(&self, claim: Claim) -> ClaimAnswer {
        match self.ask(&Request::Claim(claim)) {
            Answer::Claim(answer) => answer,
            other => panic!("{other:?} is not an answer to a claim"),
        }
    }

    #[track_caller]
    fn holds(&self, id: u128, of: &str) {
        let answer = self.claim(id, of);
        assert!(matches!(answer, ClaimAnswer::Held { .. }), "{of}: {answer:?}");
    }

    #[track_caller]
    fn is_refused(&self, id: u128, of: &str) -> Duration {
        match self.claim(id, of) {
            ClaimAnswer::Quarantined { free_in } => free_in,
            other => panic!("{of}: {other:?}"),
        }
    }

    fn renew(&self, id: u128, of: &str) -> BeatAnswer {
        match self.ask(&Request::Renew(vec![beat(&claim(id, id, of))])) {
            Answer::Renew(mut answers) => answers.remove(0),
            other => panic!("{other:?} is not an answer to a renewal"),
        }
    }
}

fn end_by_hand(store: &Store) {
    store.run::<()>(&["HSET", "tenure:epoch", "until", "0"]);
}

/// Sets the count of the epoch back, as an older dump does.
fn set_back(store: &Store, to: &str) {
    let id: String = store.run(&["HGET", "tenure:epoch", "id"]);
    store.run::<()>(&["SET", &format!("tenure:epoch:{id}"), to]);
}

#[test]
fn an_empty_store_grants_nothing_to_anybody_once_one_agent_knew_of_more() {
    let store = Store::new();
    let [first, second] = [(); 2].map(|()| Agent::new(&store));
    // A store that was never used grants at once.
    first.holds(1, "leader/a");
    second.holds(2, "leader/b");
    store.run::<()>(&["FLUSHALL"]);
    for (id, of) in (10..).zip(KINDS) {
        assert!(first.is_refused(id, of) > Duration::from_secs(2900), "as long as the longest ttl");
        second.is_refused(id + 10, of);
        Agent::new(&store).is_refused(id + 20, of);
    }
    // A waiter gets a place, and keeps it.
    for (id, of) in (50..).zip(KINDS) {
        let waits = second.claim_as(Claim { enqueue: true, ..claim(id, id, of) });
        assert!(matches!(waits, ClaimAnswer::Waiting { position: 1, .. }), "{of}: {waits:?}");
        let beaten = second.renew(id, of);
        assert!(matches!(beaten, BeatAnswer::Waiting { position: 1, .. }), "{of}: {beaten:?}");
    }
    end_by_hand(&store);
    for (id, of) in (50..).zip(KINDS) {
        let beaten = second.renew(id, of);
        assert!(matches!(beaten, BeatAnswer::Held { .. }), "{of}: {beaten:?}");
    }
    first.holds(3, "leader/c");
}

#[test]
fn an_older_store_grants_nothing_and_renews_what_it_has() {
    let store = Store::new();
    let [first, second] = [(); 2].map(|()| Agent::new(&store));
    second.holds(1, "leader/old");
    second.holds(2, "leader/second");
    for id in 10..20 {
        first.holds(id, &format!("leader/{id}"));
    }
    set_back(&store, "2");
    first.is_refused(30, "leader/new");
    // This agent knows of no more writes than the store has.
    second.is_refused(31, "leader/other");
    assert!(matches!(second.renew(1, "leader/old"), BeatAnswer::Held { .. }));
    let release = |id: u128, of: &str| Request::Release {
        claim: claim(id, id, of).id,
        resource: claim(id, id, of).resource,
    };
    let waits = first.claim_as(Claim { enqueue: true, ..claim(40, 40, "leader/old") });
    assert!(matches!(waits, ClaimAnswer::Waiting { .. }), "{waits:?}");
    assert_eq!(second.ask(&release(1, "leader/old")), Answer::Released(true));
    let beaten = first.renew(40, "leader/old");
    assert!(
        matches!(beaten, BeatAnswer::Waiting { .. }),
        "a release passes nothing on: {beaten:?}"
    );
    end_by_hand(&store);
    assert!(matches!(first.renew(40, "leader/old"), BeatAnswer::Held { .. }));
}

#[test]
fn a_loss_is_found_once_however_late_an_agent_comes() {
    let store = Store::new();
    let [first, late, later] = [(); 3].map(|()| Agent::new(&store));
    for (id, agent) in (1..).zip([&first, &late, &later]) {
        agent.holds(id, &format!("leader/{id}"));
    }
    store.run::<()>(&["FLUSHALL"]);
    first.is_refused(10, "leader/x");
    let marked = store.hash("tenure:epoch");
    late.is_refused(11, "leader/x");
    assert_eq!(store.hash("tenure:epoch")["id"], marked["id"]);
    end_by_hand(&store);
    later.holds(12, "leader/x");
    assert_eq!(store.hash("tenure:epoch")["id"], marked["id"]);
    // The next loss removes the mark, and every agent notices that loss.
    store.run::<()>(&["FLUSHALL"]);
    late.is_refused(13, "leader/y");
    first.is_refused(14, "leader/y");
}

#[test]
fn a_newcomer_hides_no_loss_and_is_refused_after_it_was_found() {
    let store = Store::new();
    let [first, second, newcomer] = [(); 3].map(|()| Agent::new(&store));
    first.holds(1, "leader/a");
    second.holds(2, "leader/b");
    store.run::<()>(&["FLUSHALL"]);
    for id in 10..20 {
        newcomer.holds(id, &format!("leader/{id}"));
    }
    first.is_refused(30, "leader/x");
    newcomer.is_refused(31, "leader/x");
    let marked = store.hash("tenure:epoch");
    second.is_refused(32, "leader/x");
    assert_eq!(store.hash("tenure:epoch")["id"], marked["id"], "it was found before");
}

#[test]
fn a_user_without_the_right_to_the_epoch_is_granted_as_before() {
    let store = Store::new();
    let agent = Agent::new(&store);
    store.run::<()>(&["SET", "tenure:epoch", "of another type"]);
    agent.holds(1, "leader/a");
    assert!(matches!(agent.renew(1, "leader/a"), BeatAnswer::Held { .. }));
}
