//! The audit trail of a gateway: complete for what happened, bounded for what was refused, and in nobody's way.

use serde_json::{Value, json};
use tenure_host::clock;
use tenure_tests::harness::{Campaigner, Gateway, Key, SharedStore, start_agent, until};
use tenure_tests::over_every_store;

over_every_store!(
    the_trail_has_each_register_grant_preemption_loss_and_release_of_sessions,
    a_preemption_at_another_gateway_is_in_the_trail_of_the_losers,
    the_end_of_a_master_that_is_silent_is_in_the_trail_of_the_gateway_that_heard_of_it_last,
    a_hold_of_an_agent_that_dies_is_in_the_trail,
);

const REGISTER: &str = "POST /api/v1/controller/register";
const HEARTBEAT: &str = "POST /api/v1/controller/heartbeat";
const RELEASE: &str = "POST /api/v1/controller/release";
const STATUS: &str = "GET /api/v1/controller/status";

/// Status and body.
fn call(gateway: &Gateway, key: &Key, head: &str, session: &str, body: &str) -> (u16, Value) {
    let session = match session {
        "" => String::new(),
        id => format!("X-Prism-Session-Id: {id}\r\n"),
    };
    let headers = format!("{}Content-Type: application/json\r\n{session}", key.header());
    let (status, answer) = gateway.call_with(&headers, head, body).expect("it answers");
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[track_caller]
fn register(gateway: &Gateway, key: &Key, project: &str, surface: &str) -> String {
    let body = json!({"project_id": project, "agent_identity": surface, "agent_surface": surface});
    let (status, body) = call(gateway, key, REGISTER, "", &body.to_string());
    assert_eq!((status, &body["is_master"]), (200, &json!(true)), "{body}");
    body["session_id"].as_str().expect("it has one").to_owned()
}

/// A line: its event, principal, session and resource.
type Expected<'a> = (&'a str, &'a str, &'a str, &'a str);

#[track_caller]
fn has(gateway: &Gateway, (event, principal, session, resource): Expected) {
    let is_it = |line: &Value| {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let is_of = text("resource").ends_with(resource)
            && text("resource").is_empty() == resource.is_empty();
        let has_token = line["token"].as_u64().is_some_and(|token| token > 0);
        text("event") == event
            && text("principal") == principal
            && text("session") == session
            && is_of
            && (has_token || resource.is_empty() || event == "register")
    };
    until(&format!("a line of {event} of {principal} in {resource:?}"), || {
        gateway.trail().iter().any(is_it)
    });
}

fn lives_of_sessions(gateways: [&Gateway; 2], [alpha, beta, brief]: [&Key; 3]) {
    let [here, there] = gateways;
    let donna = register(here, alpha, "atlas", "claude_code");
    has(here, ("register", "alpha", &donna, "master/atlas"));
    has(here, ("grant", "alpha", &donna, "master/atlas"));
    let desk = register(there, beta, "atlas", "claude_desktop");
    has(there, ("grant", "beta", &desk, "master/atlas"));
    let (status, body) = call(here, alpha, HEARTBEAT, &donna, "");
    assert_eq!((status, &body["role"]), (200, &json!("peer")), "{body}");
    has(here, ("preemption", "alpha", &donna, "master/atlas"));
    assert_eq!(call(there, beta, RELEASE, &desk, "").0, 200);
    has(there, ("release", "beta", &desk, "master/atlas"));
    has(there, ("release", "beta", &desk, ""));

    let silent = register(here, brief, "web", "claude_code");
    until("the session to be over", || call(here, brief, STATUS, &silent, "").0 == 410);
    assert_eq!(call(here, brief, HEARTBEAT, &silent, "").0, 410);
    has(here, ("loss", "brief", &silent, ""));
    has(here, ("loss", "brief", &silent, "master/web"));
    let again = call(here, brief, HEARTBEAT, &silent, "").0;
    let losses = here.trail().iter().filter(|line| line["event"] == "loss").count();
    assert_eq!((again, losses), (410, 2), "each is told once");
}

fn keys() -> [Key; 3] {
    [Key::new("alpha"), Key::new("beta"), Key::within("brief", &["--ttl-max", "1s"])]
}

#[test]
fn the_trail_of_sessions_is_complete_on_an_embedded_store() {
    let keys = keys();
    let gateway = Gateway::start_audited("embedded:", &keys.each_ref());
    lives_of_sessions([&gateway, &gateway], keys.each_ref());
}

fn the_trail_has_each_register_grant_preemption_loss_and_release_of_sessions<S: SharedStore>() {
    let (store, keys) = (S::begin(), keys());
    let gateway = Gateway::start_audited(&store.url(), &keys.each_ref());
    lives_of_sessions([&gateway, &gateway], keys.each_ref());
}

fn a_preemption_at_another_gateway_is_in_the_trail_of_the_losers<S: SharedStore>() {
    let (store, keys) = (S::begin(), keys());
    let gateways = [0, 1].map(|_| Gateway::start_audited(&store.url(), &keys.each_ref()));
    lives_of_sessions(gateways.each_ref(), keys.each_ref());
}

/// How many lines of such an event of a session all trails have; with the resource, or without one.
fn count(gateways: &[&Gateway], event: &str, session: &str, resource: &str) -> usize {
    let is_it = |line: &Value| {
        let of = line["resource"].as_str().unwrap_or_default();
        line["event"] == event
            && line["session"] == session
            && of.ends_with(resource)
            && of.is_empty() == resource.is_empty()
    };
    gateways.iter().map(|gateway| gateway.trail().iter().filter(|it| is_it(it)).count()).sum()
}

/// A session that lives for a second lives and dies.
fn a_moment_passes(gateway: &Gateway, brief: &Key, project: &str) {
    let session = register(gateway, brief, project, "claude_code");
    has(gateway, ("loss", "brief", &session, ""));
}

/// Nothing is heard of these sessions after they lost what they had, by calls of theirs.
fn silent_ends([here, there]: [&Gateway; 2], all: &[&Gateway], keys: [&Key; 3]) {
    let [alpha, middle, brief] = keys;
    let donna = register(here, alpha, "atlas", "claude_code");
    assert_eq!(call(there, alpha, HEARTBEAT, &donna, "").0, 200);
    let desk = register(here, alpha, "atlas", "claude_desktop");
    has(there, ("preemption", "alpha", &donna, "master/atlas"));

    let dies = register(here, middle, "web", "claude_code");
    for moment in 0..3 {
        a_moment_passes(here, brief, &format!("moment-{moment}"));
    }
    assert_eq!(call(there, middle, HEARTBEAT, &dies, "").0, 200);
    has(there, ("loss", "middle", &dies, "master/web"));
    has(there, ("loss", "middle", &dies, ""));

    a_moment_passes(here, brief, "last");
    assert_eq!(count(all, "preemption", &donna, "master/atlas"), 1);
    assert_eq!(count(all, "loss", &dies, "master/web"), 1);
    assert_eq!(count(all, "loss", &dies, ""), 1);
    assert_eq!(count(all, "loss", &desk, "master/atlas"), 0);
}

fn silent_keys() -> [Key; 3] {
    let [alpha, _, brief] = keys();
    [alpha, Key::within("middle", &["--ttl-max", "10s"]), brief]
}

#[test]
fn the_ends_of_silent_masters_are_in_the_trail_on_an_embedded_store() {
    let keys = silent_keys();
    let gateway = Gateway::start_audited("embedded:", &keys.each_ref());
    silent_ends([&gateway, &gateway], &[&gateway], keys.each_ref());
}

fn the_end_of_a_master_that_is_silent_is_in_the_trail_of_the_gateway_that_heard_of_it_last<
    S: SharedStore,
>() {
    let (store, keys) = (S::begin(), silent_keys());
    let [here, there] = [0, 1].map(|_| Gateway::start_audited(&store.url(), &keys.each_ref()));
    silent_ends([&here, &there], &[&here, &there], keys.each_ref());
}

fn dies_with_a_hold(gateway: &Gateway) {
    let mut agent = start_agent(0, &gateway.url(), "");
    let mut holder = Campaigner::start(&agent, "holder");
    let held = holder.acquire("leader", "role", &json!({"ttl_ms": 2000}));
    agent.kill();
    let is_it = |line: &Value| {
        line["event"] == "loss" && line["token"] == held.token && line["outcome"] == "expired"
    };
    let count = || gateway.trail().iter().filter(|line| is_it(line)).count();
    until("the loss of its hold", || count() > 0);
    assert_eq!(count(), 1);
}

#[test]
fn a_hold_of_an_agent_that_dies_is_in_the_trail_on_an_embedded_store() {
    dies_with_a_hold(&Gateway::start_audited("embedded:", &[]));
}

fn a_hold_of_an_agent_that_dies_is_in_the_trail<S: SharedStore>() {
    let store = S::begin();
    dies_with_a_hold(&Gateway::start_audited(&store.url(), &[]));
}

#[test]
fn what_strangers_cause_is_summed_up() {
    const CALLS: u64 = 600;
    let key = Key::new("alpha");
    let mut gateway = Gateway::start_audited("embedded:", &[&key]);
    let began = clock::now();
    for _ in 0..CALLS {
        let (status, _) = gateway.call("GET /v1/resources", "").expect("it answers");
        assert_eq!(status, 401);
    }
    // Of one source, one by one: 50 at once, and 10 a second.
    let written_max = 50 + 10 * (1 + clock::now().since(began).as_secs());
    register(&gateway, &key, "atlas", "claude_code");
    gateway.stop();
    let trail = gateway.trail();
    let of = |event: &'static str| trail.iter().filter(move |line| line["event"] == event);
    let (written, sums) = (of("refusal").count() as u64, of("refusals_left_out"));
    let left_out: u64 = sums.clone().filter_map(|line| line["count"].as_u64()).sum();
    assert!((50..=written_max).contains(&written), "{written} of at most {written_max}");
    assert_eq!(written + left_out, CALLS);
    assert!(sums.clone().all(|line| line["source"] == "127.0.0.1"), "{trail:#?}");
    assert_eq!((of("register").count(), of("grant").count()), (1, 1), "nothing else is left out");
}

#[test]
fn a_trail_that_cannot_be_written_stops_nothing() {
    let key = Key::new("alpha");
    let mut gateway = Gateway::start_by("embedded:", &[&key], &["--audit=/dev/full".to_owned()]);
    let session = register(&gateway, &key, "atlas", "claude_code");
    until("the gateway to say it", || gateway.log().contains("the audit trail cannot be written"));
    assert_eq!(call(&gateway, &key, HEARTBEAT, &session, "").0, 200);
    assert_eq!(call(&gateway, &key, RELEASE, &session, "").0, 200);
    assert!(gateway.stop().success());
}
