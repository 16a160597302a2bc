//! The rights of callers of the control plane: keys and certificates, TLS, and what the audit trail says of it.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_tests::harness::{
    Authority, Gateway, Key, MAILBOX, RfcRunners, eventually, of_runner, until,
};

const REGISTER: &str = "/prism.ControlPlane/RegisterProxy";
const WATCH: &str = "/tenure.v1.Routes/Watch";
/// "admin@", which is a part of [`MAILBOX`] alone, in a message.
const ADMIN: &str = "61646d696e40";

fn bearer(key: &Key) -> Value {
    json!(key.header().trim().split_once(": ").unwrap().1)
}

/// Opens a connection that shows a key.
#[track_caller]
fn open(runners: &mut RfcRunners, channel: &str, gateway: &Gateway, key: &Key) {
    runners.open(channel, gateway, &json!({"authorization": bearer(key)}));
}

/// A proxy with a name of one letter, at a port where nobody listens.
fn proxy(name: u8) -> Vec<u8> {
    [&[10, 1, name, 18, 11][..], b"127.0.0.1:1"].concat()
}

#[track_caller]
fn is_refused(answer: &Value, code: &str, field: &str) {
    assert_eq!(answer["code"], code, "{answer}");
    let found = answer["trailing"]["tenure-field"].as_str().unwrap_or_default();
    assert_eq!(found, field, "{answer}");
    if code == "RESOURCE_EXHAUSTED" {
        let wait: u64 =
            answer["trailing"]["grpc-retry-pushback-ms"].as_str().unwrap().parse().unwrap();
        assert!((1..=10_000).contains(&wait), "{answer}");
    }
}

#[test]
fn who_shows_no_good_key_is_let_in_by_no_service() {
    let good = Key::within("alice", &["--right", "proxy"]);
    let gateway = Gateway::start_with("embedded:", &[&good]);
    let mut runners = RfcRunners::start();
    runners.open("nobody", &gateway, &json!({}));
    open(&mut runners, "unknown", &gateway, &Key::new("alice"));
    runners.open("basic", &gateway, &json!({"authorization": format!("Basic {}", good.text)}));
    runners.open("garbage", &gateway, &json!({"authorization": "Bearer \u{7e}"}));
    for channel in ["nobody", "unknown", "basic", "garbage"] {
        for what in ["acquire", "heartbeat", "release"] {
            is_refused(&runners.call(what, channel, &of_runner("r")), "UNAUTHENTICATED", "");
        }
        // Also before it is told what is wrong with its message.
        for path in [REGISTER, WATCH] {
            is_refused(&runners.raw(channel, path, b"\xff"), "UNAUTHENTICATED", "");
        }
    }
    open(&mut runners, "good", &gateway, &good);
    assert_eq!(runners.acquire("good", "r")["success"], true);
    assert_eq!(runners.raw("good", WATCH, &[])["code"], "OK");
}

