use std::collections::BTreeMap;

use serde_json::json;
use uuid::Uuid;

use super::*;

#[track_caller]
fn check_acquire(fields: serde_json::Value, wrong: Option<&str>) {
    let mut ask = json!({"session": "00000000-0000-4000-8000-000000000001"});
    for (key, value) in fields.as_object().unwrap() {
        ask[key] = value.clone();
    }
    let result = acquire(&serde_json::from_value(ask).unwrap(), &Settings::default());
    let field = result.as_ref().err().map(|invalid| invalid.field());
    assert_eq!(field, wrong, "{fields}: {result:?}");
}

#[test]
fn what_a_command_left_behind_is_named_in_part() {
    let check = |count: usize, program: &str| {
        let processes: BTreeMap<usize, &str> = (1..=count).map(|pid| (pid, program)).collect();
        let ask = json!({"session": Uuid::nil(), "processes": processes});
        let result = leftovers(&serde_json::from_value(ask).unwrap());
        result.err().map(|invalid| invalid.field().to_owned())
    };
    // Whoever guarded the command has not chosen these names.
    for program in ["", "a\nb", "\u{1b}[2J", &"x".repeat(200)] {
        assert_eq!(check(8, program), None, "{program:?}");
    }
    assert_eq!(check(9, "sleep").as_deref(), Some("processes"));
    for pid in ["0", "4194305", "4294967295"] {
        let ask = json!({"session": Uuid::nil(), "processes": {pid: "sleep"}});
        let invalid = leftovers(&serde_json::from_value(ask).unwrap()).unwrap_err();
        assert_eq!(invalid.field(), "processes", "{pid}");
    }
    for program in ["a\0b", &"x".repeat(201)] {
        assert_eq!(check(1, program).as_deref(), Some("processes"), "{program:?}");
    }
}

#[test]
fn acquires() {
    let check = check_acquire;
    check(json!({"kind": "leader", "name": "a"}), None);
    check(json!({"kind": "leader"}), Some("name"));
    check(json!({"kind": "lease"}), Some("name"));
    check(json!({"kind": "semaphore"}), Some("name"));
    check(json!({"kind": "master"}), None);
    check(json!({"kind": "master", "name": "p"}), Some("name"));
    check(json!({"kind": "leader", "name": "a\nb"}), Some("name"));
    check(json!({"kind": "leader", "name": "a", "behind_own": true}), None);
    check(json!({"kind": "leader", "name": "a", "behind_own": true, "wait": "queue"}), None);
    check(json!({"kind": "leader", "name": "a", "limit": 2}), Some("limit"));
    check(json!({"kind": "leader", "name": "a", "priority": 2}), Some("priority"));
    check(json!({"kind": "leader", "name": "a", "grace_ms": 2}), Some("grace_ms"));
    check(json!({"kind": "leader", "name": "a", "attributes": {}}), Some("attributes"));
    check(json!({"kind": "semaphore", "name": "a", "limit": 0}), Some("limit"));
    check(json!({"kind": "semaphore", "name": "a", "limit": 1}), None);
    check(json!({"kind": "semaphore", "name": "a", "limit": 1_000_000}), None);
    check(json!({"kind": "semaphore", "name": "a", "limit": 1_000_001}), Some("limit"));
    check(json!({"kind": "semaphore", "name": "a", "attributes": {}}), Some("attributes"));
    check(json!({"kind": "master", "priority": -5}), None);
    check(json!({"kind": "master", "limit": 1}), Some("limit"));
    check(json!({"kind": "lease", "name": "a", "grace_ms": 0}), None);
    check(json!({"kind": "lease", "name": "a", "grace_ms": 86_400_001}), Some("grace_ms"));
    check(json!({"kind": "lease", "name": "a", "attributes": {"partition": 255}}), None);
    let long = |bytes: usize| {
        let (address, status) = ("x".repeat(200), "y".repeat(bytes - 200));
        json!({"kind": "lease", "name": "a", "attributes": {"address": address, "status": status}})
    };
    check(long(400), None);
    let three = json!({"kind": "lease", "name": "a", "attributes": {
        "address": "x".repeat(200), "proxy_id": "y".repeat(200), "status": "z"}});
    check(three, Some("attributes"));
    check(
        json!({"kind": "lease", "name": "a", "attributes": {"partition": 256}}),
        Some("attributes.partition"),
    );
    check(
        json!({"kind": "lease", "name": "a", "attributes": {"address": "a\rb"}}),
        Some("attributes.address"),
    );
    check(
        json!({"kind": "lease", "name": "a", "attributes": {"proxy_id": ""}}),
        Some("attributes.proxy_id"),
    );
    check(
        json!({"kind": "lease", "name": "a", "attributes": {"status": " x"}}),
        Some("attributes.status"),
    );
    check(json!({"kind": "leader", "name": "a", "timeout_ms": 5}), Some("timeout_ms"));
    let none = json!({"kind": "leader", "name": "a", "wait": "none", "timeout_ms": 0});
    check(none, Some("timeout_ms"));
    check(json!({"kind": "leader", "name": "a", "wait": "block", "timeout_ms": 0}), None);
    check(json!({"kind": "leader", "name": "a", "wait": "queue", "timeout_ms": 5}), None);
    check(json!({"kind": "leader", "name": "a", "ttl_ms": 299}), Some("ttl_ms"));
    check(json!({"kind": "leader", "name": "a", "ttl_ms": 300}), None);
    check(json!({"kind": "leader", "name": "a", "ttl_ms": 86_400_000}), None);
    check(json!({"kind": "leader", "name": "a", "ttl_ms": 86_400_001}), Some("ttl_ms"));
    for (max_hold_ms, refused) in [(0, Some("max_hold_ms")), (99, Some("max_hold_ms")), (100, None)]
    {
        check(json!({"kind": "leader", "name": "a", "max_hold_ms": max_hold_ms}), refused);
    }
    check(json!({"kind": "leader", "name": "a", "request": ""}), Some("request"));
}

