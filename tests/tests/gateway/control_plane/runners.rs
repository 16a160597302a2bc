//! The control plane of RFC-049, for runners whose stubs are made from the RFC's own file.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_tests::harness::{
    Gateway, Key, MAILBOX, RedisServer, RfcRunners, boottime_ns, listed_route as route, until,
};

/// A gateway with leases that are short enough for a test to wait for their end.
fn short_lived(upstream: &str, legacy: bool) -> (Gateway, TempDir) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("gateway.toml");
    let times = "[mailbox]\nttl = \"4s\"\nheartbeat_interval = \"1s\"\ngrace_period = \"2s\"\n";
    fs::write(&file, format!("{times}legacy = {legacy}\n")).unwrap();
    (Gateway::start_by(upstream, &[], &[format!("--config={}", file.display())]), dir)
}

#[test]
fn a_runner_starts_beats_and_shuts_down_as_the_rfc_says() {
    let gateway = Gateway::start("embedded:");
    let mut runners = RfcRunners::start();
    runners.open("a", &gateway, &json!({}));
    runners.open("b", &gateway, &json!({}));
    let wanted = json!({
        "mailbox_id": MAILBOX, "runner_id": "runner-01", "proxy_id": "proxy-01", "partition": 0,
        "address": "proxy-01.prism.local:8982", "ttl_seconds": 120,
    });
    let granted = runners.call("acquire", "a", &wanted);
    assert!(granted["success"] == true && granted["message"] == "", "{granted}");
    let expires = granted["lease_expires"].as_f64().unwrap();
    assert!((90.0..=120.0).contains(&expires), "{granted}");

    let denied = runners.acquire("b", "runner-02");
    assert_eq!(denied["success"], false);
    assert_eq!(denied["message"], "mailbox already leased by runner-01");
    assert_eq!(runners.heartbeat("b", "runner-02")["message"], "lease owned by runner-01");
    assert_eq!(runners.release("b", "runner-02")["released"], false);

    let beat = json!({
        "mailbox_id": MAILBOX, "runner_id": "runner-01", "status": "degraded", "events_stored": 7,
        "queries_served": 8, "storage_size_bytes": 9,
    });
    let renewed = runners.call("heartbeat", "a", &beat);
    assert_eq!(renewed["lease_renewed"], true, "{renewed}");
    let expires = renewed["new_expiration"].as_f64().unwrap();
    assert!((90.0..=120.0).contains(&expires), "for its own ttl: {renewed}");
    // What the heartbeat told is told until the next one, also when its runner asks for what it has.
    assert_eq!(runners.call("acquire", "a", &wanted)["success"], true);
    let listed = route(&gateway);
    assert_eq!(listed["status"], "degraded");
    assert_eq!(listed["address"], "proxy-01.prism.local:8982");
    assert_eq!((&listed["holder"], &listed["partition"]), (&json!("runner-01"), &json!(109)));
    let (_, metrics) = gateway.call("GET /metrics", "").unwrap();
    for line in [
        "tenured_gateway_mailbox_leased 1",
        "tenured_gateway_mailbox_runners 1",
        "tenured_gateway_mailbox_events_stored 7",
        "tenured_gateway_mailbox_queries_served 8",
        "tenured_gateway_mailbox_storage_bytes 9",
        "tenured_gateway_mailbox_calls_total{call=\"heartbeat\",outcome=\"done\"} 2",
        "tenured_gateway_mailbox_latency_seconds_count{call=\"heartbeat\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} is missing in:\n{metrics}");
    }

    assert_eq!(runners.release("a", "runner-01")["released"], true);
    assert_eq!(route(&gateway), Value::Null);
    let late = runners.heartbeat("a", "runner-01");
    assert_eq!(
        (&late["lease_renewed"], &late["message"]),
        (&json!(false), &json!("lease not found"))
    );
    assert_eq!(runners.acquire("b", "runner-02")["success"], true);
    assert_eq!(runners.heartbeat("a", "runner-01")["message"], "lease owned by runner-02");
    assert_eq!(runners.release("b", "runner-02")["released"], true);
    assert_eq!(runners.acquire("a", "runner-01")["success"], true, "it starts again");
}

#[track_caller]
fn a_lost_runner_keeps_its_mailbox_through_the_grace(upstream: &str) {
    let (gateway, _dir) = short_lived(upstream, false);
    let mut runners = RfcRunners::start();
    runners.open("a", &gateway, &json!({"x-tenure-incarnation": "1"}));
    runners.open("b", &gateway, &json!({}));
    assert_eq!(runners.acquire("a", "runner-01")["success"], true);
    until("the route to say that the lease expires", || route(&gateway)["status"] == "expiring");
    assert_eq!(runners.acquire("b", "runner-02")["message"], "mailbox already leased by runner-01");
    assert_eq!(runners.heartbeat("a", "runner-01")["lease_renewed"], true, "in its grace");
    assert_eq!(route(&gateway)["status"], "active");
    until("the route to be removed", || route(&gateway).is_null());
    let late = runners.heartbeat("a", "runner-01");
    assert_eq!(late["message"], "lease expired beyond grace period");
    assert_eq!(runners.acquire("b", "runner-02")["success"], true);
    assert_eq!(runners.heartbeat("a", "runner-01")["message"], "lease owned by runner-02");
}

