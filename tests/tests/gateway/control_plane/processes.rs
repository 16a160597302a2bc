//! The control plane with several processes of one runner id, and with several gateways.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_tests::harness::{
    Gateway, RedisServer, RfcRunners, listed_route as route, of_runner as of, until,
};

const RUNNER: &str = "runner-01";
const ANOTHER: &str = "lease owned by another runner-01";

fn open(runners: &mut RfcRunners, channel: &str, gateway: &Gateway) {
    runners.open(channel, gateway, &json!({}));
}

#[track_caller]
fn renews(runners: &mut RfcRunners, channel: &str) {
    let answer = runners.heartbeat(channel, RUNNER);
    assert_eq!(answer["lease_renewed"], true, "{answer}");
}

/// Beats until the lease is renewed, and is never told to stop.
#[track_caller]
fn goes_on(runners: &mut RfcRunners, channel: &str) {
    until("the runner to go on", || {
        let answer = runners.heartbeat(channel, RUNNER);
        assert_ne!(answer["lease_renewed"], false, "{answer}");
        answer["lease_renewed"] == true
    });
}

#[track_caller]
fn is_denied(runners: &mut RfcRunners, channel: &str) {
    assert_eq!(runners.heartbeat(channel, RUNNER)["message"], ANOTHER);
    let released = runners.release(channel, RUNNER);
    assert_eq!((&released["released"], &released["message"]), (&json!(false), &json!(ANOTHER)));
}

/// Waits until the gateway knows that the holder's connection is gone, as another process is told.
#[track_caller]
fn until_lost(runners: &mut RfcRunners, gateway: &Gateway) {
    open(runners, "newcomer", gateway);
    until("the connection to be lost", || {
        let answer = runners.acquire("newcomer", RUNNER);
        assert_eq!(answer["success"], false, "{answer}");
        answer["message"].to_string().contains("whose last heartbeat was")
    });
}

#[test]
fn a_process_that_was_denied_gets_nothing_at_another_gateway() {
    let (gateways, _server) = Gateway::several(2, &[]);
    let mut runners = RfcRunners::start();
    open(&mut runners, "a", &gateways[0]);
    open(&mut runners, "b", &gateways[1]);
    assert_eq!(runners.acquire("a", RUNNER)["success"], true);
    assert_eq!(runners.acquire("b", RUNNER)["success"], false);
    is_denied(&mut runners, "b");
    renews(&mut runners, "a");
    // Nor does one that has not asked: whether it is the holder is not known there, and then it is not.
    open(&mut runners, "c", &gateways[1]);
    assert_eq!(runners.heartbeat("c", RUNNER)["code"], "UNAVAILABLE");
    assert_eq!(runners.release("c", RUNNER)["message"], ANOTHER);
    until("it to be told of the other process", || {
        renews(&mut runners, "a");
        let answer = runners.heartbeat("c", RUNNER);
        assert_ne!(answer["lease_renewed"], true, "{answer}");
        answer["message"] == ANOTHER
    });
    is_denied(&mut runners, "c");
    assert_eq!(runners.release("a", RUNNER)["released"], true);
}

#[test]
fn who_was_taken_over_from_is_denied_at_another_gateway_too() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("gateway.toml");
    let times = "[mailbox]\nttl = \"8s\"\nheartbeat_interval = \"1s\"\ngrace_period = \"4s\"\n";
    fs::write(&file, times).unwrap();
    let (gateways, _server) = Gateway::several(2, &[format!("--config={}", file.display())]);
    let [first, second] = &gateways[..] else { unreachable!("two were asked for") };
    let mut runners = RfcRunners::start();
    open(&mut runners, "a", first);
    open(&mut runners, "b", first);
    assert_eq!(runners.acquire("a", RUNNER)["success"], true);
    let token = |gateway: &Gateway| route(gateway)["token"].as_u64().unwrap();
    let before = token(first);
    runners.close("a");
    until("the other process to take over", || runners.acquire("b", RUNNER)["success"] == true);
    let after = token(first);
    assert!(after > before, "{after} > {before}");
    open(&mut runners, "a", second);
    until("the first one to be told of the other process", || {
        let answer = runners.heartbeat("a", RUNNER);
        assert_ne!(answer["lease_renewed"], true, "{answer}");
        renews(&mut runners, "b");
        answer["message"] == ANOTHER
    });
    is_denied(&mut runners, "a");
    assert_eq!(token(first), after);
    // The holder reconnects to a gateway that does not know of the end of its connection.
    runners.close("b");
    open(&mut runners, "b", second);
    goes_on(&mut runners, "b");
    assert!(token(first) > after, "by a lease of its own");
    is_denied(&mut runners, "a");
    assert_eq!(runners.release("b", RUNNER)["released"], true);
}