#[track_caller]
fn check_register(ask: serde_json::Value, wrong: Option<&str>) {
    let result = register(&serde_json::from_value(ask.clone()).unwrap(), &Settings::default());
    let field = result.as_ref().err().map(|invalid| invalid.field());
    assert_eq!(field, wrong, "{ask}: {result:?}");
}

#[test]
fn registers() {
    let check = check_register;
    check(json!({}), None);
    check(json!({"name": "x", "surface": "cli", "tenant": "t", "project": "p"}), None);
    check(json!({"name": ""}), Some("name"));
    check(json!({"surface": "a\u{202e}"}), Some("surface"));
    check(json!({"tenant": "a:b"}), Some("tenant"));
    check(json!({"project": "a:b"}), Some("project"));
    check(json!({"keepalive_ms": 99}), Some("keepalive_ms"));
    check(json!({"keepalive_ms": 100}), None);
    check(json!({"keepalive_ms": 86_400_001}), Some("keepalive_ms"));
    check(json!({"linger_ms": 0}), None);
    check(json!({"linger_ms": 86_400_001}), Some("linger_ms"));
    check(json!({"progress_ms": 99}), Some("progress_ms"));
    check(json!({"progress_ms": 100}), None);
    check(json!({"holds": 0}), Some("holds"));
    check(json!({"holds": 1}), None);
    check(json!({"holds": 4095}), None);
    check(json!({"holds": 4096}), Some("holds"));
    check(json!({"ttl_ms": 1}), Some("ttl_ms"));
    let session = "00000000-0000-4000-8000-000000000001";
    check(json!({"resume": {"session": session, "secret": ""}}), Some("resume.secret"));
    check(json!({"resume": {"session": session, "secret": "ab"}, "name": ""}), None);
}

#[test]
fn the_ttl_rule_is_named() {
    let invalid = ttl(Some(100), &Settings::default()).unwrap_err();
    let expected = "ttl_ms is 100; the rule: ttl > 2 × beat with beat ≥ 100 ms, so 300 to 86400000 ms \
                    here; choose a number in between, or leave it out for the default";
    assert_eq!(invalid.to_string(), expected);
}
