//! Unfinished requests and unread answers count for their user in bytes. At its share a user
//! is refused with the limit's name, and others are served.

use serde_json::{Value, json};
use tenure::wire::Code;
use tenure_tests::harness::{
    Agent, Answer, Attacker, Client, Puppet, eventually, other_users, until,
};

const LIMIT: &str = "buffered_bytes_per_uid";
/// Calls of another user while the one is at its share.
const CALLS: usize = 20;

/// True once a limit has refused somebody.
#[track_caller]
fn has_refused(agent: &Agent, limit: &str) -> bool {
    let metrics = agent.http().get("/metrics").text();
    let counter = format!("tenured_refusals_total{{limit=\"{limit}\"}} ");
    metrics.lines().any(|line| line.strip_prefix(&counter).is_some_and(|count| count != "0"))
}

/// One user does that until its bytes do not fit, asks for more by `ask`, and another works beside it.
#[track_caller]
fn check_bounded(how: &[&str], ask: impl Fn(&mut Puppet) -> Answer) {
    let Some([victim, attacker]) = other_users() else { return };
    let agent = Agent::setup().open_to_all().start();
    let mut attack = Attacker::start(&agent, attacker, how).expect("it gets ready");
    let mut other = Puppet::start_as(&agent, victim);
    attack.begin().expect("it listens");

    until("bytes that do not fit", || has_refused(&agent, LIMIT));
    let refusal = eventually("a refusal", || {
        // A connection that had a long head has room for the next one.
        let answer = ask(&mut Puppet::start_as(&agent, attacker));
        (answer.status == 429).then_some(answer)
    });
    let problem = refusal.problem(Code::QuotaExceeded);
    assert!(problem.detail.contains(LIMIT), "{}", problem.detail);
    assert!(problem.detail.contains(&format!("uid {attacker} ")), "{}", problem.detail);
    assert!(problem.retry_after_ms.is_some(), "it may come again");

    let session = other.register(&json!({"name": long_text()})).session;
    for call in 0..CALLS {
        let hold = other.acquire(session, "leader", &format!("role {call}"), &json!({})).hold;
        other.get("/v1/status").json(200);
        assert!(other.release(session, hold));
    }
    assert!(!has_refused(&agent, "buffered_bytes"), "there is room for all");
    attack.seen().expect("the attacker goes on");
}

fn long_text() -> String {
    "x".repeat(200)
}

/// A body that is refused only for its size.
fn long_body() -> Value {
    json!({"name": "x".repeat(60_000)})
}

#[test]
fn bodies_that_do_not_end_are_bounded() {
    check_bounded(&["bodies", "1000"], |own| own.post("/v1/register", &long_body()));
}

#[test]
fn heads_that_do_not_end_are_bounded() {
    let path = format!("/{}", "x".repeat(15_000));
    check_bounded(&["heads", "4000"], |own| own.get(&path));
}

#[test]
fn answers_that_are_not_read_are_bounded() {
    check_bounded(&["status", "200", "10", "100"], |own| own.get("/v1/status?limit=1000"));
}
