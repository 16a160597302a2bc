//! Agents of several hosts on one gateway, which alone knows the store.

use serde_json::{Value, json};
use tenure::wire::{LostReason, ReleasedCause, UpstreamState};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Gateway, RedisServer, nothing_is_left, start_agent, until,
};

const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];

fn terms(kind: &str) -> Value {
    match kind {
        "semaphore" => json!({"limit": 1}),
        _ => json!({}),
    }
}

fn agents(gateway: &Gateway) -> [Agent; 2] {
    [0, 1].map(|host| start_agent(host, &gateway.url(), ""))
}

fn nobody_holds(agents: &[Agent]) {
    for agent in agents {
        until("every session and hold to end", || agent.counts() == (0, 0, 0));
    }
}

/// The agents go on: they end what the store has of clients that have gone.
fn releases_and_kills_hand_over(gateways: [&Gateway; 2]) -> [Agent; 2] {
    let agents = [0, 1].map(|host| start_agent(host, &gateways[host].url(), ""));
    for kind in KINDS {
        let mut first = Campaigner::start(&agents[0], "on alpha");
        let mut second = Campaigner::start(&agents[1], "on beta");
        let held = first.acquire(kind, "role", &terms(kind));
        let waiting = second.queue(kind, "role", &terms(kind));
        first.release(held.hold);
        assert_eq!(first.events.released(held.hold).cause, ReleasedCause::Client);
        let granted = second.events.granted(waiting);
        assert!(granted.token > held.token, "{kind}: a new grant has a greater token");

        let again = first.queue(kind, "role", &terms(kind));
        second.kill();
        let after = first.events.granted(again);
        assert!(after.token > granted.token, "{kind}");
    }
    nobody_holds(&agents);
    agents
}

#[test]
fn releases_and_kills_hand_over_through_the_embedded_store() {
    let gateway = Gateway::start("embedded:");
    releases_and_kills_hand_over([&gateway, &gateway]);
}

#[test]
fn releases_and_kills_hand_over_through_redis() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis.url());
    let _agents = releases_and_kills_hand_over([&gateway, &gateway]);
    nothing_is_left(&redis);
}

#[test]
fn releases_and_kills_hand_over_between_two_gateways() {
    let redis = RedisServer::start();
    let gateways = [0, 1].map(|_| Gateway::start(&redis.url()));
    let _agents = releases_and_kills_hand_over([&gateways[0], &gateways[1]]);
    nothing_is_left(&redis);
}

#[test]
fn a_release_while_the_gateway_stands_still_is_done_once_it_goes_on() {
    let mut gateway = Gateway::start("embedded:");
    let agents = agents(&gateway);
    let mut first = Campaigner::start(&agents[0], "first");
    let mut second = Campaigner::start(&agents[1], "second");
    let held = first.acquire("leader", "role", &json!({}));
    let waiting = second.queue("leader", "role", &json!({}));
    gateway.pause();
    first.release(held.hold);
    assert_eq!(first.events.released(held.hold).cause, ReleasedCause::Client);
    assert!(!second.has(waiting));
    gateway.resume();
    assert!(second.events.granted(waiting).token > held.token);
}

#[test]
fn a_higher_priority_preempts_and_both_hosts_are_told() {
    let gateway = Gateway::start("embedded:");
    let agents = agents(&gateway);
    let mut low = Campaigner::start(&agents[0], "low");
    let mut high = Campaigner::start(&agents[1], "high");
    let held = low.acquire("master", "", &json!({}));
    let taken = high.acquire("master", "", &json!({"priority": 9}));
    assert!(taken.token > held.token);
    assert_eq!(low.events.lost(held.hold).reason, LostReason::Preempted);
}

#[test]
fn a_gateway_that_is_killed_and_comes_back_loses_no_hold() {
    let mut gateway = Gateway::start("embedded:");
    let agents = agents(&gateway);
    let mut holder = Campaigner::start(&agents[0], "holder");
    let mut next = Campaigner::start(&agents[1], "next");
    let held: Vec<_> =
        KINDS.iter().map(|kind| holder.acquire(kind, "role", &terms(kind))).collect();
    for round in 0..3 {
        if round == 1 {
            assert!(gateway.stop().success());
        } else {
            gateway.kill();
        }
        until("the agent to notice", || {
            agents[0].http().status().upstream.state != UpstreamState::Up
        });
        gateway.start_again();
        for agent in &agents {
            until("the agent to come back", || {
                agent.http().status().upstream.state == UpstreamState::Up
            });
        }
    }
    for (kind, held) in KINDS.iter().zip(&held) {
        let waiting = next.queue(kind, "role", &terms(kind));
        assert!(!next.has(waiting), "{kind}");
        holder.release(held.hold);
        assert!(next.events.granted(waiting).token > held.token, "{kind}");
    }
}

#[test]
fn what_is_no_call_is_refused() {
    let gateway = Gateway::start("embedded:");
    for (head, body, expected) in [
        ("GET /nothing", "", 404),
        ("GET /v1/upstream/claim", "", 405),
        ("POST /v1/upstream/claim", "", 422),
        ("POST /v1/upstream/claim", "{}", 422),
        ("POST /v1/upstream/hello", r#"{"protocol":0,"version":"x"}"#, 422),
        ("POST /v1/upstream/hello", r#"{"protocol":1,"version":"x","later":true}"#, 200),
    ] {
        let (status, answer) = gateway.call(head, body).unwrap();
        assert_eq!(status, expected, "{head} {body}: {answer}");
        let is_problem = answer.contains("application/problem+json");
        assert_eq!(is_problem, status != 200, "{answer}");
    }
    // An id without the caller's mark is not this caller's.
    let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let body = json!({"claim": id, "resource": {"tenant": "t", "kind": "leader", "name": "n"}});
    let (status, answer) = gateway.call("POST /v1/upstream/release", &body.to_string()).unwrap();
    assert_eq!(status, 404, "{answer}");
    let master = json!({"tenant": "t", "kind": "master", "name": "p"});
    let beats = json!({"beats": vec![json!({"subject": {"Session": {"session": id, "master": master}},
        "ttl": {"secs": 1, "nanos": 0}}); 513]});
    let (status, answer) = gateway.call("POST /v1/upstream/renew", &beats.to_string()).unwrap();
    assert!(status == 422 && answer.contains("512 at most"), "{answer}");
}