#[test]
fn the_bounds_of_a_key_hold_in_every_service() {
    let bounded =
        |name: &str, bounds: &[&str]| Key::within(name, &[bounds, &["--right", "proxy"]].concat());
    let keys = [
        bounded("free", &[]),
        bounded("acme", &["--tenant", "acme"]),
        bounded("both", &["--tenant", "acme", "--tenant", "beta"]),
        bounded("kind", &["--kind", "leader"]),
        bounded("name", &["--name", "audit-*"]),
        bounded("count", &["--holds-max", "1"]),
        bounded("ttl", &["--ttl-max", "60s"]),
        bounded("rate", &["--requests-per-second", "2"]),
    ];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    let mut runners = RfcRunners::start();
    let names = ["free", "acme", "both", "kind", "name", "count", "ttl", "rate"];
    for (name, key) in names.into_iter().zip(&keys) {
        open(&mut runners, name, &gateway, key);
    }
    let other = json!({"authorization": bearer(&keys[1]), "x-tenure-tenant": "default"});
    runners.open("acme elsewhere", &gateway, &other);
    assert_eq!(runners.acquire("free", "r")["success"], true);

    // Another tenant is closed to it: neither its mailboxes nor its routes.
    for what in ["acquire", "heartbeat", "release"] {
        let answer = runners.call(what, "acme elsewhere", &of_runner("r"));
        is_refused(&answer, "PERMISSION_DENIED", "tenants");
    }
    assert_eq!(runners.acquire("acme", "r")["success"], true, "another mailbox of that name");
    let of_default = [&[18, 7][..], b"default"].concat();
    is_refused(&runners.raw("acme", WATCH, &of_default), "PERMISSION_DENIED", "tenants");
    let told = runners.raw("acme", WATCH, &[])["hex"].as_str().unwrap().to_owned();
    assert_eq!(told.matches(ADMIN).count(), 1, "its own mailbox of that name: {told}");
    is_refused(&runners.raw("both", WATCH, &[]), "INVALID_ARGUMENT", "tenant");

    for (channel, field) in [("kind", "kinds"), ("name", "names")] {
        for what in ["acquire", "heartbeat", "release"] {
            let answer = runners.call(what, channel, &of_runner("r"));
            is_refused(&answer, "PERMISSION_DENIED", field);
        }
    }
    is_refused(&runners.raw("kind", WATCH, &[]), "PERMISSION_DENIED", "kinds");
    is_refused(&runners.raw("kind", REGISTER, &proxy(b'k')), "PERMISSION_DENIED", "kinds");
    is_refused(&runners.raw("name", REGISTER, &proxy(b'n')), "PERMISSION_DENIED", "");
    let told = runners.raw("name", WATCH, &[])["hex"].as_str().unwrap().to_owned();
    assert!(!told.contains(ADMIN), "no mailbox of another name: {told}");

    let mailbox = |name: &str| json!({"mailbox_id": name, "runner_id": "r", "ttl_seconds": 60});
    assert_eq!(runners.call("acquire", "count", &mailbox("one"))["success"], true);
    let second = runners.call("acquire", "count", &mailbox("two"));
    is_refused(&second, "RESOURCE_EXHAUSTED", "holds_max");
    assert_eq!(runners.call("acquire", "count", &mailbox("one"))["success"], true, "its own");
    let one = json!({"mailbox_id": "one", "runner_id": "r"});
    assert_eq!(runners.call("release", "count", &one)["released"], true);
    assert_eq!(runners.call("acquire", "count", &mailbox("two"))["success"], true);

    assert_eq!(runners.call("acquire", "ttl", &mailbox("three"))["success"], true);
    let mut long = mailbox("four");
    long["ttl_seconds"] = json!(61);
    is_refused(&runners.call("acquire", "ttl", &long), "PERMISSION_DENIED", "ttl_max");

    let too_fast = |runners: &mut RfcRunners, path: &str| {
        eventually("calls to be too many", || {
            let answer = runners.raw("rate", path, &[]);
            (answer["code"] == "RESOURCE_EXHAUSTED").then_some(answer)
        })
    };
    for path in [WATCH, REGISTER, "/prism.admin.v1.ControlPlane/AcquireLease"] {
        is_refused(&too_fast(&mut runners, path), "RESOURCE_EXHAUSTED", "requests_per_second");
    }
}

#[test]
fn a_key_that_ends_or_is_revoked_ends_its_runners() {
    let (revoked, kept) = (Key::new("alice"), Key::new("bob"));
    let ending = Key::within("eve", &["--expires", "15s"]);
    let gateway = Gateway::start_with("embedded:", &[&revoked, &kept, &ending]);
    let mut runners = RfcRunners::start();
    for (name, key) in [("revoked", &revoked), ("kept", &kept), ("ending", &ending)] {
        open(&mut runners, name, &gateway, key);
        let fields = json!({"mailbox_id": name, "runner_id": "r"});
        assert_eq!(runners.call("acquire", name, &fields)["success"], true);
    }
    gateway.set_keys(&[&kept, &ending]);
    for name in ["revoked", "ending"] {
        let fields = json!({"mailbox_id": name, "runner_id": "r"});
        until("the key to be good no more", || {
            let answer = runners.call("heartbeat", name, &fields);
            answer["code"] == "UNAUTHENTICATED"
        });
        let answer = runners.call("release", name, &fields);
        assert_eq!(answer["code"], "UNAUTHENTICATED", "{answer}");
    }
    let fields = json!({"mailbox_id": "kept", "runner_id": "r"});
    assert_eq!(runners.call("heartbeat", "kept", &fields)["lease_renewed"], true);
}

