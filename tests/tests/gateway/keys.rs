//! Callers of a gateway, and what each may touch.

use serde_json::{Value, json};
use tenure::wire::UpstreamState;
use tenure_tests::harness::{Agent, Campaigner, Client, Gateway, Key, start_agent, until};

const HELLO: &str = "POST /v1/upstream/hello";

fn hello(gateway: &Gateway, headers: &str) -> (u16, String) {
    gateway.call_with(headers, HELLO, r#"{"protocol":1,"version":"x"}"#).unwrap()
}

fn mark(gateway: &Gateway, key: &Key) -> String {
    let (status, answer) = hello(gateway, &key.header());
    assert_eq!(status, 200, "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let welcome: Value = serde_json::from_str(body).unwrap();
    welcome["mark"].as_str().unwrap().to_owned()
}

fn is_up(agent: &Agent) -> bool {
    agent.http().status().upstream.state == UpstreamState::Up
}

#[test]
fn who_shows_no_good_key_is_not_let_in() {
    let (good, other) = (Key::new("laptop-7"), Key::new("laptop-7"));
    let gateway = Gateway::start_with("embedded:", &[&good]);
    let mut wrong = good.text.clone();
    wrong.replace_range(20..21, if &wrong[20..21] == "A" { "B" } else { "A" });
    let twice = format!("{}{}", good.header(), good.header());
    for headers in [
        String::new(),
        other.header(),
        format!("Authorization: Bearer {wrong}\r\n"),
        format!("Authorization: Basic {}\r\n", good.text),
        format!("Authorization: {}\r\n", good.text),
        "Authorization: Bearer \r\n".to_owned(),
        twice,
    ] {
        let (status, answer) = hello(&gateway, &headers);
        assert_eq!(status, 401, "{headers}: {answer}");
        assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
        let (status, _) = gateway.call_with(&headers, "GET /v1/upstream/changes", "").unwrap();
        assert_eq!(status, 401);
        let (status, _) = gateway.call_with(&headers, "POST /v1/upstream/claim", "{}").unwrap();
        assert_eq!(status, 401, "a stranger is not told what a body lacks");
    }
    mark(&gateway, &good);
    for secret in [&good.text[12..], &other.text[12..], &wrong[12..]] {
        assert!(!gateway.log().contains(secret));
    }
}

#[test]
fn an_open_stream_ends_when_its_key_is_revoked() {
    let keys = ["alpha", "beta"].map(Key::new);
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1]]);
    let [revoked, kept] = keys.each_ref().map(|key| gateway.changes(key));
    gateway.set_keys(&[&keys[1]]);
    let rest = revoked.ended();
    assert!(rest.to_lowercase().contains("x-accel-buffering: no"), "{rest}");
    kept.is_open();
}

/// A right that was taken away is not one of its old streams, either; streams of keys that are as they were go on.
#[test]
fn an_open_stream_ends_when_its_key_has_other_bounds() {
    let seeing = ["--tenant", "acme", "--right", "audit", "--right", "owners"];
    let [mut changed, kept] = ["alpha", "beta"].map(|subject| Key::within(subject, &seeing));
    let gateway = Gateway::start_with("embedded:", &[&changed, &kept]);
    let stays = gateway.changes(&kept);
    let written = changed.line.clone();
    let less = written.replace("rights = [\"audit\", \"owners\"]", "");
    assert_ne!(less, written);
    // By the end of the second one the other stream has looked at its key, too.
    for bounds in [less, written] {
        let ends = gateway.changes(&changed);
        changed.line = bounds;
        gateway.set_keys(&[&changed, &kept]);
        ends.ended();
    }
    // Its reader opens it again.
    gateway.changes(&changed).is_open();
    stays.is_open();
}

#[test]
fn ids_are_their_principals_and_keys_of_one_principal_are_one_caller() {
    let keys = ["alpha", "alpha", "beta"].map(Key::new);
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1], &keys[2]]);
    let marks = keys.each_ref().map(|key| mark(&gateway, key));
    assert_eq!(marks[0], marks[1]);
    assert_ne!(marks[0], marks[2]);

    let of_alpha = format!("67e55044-10b1-426f-9247-{}", marks[0]);
    let resource = json!({"tenant": "t", "kind": "leader", "name": "n"});
    let ttl = json!({"secs": 30, "nanos": 0});
    let owner = json!({"session": of_alpha, "host": "h", "name": "p"});
    let claim = json!({"id": of_alpha, "resource": resource, "owner": owner, "ttl": ttl,
        "terms": "Leader", "enqueue": false});
    let beats = json!({"beats": [{"subject": {"Claim": {"claim": of_alpha, "resource": resource}},
        "ttl": ttl}]});
    let release = json!({"claim": of_alpha, "resource": resource});
    let end = json!({"session": of_alpha, "tenant": "t", "project": "p"});
    let ask = |key: &Key, operation: &str, body: &Value| {
        let head = format!("POST /v1/upstream/{operation}");
        gateway.call_with(&key.header(), &head, &body.to_string()).unwrap()
    };
    let (status, first) = ask(&keys[0], "claim", &claim);
    assert!(status == 200 && first.contains("Held"), "{first}");
    for (operation, body) in
        [("claim", &claim), ("renew", &beats), ("release", &release), ("end", &end)]
    {
        let (status, answer) = ask(&keys[2], operation, body);
        assert_eq!(status, 404, "{operation}: {answer}");
    }
    // The same operation by another key of the same principal is the same operation.
    let body = |answer: &str| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    let (_, second) = ask(&keys[1], "claim", &claim);
    assert_eq!(body(&first), body(&second));
    let (_, released) = ask(&keys[1], "release", &release);
    assert_eq!(body(&released), r#"{"found":true}"#);
}

#[test]
fn agents_of_several_principals_hand_over_and_a_revoked_one_is_told() {
    let keys = ["alpha", "beta"].map(|name| Key::within(name, &["--right", "owners"]));
    let gateway = Gateway::start_with("embedded:", &[&keys[0], &keys[1]]);
    let [alpha, beta] =
        [0, 1].map(|at| start_agent(at, &gateway.url(), &gateway.config(&keys[at])));
    let mut first = Campaigner::start(&alpha, "first");
    let mut second = Campaigner::start(&beta, "second");
    let held = first.acquire("leader", "role", &json!({}));
    let waiting = second.queue("leader", "role", &json!({}));
    let seen = beta.http().standing("leader", "role");
    assert_eq!((seen.holders[0].name.as_str(), seen.holders[0].token), ("first", held.token));
    first.release(held.hold);
    let granted = second.events.granted(waiting);
    assert!(granted.token > held.token);

    gateway.set_keys(&[&keys[0]]);
    until("the revoked agent to be told", || {
        let upstream = beta.http().status().upstream;
        let error = upstream.last_error.unwrap_or_default();
        !is_up(&beta) && error.contains("check the key in upstream_secret_file")
    });
    assert!(is_up(&alpha));
    let log = beta.log();
    assert!(!log.contains(&keys[1].text) && !gateway.log().contains(&keys[1].text[12..]));

    gateway.set_keys(&[&keys[0], &keys[1]]);
    until("it to be let in again", || is_up(&beta));
}