#[track_caller]
fn after_a_restart_one_process_goes_on(upstream: &str) {
    let mut gateway = Gateway::start(upstream);
    let mut runners = RfcRunners::start();
    open(&mut runners, "a", &gateway);
    assert_eq!(runners.acquire("a", RUNNER)["success"], true);
    gateway.kill();
    gateway.start_again();
    open(&mut runners, "b", &gateway);
    until("the store to answer", || runners.acquire("b", RUNNER)["success"] == false);
    is_denied(&mut runners, "b");
    goes_on(&mut runners, "a");
    is_denied(&mut runners, "b");
    renews(&mut runners, "a");
    assert_eq!(runners.acquire("a", RUNNER)["success"], true);
    assert_eq!(runners.release("a", RUNNER)["released"], true);
}

#[test]
fn after_a_restart_one_process_goes_on_embedded() {
    after_a_restart_one_process_goes_on("embedded:");
}

#[test]
fn after_a_restart_one_process_goes_on_on_redis() {
    let server = RedisServer::start();
    after_a_restart_one_process_goes_on(&server.url());
}

#[track_caller]
fn a_runner_that_reconnects_is_itself(upstream: &str) {
    let gateway = Gateway::start(upstream);
    let mut runners = RfcRunners::start();
    open(&mut runners, "a", &gateway);
    assert_eq!(runners.acquire("a", RUNNER)["success"], true);
    let before = route(&gateway)["token"].as_u64().unwrap();
    runners.close("a");
    until_lost(&mut runners, &gateway);
    open(&mut runners, "a", &gateway);
    renews(&mut runners, "a");
    assert!(route(&gateway)["token"].as_u64().unwrap() > before, "by a lease of its own");
    let again = runners.acquire("a", RUNNER);
    assert_eq!(again["success"], true, "{again}");
    renews(&mut runners, "a");
    is_denied(&mut runners, "newcomer");
    assert_eq!(runners.release("a", RUNNER)["released"], true);
}

#[test]
fn a_runner_that_reconnects_is_itself_embedded() {
    a_runner_that_reconnects_is_itself("embedded:");
}

#[test]
fn a_runner_that_reconnects_is_itself_on_redis() {
    let server = RedisServer::start();
    a_runner_that_reconnects_is_itself(&server.url());
}

#[test]
fn what_another_gateway_changed_counts() {
    let (gateways, _server) = Gateway::several(2, &[]);
    let mut runners = RfcRunners::start();
    for (channel, gateway) in ["first", "second"].into_iter().zip(&gateways) {
        runners.open(channel, gateway, &json!({"x-tenure-incarnation": "7"}));
    }
    let with = |field: &str, value: Value| {
        let mut fields = of(RUNNER);
        fields[field] = value;
        fields
    };
    for (channel, ttl) in [("first", 900), ("second", 60)] {
        let fields = with("ttl_seconds", json!(ttl));
        assert_eq!(runners.call("acquire", channel, &fields)["success"], true);
    }
    for (channel, status, shown) in [
        ("second", "degraded", "degraded"),
        ("first", "healthy", "active"),
        ("first", "degraded", "degraded"),
        ("second", "healthy", "active"),
        ("first", "degraded", "degraded"),
    ] {
        let answer = runners.call("heartbeat", channel, &with("status", json!(status)));
        assert_eq!(answer["lease_renewed"], true, "{answer}");
        assert!(answer["new_expiration"].as_f64().unwrap() <= 60.0, "for the latest ttl: {answer}");
        assert_eq!(route(&gateways[0])["status"], shown, "{channel} says {status}");
    }
}

#[test]
fn every_service_says_that_it_serves() {
    let gateway = Gateway::start("embedded:");
    let mut runners = RfcRunners::start();
    open(&mut runners, "a", &gateway);
    let serving = json!({"answer": [8, 1]});
    for service in ["", "prism.admin.v1.ControlPlane", "prism.ControlPlane", "tenure.v1.Routes"] {
        until("it to serve", || runners.health("a", service) == serving);
    }
    assert_eq!(runners.health("a", "prism.Other")["code"], "NOT_FOUND");
}
