//! Ten thousand of one sort: what one event costs must not depend on how many there are.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_wire::Waiting;
use uuid::Uuid;

use super::bench::{ALICE, Bench};
use crate::keeper::{Quota, Reply, Request};

const HOLDS_PER_SESSION_MAX: usize = tenure_wire::page::SLOTS as usize;

const CROWD: usize = 10_000;
/// Commands that one waiter's coming, going or moving on may cost.
const STEPS_MAX: usize = 8;
const A_WHILE: Duration = Duration::from_millis(300);

/// Somebody who holds the leader `x`, and waiters behind them, in order.
struct Crowd {
    bench: Bench,
    holder: Uuid,
    sessions: Vec<Uuid>,
    waiters: Vec<(Uuid, Waiting)>,
}

impl Crowd {
    fn gather(count: usize, fields: &Value) -> Crowd {
        let mut bench = Bench::new();
        let holder = bench.register(json!({"tether": "process"}));
        bench.hold(holder, json!({"kind": "leader", "name": "x", "ttl_ms": 3_600_000}));
        let mut crowd = Crowd { bench, holder, sessions: Vec::new(), waiters: Vec::new() };
        for number in 0..count {
            if number % HOLDS_PER_SESSION_MAX == 0 {
                let session = crowd.bench.register(json!({"tether": "process"}));
                crowd.bench.listen(session, None);
                crowd.sessions.push(session);
            }
            crowd.join(fields);
        }
        crowd.bench.pass(A_WHILE);
        crowd
    }

    fn join(&mut self, fields: &Value) {
        let session = *self.sessions.last().unwrap();
        let ticket = self.bench.acquire(session, fields.clone());
        match self.bench.reply(ticket) {
            Some(Ok(Reply::Waiting(waiting))) => self.waiters.push((session, waiting)),
            other => panic!("{other:?}"),
        }
    }

    /// Commands that something costs until all is calm again, and how many events are told.
    fn cost(&mut self, act: impl FnOnce(&mut Bench)) -> (usize, usize) {
        let before = self.bench.done;
        self.bench.events.clear();
        act(&mut self.bench);
        self.bench.pass(A_WHILE);
        (self.bench.done - before, self.bench.events.values().map(Vec::len).sum())
    }
}

fn queued() -> Value {
    json!({"kind": "leader", "name": "x", "wait": "queue", "ttl_ms": 3_600_000})
}

#[test]
fn a_waiter_joins_and_leaves_in_as_many_steps_however_many_wait() {
    let mut crowd = Crowd::gather(CROWD, &queued());
    for (place, (_, waiting)) in (1..).zip(&crowd.waiters) {
        assert_eq!(waiting.position, Some(place), "told the right place at once");
    }
    let session = crowd.bench.register(json!({"tether": "process"}));
    crowd.sessions.push(session);
    let before = crowd.bench.done;
    crowd.join(&queued());
    assert!(crowd.bench.done - before <= STEPS_MAX);
    assert_eq!(crowd.waiters[CROWD].1.position, Some(CROWD as u64 + 1));

    for place in [CROWD, CROWD / 2, 1, 0] {
        let (session, waiting) = crowd.waiters.remove(place);
        let before = crowd.bench.done;
        crowd.bench.release(session, Some(waiting.hold)).unwrap();
        assert!(crowd.bench.done - before <= STEPS_MAX, "the {place}th leaves");
        let (_, told) = crowd.cost(|_| {});
        assert!(told <= 100, "{told} are told that the {place}th has left");
    }
}

#[test]
fn places_are_told_to_the_first_hundred_and_not_at_every_step() {
    let mut crowd = Crowd::gather(1000, &queued());
    let leaving: Vec<_> = crowd.waiters.drain(..50).collect();
    let (_, told) = crowd.cost(|bench| {
        for (session, waiting) in leaving {
            bench.release(session, Some(waiting.hold)).unwrap();
        }
    });
    // Each of those who leave is told of that, and the first hundred of those who stay of their places.
    assert_eq!(told, 50 + 100);

    let leaving: Vec<_> = crowd.waiters.drain(..50).collect();
    let (_, told) = crowd.cost(|bench| {
        for (session, waiting) in leaving {
            bench.release(session, Some(waiting.hold)).unwrap();
            bench.pass(Duration::from_millis(10));
        }
    });
    // Four times a second, for half a second.
    assert!((50 + 100..=50 + 300).contains(&told), "{told}");

    let (session, last) = crowd.waiters.last().unwrap().clone();
    let request = json!({"kind": "leader", "name": "x", "wait": "queue", "request": "again"});
    let status = crowd.bench.acquire(session, request.clone());
    let Some(Ok(Reply::Waiting(behind))) = crowd.bench.reply(status) else { panic!("no place") };
    assert_eq!(behind.position, Some(901));
    crowd.bench.release(session, Some(last.hold)).unwrap();
    let again = crowd.bench.acquire(session, request);
    let Some(Ok(Reply::Waiting(behind))) = crowd.bench.reply(again) else { panic!("no place") };
    assert_eq!(behind.position, Some(900), "whoever asks is told where they stand now");
}

