//! The order of waiters over an outage in which the store drops them.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_wire::Waiting;
use uuid::Uuid;

use super::bench::{Bench, Link};
use crate::keeper::Reply;

const TTL: Duration = Duration::from_secs(3);

fn queue(bench: &mut Bench, kind: &str, more: &Value) -> (Uuid, Waiting) {
    let session = bench.register(json!({"tether": "process"}));
    let mut fields = json!({"kind": kind, "name": "x", "wait": "queue", "ttl_ms": 3000});
    let more = more.as_object().cloned().unwrap();
    fields.as_object_mut().unwrap().extend(more);
    let ticket = bench.acquire(session, fields);
    match bench.reply(ticket) {
        Some(Ok(Reply::Waiting(waiting))) => (session, waiting),
        other => panic!("{other:?}"),
    }
}

/// The resource passes from one to the next in this order.
#[track_caller]
fn are_granted_in_turn(bench: &mut Bench, waiters: &[(Uuid, Waiting)]) {
    for (number, (session, waiting)) in waiters.iter().enumerate() {
        bench.pass(Duration::from_millis(10));
        assert!(bench.is_valid(waiting.hold), "the {number}th is not next");
        bench.release(*session, Some(waiting.hold)).unwrap();
    }
}

#[test]
fn waiters_that_an_outage_dropped_keep_their_order_also_before_those_that_came_later() {
    // A later waiter asks before the first retry after the outage, or after some retries.
    for (kind, after_ms) in ["leader", "semaphore", "lease"]
        .into_iter()
        .flat_map(|kind| [0, 40, 300].map(|ms| (kind, ms)))
    {
        for link in [Link::Down, Link::RepliesLost] {
            let mut bench = Bench::new();
            let holder = bench.register(json!({"tether": "process"}));
            let long = json!({"kind": kind, "name": "x", "ttl_ms": 3_600_000});
            let hold = bench.hold(holder, long);
            let mut waiters = Vec::new();
            for ttl_ms in [3000, 2500, 4000, 3000, 2000, 3500] {
                waiters.push(queue(&mut bench, kind, &json!({"ttl_ms": ttl_ms})));
                bench.pass(Duration::from_millis(70));
            }
            bench.set_link(Link::Down);
            bench.pass(2 * TTL);
            bench.set_link(link);
            waiters.push(queue(&mut bench, kind, &json!({})));
            bench.pass(Duration::from_millis(after_ms));
            bench.set_link(Link::Up);
            waiters.push(queue(&mut bench, kind, &json!({})));
            bench.pass(Duration::from_secs(10));
            bench.release(holder, Some(hold)).unwrap();
            are_granted_in_turn(&mut bench, &waiters);
        }
    }
}

#[test]
fn a_waiter_whose_beats_go_on_keeps_nobody_waiting() {
    let mut bench = Bench::new();
    let holder = bench.register(json!({"tether": "process"}));
    let hold = bench.hold(holder, json!({"kind": "leader", "name": "x", "ttl_ms": 3_600_000}));
    let first = queue(&mut bench, "leader", &json!({}));
    bench.set_link(Link::Down);
    bench.pass(TTL / 2);
    bench.set_link(Link::Up);
    bench.pass(TTL / 2);
    let second = queue(&mut bench, "leader", &json!({}));
    assert_eq!(second.1.position, Some(2));
    bench.release(holder, Some(hold)).unwrap();
    are_granted_in_turn(&mut bench, &[first, second]);
}

#[test]
fn no_place_is_told_before_the_store_has_given_one() {
    let mut bench = Bench::new();
    let holder = bench.register(json!({"tether": "process"}));
    let hold = bench.hold(holder, json!({"kind": "leader", "name": "x", "ttl_ms": 3_600_000}));
    let session = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(session, None);
    bench.set_link(Link::Down);
    let ticket = bench.acquire(session, json!({"kind": "leader", "name": "x", "wait": "queue"}));
    let Some(Ok(Reply::Waiting(waiting))) = bench.reply(ticket) else { panic!("it is not queued") };
    assert_eq!(waiting.position, None);
    bench.pass(TTL);
    assert!(!bench.heard(stream).iter().any(|event| event.starts_with("queued")));
    bench.set_link(Link::Up);
    bench.pass(Duration::from_secs(5));
    assert!(bench.heard(stream).contains(&"queued 1".to_owned()));
    bench.release(holder, Some(hold)).unwrap();
    bench.pass(Duration::from_millis(10));
    assert!(bench.is_valid(waiting.hold));
}

#[test]
fn a_long_queue_keeps_its_order_too() {
    let mut bench = Bench::new();
    let holder = bench.register(json!({"tether": "process"}));
    let hold = bench.hold(holder, json!({"kind": "leader", "name": "x", "ttl_ms": 3_600_000}));
    let mut waiters = Vec::new();
    for number in 0..200 {
        let ttl_ms = 2000 + 170 * (number % 13);
        waiters.push(queue(&mut bench, "leader", &json!({"ttl_ms": ttl_ms})));
        bench.pass(Duration::from_millis(7));
    }
    bench.set_link(Link::Down);
    bench.pass(3 * TTL);
    bench.set_link(Link::Up);
    waiters.push(queue(&mut bench, "leader", &json!({})));
    bench.pass(Duration::from_secs(20));
    bench.release(holder, Some(hold)).unwrap();
    are_granted_in_turn(&mut bench, &waiters);
}