#[test]
fn the_trail_says_who_had_which_mailbox_and_who_is_told_of_it() {
    let dir = TempDir::new().unwrap();
    let (file, trail) = (dir.path().join("gateway.toml"), dir.path().join("trail"));
    let times = "[mailbox]\nttl = \"1s\"\nheartbeat_interval = \"1s\"\ngrace_period = \"1s\"\n";
    fs::write(&file, times).unwrap();
    let args = [format!("--config={}", file.display()), format!("--audit={}", trail.display())];
    let key = Key::within("alice", &["--right", "proxy"]);
    let gateway = Gateway::start_by("embedded:", &[&key], &args);
    let mut runners = RfcRunners::start();
    open(&mut runners, "a", &gateway, &key);
    assert_eq!(runners.acquire("a", "r")["success"], true);
    assert_eq!(runners.release("a", "r")["released"], true);
    assert_eq!(runners.acquire("a", "r")["success"], true);
    assert_eq!(runners.raw("a", REGISTER, &proxy(b'p'))["code"], "OK");
    assert_eq!(runners.raw("a", REGISTER, &[])["code"], "INVALID_ARGUMENT");
    let lines = eventually("the lease to be lost", || {
        let text = fs::read_to_string(&trail).unwrap_or_default();
        let lines: Vec<Value> =
            text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
        lines.iter().any(|line| line["event"] == "loss").then_some(lines)
    });
    let is_there = |event: &str, words: &str, is_asked: bool| {
        let line = lines.iter().find(|it| it["event"] == event && it.to_string().contains(words));
        let line = line.unwrap_or_else(|| panic!("no {event} of {words} in {lines:#?}"));
        assert_eq!(line["principal"], "alice", "{line}");
        // Nobody's call made it end.
        let peer = line["peer"].as_str().unwrap_or_default();
        assert_eq!(peer.starts_with("127.0.0.1:"), is_asked, "{line}");
    };
    is_there("grant", MAILBOX, true);
    is_there("release", MAILBOX, true);
    is_there("loss", MAILBOX, false);
    is_there("register", "proxy \\\"p\\\" at 127.0.0.1:1", true);
    is_there("refusal", "proxy_id", true);
}

/// The arguments of a gateway with a certificate, where clients may show one, too.
fn secure(authority: &Authority, more: &[String]) -> Gateway {
    authority.issue("gateway", "IP:127.0.0.1");
    let path = |name: &str| authority.path(name).display().to_string();
    let args = [
        format!("--tls-cert-file={}", path("gateway.pem")),
        format!("--tls-key-file={}", path("gateway.key")),
        format!("--tls-client-ca-file={}", path("ca.pem")),
        "--certificate-rights=proxy".to_owned(),
    ];
    // With keys one may come without a certificate, too.
    Gateway::start_by("embedded:", &[&Key::new("alice")], &[&args[..], more].concat())
}

#[test]
fn a_runner_lives_over_tls_and_its_certificate_names_it() {
    let authority = Authority::new();
    let dir = TempDir::new().unwrap();
    let trail = dir.path().join("trail");
    let gateway = secure(&authority, &[format!("--audit={}", trail.display())]);
    authority.issue("runner-host", "DNS:runner-host");
    let stranger = Authority::new();
    let mut runners = RfcRunners::start();
    runners.open_secure("a", &gateway, &authority, Some("runner-host"));
    assert_eq!(runners.acquire("a", "r")["success"], true);
    assert_eq!(runners.heartbeat("a", "r")["lease_renewed"], true);
    assert_eq!(runners.raw("a", WATCH, &[])["code"], "OK");
    assert_eq!(runners.release("a", "r")["released"], true);
    until("the trail to name it", || {
        fs::read_to_string(&trail).unwrap_or_default().contains("runner-host")
    });
    runners.open_secure("no certificate", &gateway, &authority, None);
    is_refused(&runners.acquire("no certificate", "r"), "UNAUTHENTICATED", "");
    // One trusts another authority, one speaks no TLS, and one speaks it to a gateway that does not.
    runners.open_secure("stranger", &gateway, &stranger, None);
    runners.open("plain", &gateway, &json!({}));
    let plain = Gateway::start("embedded:");
    runners.open_secure("secure", &plain, &authority, None);
    for (channel, words) in
        [("stranger", "CERTIFICATE_VERIFY_FAILED"), ("plain", ""), ("secure", "WRONG_VERSION")]
    {
        let answer = runners.acquire(channel, "r");
        assert_eq!(answer["code"], "UNAVAILABLE", "{answer}");
        let details = answer["details"].as_str().unwrap();
        eprintln!("{channel}: {details}");
        assert!(details.contains(words), "{channel}: {details}");
    }
    assert_eq!(runners.acquire("a", "r")["success"], true, "the others go on");
}
