//! The upstream answers, and does not let its agent do what a program asks for.

use std::time::Duration;

use serde_json::json;
use tenure_wire::{Code, LostReason};

use super::bench::{ALICE, Bench, Link, lost};
use crate::keeper::{Refusal, Reply, Request};
use crate::model::DenialRule;

const LATER: Duration = Duration::from_millis(1500);
const RULES: [(DenialRule, Code); 3] = [
    (DenialRule::Unauthorized, Code::Unauthorized),
    (DenialRule::Forbidden, Code::Forbidden),
    (DenialRule::Quota(LATER), Code::QuotaExceeded),
];

fn code(reply: Option<Result<Reply, Refusal>>) -> Code {
    reply.expect("an answer").unwrap_err().code()
}

#[test]
fn whoever_tries_once_or_asks_is_told_the_rule_and_leaves_nothing() {
    for (rule, expected) in RULES {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        bench.link = Link::Denies(rule);
        let claim = bench.acquire(session, json!({"kind": "leader", "name": "x"}));
        assert_eq!(code(bench.reply(claim)), expected);
        let checkpoint = bench.ask(ALICE, Request::Checkpoint(session));
        assert_eq!(code(bench.reply(checkpoint)), expected);
        bench.set_link(Link::Up);
        bench.release(session, None).unwrap();
        bench.assert_nothing_left();
    }
}

#[test]
fn a_wait_ends_at_once_where_waiting_does_not_help_and_goes_on_where_it_does() {
    for wait in ["block", "queue"] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        let fields = json!({"kind": "leader", "name": "x", "wait": wait, "timeout_ms": 60_000});
        bench.link = Link::Denies(DenialRule::Forbidden);
        let refused = bench.acquire(session, fields.clone());
        assert_eq!(code(bench.reply(refused)), Code::Forbidden);

        let before = bench.claims;
        bench.link = Link::Denies(DenialRule::Quota(LATER));
        let waits = bench.acquire(session, fields);
        bench.pass(LATER - Duration::from_millis(1));
        assert_eq!(bench.claims, before + 1, "it does not ask before the time that it was told");
        let told = bench.reply(waits);
        assert!(told.is_none() || wait == "queue", "{told:?}");
        bench.set_link(Link::Up);
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.claims, before + 2);
        assert_eq!(bench.keeper.count_holds()[1][0], 1, "{wait}: it is granted");
        bench.release(session, None).unwrap();
        bench.assert_nothing_left();
    }
}

#[test]
fn a_wait_without_a_decision_says_by_which_rule() {
    for (rule, expected) in [RULES[0], RULES[2]] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        bench.link = Link::Denies(rule);
        let fields = json!({"kind": "leader", "name": "x", "wait": "block", "timeout_ms": 500});
        let ticket = bench.acquire(session, fields);
        bench.pass(Duration::from_millis(500));
        assert_eq!(code(bench.reply(ticket)), expected);
        bench.set_link(Link::Up);
        bench.release(session, None).unwrap();
        bench.assert_nothing_left();
    }
}

#[test]
fn a_waiter_that_is_forbidden_later_reads_of_it_in_its_events() {
    let mut bench = Bench::new();
    let session = bench.register(json!({"tether": "process"}));
    let stream = bench.listen(session, None);
    bench.link = Link::Down;
    let fields = json!({"kind": "leader", "name": "x", "wait": "queue"});
    let ticket = bench.acquire(session, fields);
    let Some(Ok(Reply::Waiting(_))) = bench.reply(ticket) else { panic!("it is queued") };
    bench.set_link(Link::Denies(DenialRule::Forbidden));
    bench.pass(Duration::from_secs(10));
    let heard = bench.heard(stream);
    assert_eq!(heard.last(), Some(&lost(LostReason::Revoked)), "{heard:?}");
    bench.set_link(Link::Up);
    bench.release(session, None).unwrap();
    bench.assert_nothing_left();
}

#[test]
fn a_checkpoint_says_why_its_session_is_not_announced() {
    let mut bench = Bench::new();
    bench.link = Link::Denies(DenialRule::Forbidden);
    let session = bench.register(json!({"project": "p"}));
    let checkpoint = bench.ask(ALICE, Request::Checkpoint(session));
    assert_eq!(code(bench.reply(checkpoint)), Code::Forbidden);
    // The upstream knows nothing of it: nothing is to be ended there.
    bench.release(session, None).unwrap();
    bench.assert_nothing_left();
}