#[test]
fn a_lost_runner_keeps_its_mailbox_through_the_grace_embedded() {
    a_lost_runner_keeps_its_mailbox_through_the_grace("embedded:");
}

#[test]
fn a_lost_runner_keeps_its_mailbox_through_the_grace_on_redis() {
    let server = RedisServer::start();
    a_lost_runner_keeps_its_mailbox_through_the_grace(&server.url());
}

#[track_caller]
fn two_processes_of_one_name_are_two(upstream: &str) {
    let (gateway, _dir) = short_lived(upstream, false);
    let mut runners = RfcRunners::start();
    for channel in ["a", "b"] {
        runners.open(channel, &gateway, &json!({}));
    }
    assert_eq!(runners.acquire("a", "runner-01")["success"], true);
    let denied = runners.acquire("b", "runner-01")["message"].to_string();
    assert!(
        denied.contains("held by another runner-01") && denied.contains("is connected"),
        "{denied}"
    );
    assert_eq!(runners.heartbeat("b", "runner-01")["message"], "lease owned by another runner-01");
    assert_eq!(runners.release("b", "runner-01")["released"], false);
    assert_eq!(runners.heartbeat("a", "runner-01")["lease_renewed"], true);
    runners.close("a");
    let (mut waited, closed) = (false, boottime_ns());
    until("the other process to take over", || {
        let answer = runners.acquire("b", "runner-01");
        waited |= answer["message"].to_string().contains("whose last heartbeat was");
        answer["success"] == true
    });
    eprintln!("taken over {} ms after the close", (boottime_ns() - closed) / 1_000_000);
    assert!(waited, "not at once");
    // The first one was only away.
    runners.open("a", &gateway, &json!({}));
    assert_eq!(runners.heartbeat("a", "runner-01")["message"], "lease owned by another runner-01");
    assert_eq!(runners.heartbeat("b", "runner-01")["lease_renewed"], true);
}

#[test]
fn two_processes_of_one_name_are_two_embedded() {
    two_processes_of_one_name_are_two("embedded:");
}

#[test]
fn two_processes_of_one_name_are_two_on_redis() {
    let server = RedisServer::start();
    two_processes_of_one_name_are_two(&server.url());
}

#[test]
fn a_legacy_policy_lets_the_newest_process_have_the_mailbox() {
    let (gateway, _dir) = short_lived("embedded:", true);
    let mut runners = RfcRunners::start();
    for channel in ["a", "b"] {
        runners.open(channel, &gateway, &json!({}));
        assert_eq!(runners.acquire(channel, "runner-01")["success"], true);
    }
    assert_eq!(runners.heartbeat("a", "runner-01")["message"], "lease owned by another runner-01");
    assert_eq!(runners.acquire("a", "runner-02")["success"], false);
}

#[test]
fn keys_are_asked_for_and_their_bounds_hold() {
    let server = RedisServer::setup().tcp().start();
    let bounds = ["--name", "audit-*", "--kind", "lease"];
    let keys = [
        Key::new("alice"),
        Key::within("bob", &bounds),
        Key::within("carol", &["--requests-per-second", "1"]),
        Key::within("dave", &["--right", "owners"]),
    ];
    let gateway = Gateway::start_with(&server.url(), &keys.each_ref());
    let mut runners = RfcRunners::start();
    runners.open("nobody", &gateway, &json!({}));
    assert_eq!(runners.acquire("nobody", "runner-01")["code"], "UNAUTHENTICATED");
    for (channel, key) in ["alice", "bob", "carol", "dave"].into_iter().zip(&keys) {
        let header = key.header();
        let key = header.trim().split_once(": ").unwrap().1;
        runners.open(channel, &gateway, &json!({"authorization": key}));
    }
    assert_eq!(runners.acquire("alice", "runner-01")["success"], true);
    let denied = runners.acquire("bob", "runner-01");
    assert_eq!(denied["code"], "PERMISSION_DENIED");
    assert_eq!(denied["trailing"]["tenure-field"], "names", "{denied}");
    let other = "lease owned by another runner-01, which has another key";
    assert_eq!(runners.heartbeat("dave", "runner-01")["message"], other);
    assert_eq!(runners.release("dave", "runner-01")["message"], other);
    assert_eq!(runners.acquire("dave", "runner-01")["success"], false);
    until("calls to be too many", || {
        let answer = runners.acquire("carol", "runner-09");
        answer["code"] == "RESOURCE_EXHAUSTED"
    });
    drop(server);
    until("the store to be found away", || {
        runners.heartbeat("alice", "runner-01")["code"] == "UNAVAILABLE"
    });
}