#[test]
fn sessions_of_many_waiters_that_end_together_cost_what_their_waiters_cost() {
    let mut crowd = Crowd::gather(CROWD, &queued());
    let ending: Vec<_> = crowd.sessions.drain(..64).collect();
    let claims = crowd.bench.claims;
    let (steps, _) = crowd.cost(|bench| {
        for session in ending {
            let release = Request::Release(tenure_wire::Release {
                session,
                hold: None,
                exit_status: None,
                stopped: None,
            });
            bench.say(Quota::default(), ALICE, release);
        }
        bench.settle();
    });
    let ended = 64 * HOLDS_PER_SESSION_MAX;
    assert!(steps <= ended * STEPS_MAX, "{steps} steps for {ended} waiters");
    assert!(crowd.bench.claims - claims <= 2, "only the last of many heads claims");
}

#[test]
fn waits_that_end_at_the_same_instant_cost_what_they_cost_alone() {
    let mut fields = queued();
    fields["timeout_ms"] = json!(25_000);
    let mut crowd = Crowd::gather(CROWD, &fields);
    let (steps, claims) = (crowd.bench.done, crowd.bench.claims);
    crowd.bench.pass(Duration::from_secs(30));
    assert!(crowd.bench.done - steps <= CROWD * STEPS_MAX);
    assert!(crowd.bench.claims - claims <= 2);
    crowd.bench.release(crowd.holder, None).unwrap();
    for session in crowd.sessions {
        crowd.bench.release(session, None).unwrap();
    }
    crowd.bench.assert_nothing_left();
}

/// How many beats leave at the fullest instant of the next ten seconds.
fn most_at_once(bench: &mut Bench) -> usize {
    bench.renewals.clear();
    bench.pass(Duration::from_secs(10));
    let at = |instant| {
        bench.renewals.iter().filter(|(at, _)| *at == instant).map(|(_, beats)| beats).sum()
    };
    bench.renewals.iter().map(|(instant, _)| at(*instant)).max().unwrap()
}

#[test]
fn beats_of_holders_meet_and_those_of_waiters_are_spread() {
    const HOLDS: usize = 1000;
    for kind in ["leader", "semaphore"] {
        let mut bench = Bench::new();
        let mut session = Uuid::nil();
        for number in 0..HOLDS {
            if number % HOLDS_PER_SESSION_MAX == 0 {
                session = bench.register(json!({"tether": "process"}));
            }
            bench.hold(session, json!({"kind": kind, "name": format!("n{number}")}));
        }
        let most = most_at_once(&mut bench);
        assert!((HOLDS / 2..=HOLDS).contains(&most), "{most} of {HOLDS} {kind}s at once");
    }
    let mut crowd = Crowd::gather(HOLDS, &queued());
    let most = most_at_once(&mut crowd.bench);
    assert!((1..=HOLDS / 4).contains(&most), "{most} of {HOLDS} waiters at once");
}

#[test]
fn a_grant_moves_the_queue_on_in_as_many_steps_however_many_wait() {
    let mut crowd = Crowd::gather(CROWD, &queued());
    let holder = crowd.holder;
    let (steps, _) = crowd.cost(|bench| {
        bench.release(holder, None).unwrap();
    });
    assert!(steps <= 100 + 4 * STEPS_MAX, "{steps}");
    let (first, next) = (crowd.waiters[0].clone(), crowd.waiters[1].clone());
    assert!(crowd.bench.is_valid(first.1.hold));
    crowd.bench.release(first.0, Some(first.1.hold)).unwrap();
    assert!(crowd.bench.is_valid(next.1.hold));
}
