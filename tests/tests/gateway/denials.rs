//! What programs are told of a gateway that does not let their agent do what they ask for.

use serde_json::{Value, json};
use tenure::wire::{Code, Problem};
use tenure_tests::harness::{
    Agent, Answer, Campaigner, Client, Gateway, Http, Key, TenureRun, start_agent, until,
};
use uuid::Uuid;

/// An agent whose key has these bounds, and one that may do everything.
fn scene(bounds: &[&str]) -> (Gateway, [Agent; 2]) {
    let keys = [Key::within("bound", bounds), Key::new("free")];
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1]]);
    let agents = [0, 1].map(|at| start_agent(at, &gateway.url(), &gateway.config(&keys[at])));
    (gateway, agents)
}

#[track_caller]
fn forbidden(answer: &Answer, says: &[&str]) -> Problem {
    let problem = answer.problem(Code::Forbidden);
    assert!(says.iter().all(|text| problem.detail.contains(text)), "{}", problem.detail);
    assert!(problem.retry_after_ms.is_none() && answer.header("retry-after").is_none());
    problem
}

fn session(http: &mut Http, more: &Value) -> Uuid {
    let mut fields = json!({"keepalive_ms": 600_000});
    for (key, value) in more.as_object().expect("more fields are an object") {
        fields[key] = value.clone();
    }
    http.register(&fields).session
}

#[test]
fn a_program_is_told_what_its_agents_key_does_not_allow() {
    let (_gateway, [agent, _]) =
        scene(&["--name", "ci/*", "--project", "web-*", "--ttl-max", "2m"]);
    let mut http = agent.http();
    let own = session(&mut http, &json!({}));
    let names = ["leader \"prod\"", "names = \"ci/*\"", "ask the gateway's administrator"];
    // Also who would wait for ever: it would be for nothing.
    for wait in ["none", "block", "queue"] {
        forbidden(&http.ask(own, "leader", "prod", &json!({"wait": wait})), &names);
    }
    let long = http.ask(own, "leader", "ci/a", &json!({"ttl_ms": 180_000}));
    forbidden(&long, &["a ttl of 180s", "ttl_max = 120s"]);
    forbidden(&http.get("/v1/standing?kind=leader&name=prod"), &names);
    forbidden(&http.post("/v1/revoke", &json!({"kind": "leader", "name": "prod"})), &names);
    assert_eq!(http.ask(own, "leader", "ci/a", &json!({})).status, 200);

    // A session that is not announced is told by a checkpoint.
    let elsewhere = session(&mut http, &json!({"project": "api"}));
    let checkpoint = http.post("/v1/checkpoint", &json!({"session": elsewhere}));
    forbidden(&checkpoint, &["project \"api\"", "projects = \"web-*\""]);

    let (code, _, said) =
        TenureRun::new(&agent.socket(), &["--leader", "prod"], &["true"]).finish();
    assert_eq!(code, 77, "{said}");
    assert!(said.contains("names = \"ci/*\"") && said.contains("administrator"), "{said}");
    assert!(!said.contains("doctor"), "{said}");
}

#[test]
fn a_program_that_is_over_the_quota_is_told_and_one_that_waits_gets_its_turn() {
    let (_gateway, [agent, _]) = scene(&["--holds-max", "1"]);
    let mut http = agent.http();
    let own = session(&mut http, &json!({}));
    let first = http.acquire(own, "leader", "a", &json!({})).hold;
    let refused = http.ask(own, "leader", "b", &json!({}));
    let problem = refused.problem(Code::QuotaExceeded);
    assert!(problem.detail.contains("holds_max = 1"), "{}", problem.detail);
    assert_eq!((problem.retry_after_ms, refused.header("retry-after")), (Some(1000), Some("1")));
    let late = http.ask(own, "leader", "b", &json!({"wait": "block", "timeout_ms": 2000}));
    late.problem(Code::QuotaExceeded);
    let (code, _, said) =
        TenureRun::new(&agent.socket(), &["--no-wait", "--leader", "b"], &["true"]).finish();
    assert!(code == 1 && said.contains("holds_max = 1"), "{code}: {said}");

    let mut waiter = Campaigner::start(&agent, "waiter");
    let waits = waiter.queue("leader", "b", &json!({}));
    http.release(own, first);
    waiter.events.granted(waits);
}

#[test]
fn a_program_that_asks_too_often_is_told_when_to_come_again() {
    let (_gateway, [agent, _]) = scene(&["--requests-per-second", "2"]);
    let mut http = agent.http();
    let own = session(&mut http, &json!({}));
    let mut refused = None;
    until("a call to be too early", || {
        let answer = http.get("/v1/standing?kind=leader&name=role");
        refused = (answer.status != 200).then_some(answer);
        refused.is_some()
    });
    let refused = refused.expect("it was too early");
    let problem = refused.problem(Code::QuotaExceeded);
    assert!(problem.detail.contains("requests_per_second = 2"), "{}", problem.detail);
    assert!(problem.retry_after_ms.is_some_and(|ms| (1..=500).contains(&ms)), "{problem:?}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // A wait is as patient as it must be.
    let waits = json!({"wait": "block", "timeout_ms": 30_000});
    for name in ["a", "b", "c", "d"] {
        assert_eq!(http.ask(own, "leader", name, &waits).status, 200, "{name}");
    }
}

#[test]
fn programs_of_an_agent_whose_key_is_revoked_are_told_so_until_it_is_good_again() {
    let keys = ["revoked", "kept"].map(Key::new);
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1]]);
    let agent = start_agent(0, &gateway.url(), &gateway.config(&keys[0]));
    let mut http = agent.http();
    let own = session(&mut http, &json!({}));
    gateway.set_keys(&[&keys[1]]);
    let mut detail = String::new();
    until("the agent to be told", || {
        let answer = http.ask(own, "leader", "role", &json!({}));
        let is_told = answer.status == 401;
        if is_told {
            detail = answer.problem(Code::Unauthorized).detail;
        }
        is_told && detail.contains("upstream_secret_file")
    });
    assert!(detail.contains("does not let this agent in"), "{detail}");
    gateway.set_keys(&[&keys[0], &keys[1]]);
    let waits = json!({"wait": "block", "timeout_ms": 60_000});
    assert_eq!(http.ask(own, "leader", "role", &waits).status, 200);
}
