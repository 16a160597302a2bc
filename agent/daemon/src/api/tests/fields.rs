//! Every field of every endpoint, with every wrong type.

use serde_json::{Value, json};

use super::{Rig, SESSION};

/// JSON of every type, and numbers that fit nowhere.
fn samples() -> Vec<(&'static str, Value)> {
    vec![
        ("string", json!("\u{7}")),
        ("bool", json!(true)),
        ("negative", json!(-1)),
        ("fraction", json!(1.5)),
        ("huge", json!(1e300)),
        ("list", json!([1])),
        ("object", json!({"a": 1})),
    ]
}

/// Sends `base` with one field set to each sample but those that are right for it.
async fn check(path: &str, base: Value, field: &str, right: &[&str]) {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    for (name, sample) in samples() {
        if right.contains(&name) {
            continue;
        }
        let mut body = base.clone();
        let mut place = &mut body;
        for key in field.split('.') {
            place = &mut place[key];
        }
        *place = sample;
        let answer = client.post(path, &body.to_string()).await;
        let problem = answer.problem(422, "invalid");
        let named = problem["field"].as_str().unwrap_or_default();
        // An object where attributes or resume are wanted is wrong for its members.
        let is_named = named == field || named.starts_with(&format!("{field}."));
        assert!(is_named, "{path}: {body} names {named:?}: {answer:?}");
        assert!(problem["detail"].as_str().unwrap().contains(named), "{path}: {body}: {answer:?}");
    }
}

#[tokio::test]
async fn register() {
    let base = json!({"resume": null});
    for field in ["name", "surface", "tenant", "project", "tether"] {
        check("/v1/register", base.clone(), field, &[]).await;
    }
    for field in ["keepalive_ms", "linger_ms", "progress_ms", "ttl_ms"] {
        check("/v1/register", base.clone(), field, &[]).await;
    }
    check("/v1/register", base.clone(), "guarded", &["bool"]).await;
    check("/v1/register", base, "resume", &[]).await;
    let resume = json!({"resume": {"session": SESSION, "secret": "ab"}});
    check("/v1/register", resume.clone(), "resume.session", &[]).await;
    check("/v1/register", resume, "resume.secret", &[]).await;
}

#[tokio::test]
async fn acquire() {
    let lease = json!({"session": SESSION, "kind": "lease", "name": "a", "attributes": {}});
    for field in ["session", "kind", "name", "wait", "request"] {
        check("/v1/acquire", lease.clone(), field, &[]).await;
    }
    for field in ["ttl_ms", "max_hold_ms", "grace_ms", "attributes"] {
        check("/v1/acquire", lease.clone(), field, &[]).await;
    }
    for field in ["address", "proxy_id", "partition", "status"] {
        check("/v1/acquire", lease.clone(), &format!("attributes.{field}"), &[]).await;
    }
    let waits = json!({"session": SESSION, "kind": "leader", "name": "a", "wait": "queue"});
    check("/v1/acquire", waits, "timeout_ms", &[]).await;
    let semaphore = json!({"session": SESSION, "kind": "semaphore", "name": "a"});
    check("/v1/acquire", semaphore, "limit", &[]).await;
    let master = json!({"session": SESSION, "kind": "master"});
    check("/v1/acquire", master, "priority", &["negative"]).await;
}

#[tokio::test]
async fn the_others() {
    let session = json!({"session": SESSION});
    for path in ["/v1/release", "/v1/checkpoint", "/v1/beat"] {
        check(path, session.clone(), "session", &[]).await;
        check(path, session.clone(), "colour", &[]).await;
    }
    check("/v1/release", session.clone(), "hold", &[]).await;
    check("/v1/leftovers", session.clone(), "session", &[]).await;
    check("/v1/leftovers", session.clone(), "exit_status", &["negative"]).await;
    check("/v1/leftovers", session, "processes", &[]).await;
}

#[tokio::test]
async fn revoke() {
    let rig = Rig::new();
    rig.uid.store(0, std::sync::atomic::Ordering::Relaxed);
    let mut client = rig.connect().await;
    for (body, field) in [
        (json!({"name": "a"}), "kind"),
        (json!({"kind": 1, "name": "a"}), "kind"),
        (json!({"kind": "leader"}), "name"),
        (json!({"kind": "leader", "name": "a\nb"}), "name"),
        (json!({"kind": "master", "name": "a:b"}), "name"),
        (json!({"kind": "leader", "name": "a", "tenant": "a:b"}), "tenant"),
        (json!({"kind": "leader", "name": "a", "tenant": 1}), "tenant"),
        (json!({"kind": "leader", "name": "a", "token": "1"}), "token"),
        (json!({"kind": "leader", "name": "a", "token": -1}), "token"),
        (json!({"kind": "leader", "name": "a", "force": true}), "force"),
    ] {
        let problem = client.post("/v1/revoke", &body.to_string()).await.problem(422, "invalid");
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
}

#[tokio::test]
async fn queries() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    for (path, field) in [
        ("/v1/events", "session"),
        ("/v1/events?session=x", "session"),
        ("/v1/events?session=x&session=y", "session"),
        ("/v1/observe?kind=leader", "name"),
        ("/v1/observe?kind=lock&name=a", "kind"),
        ("/v1/standing?name=a", "kind"),
        ("/v1/standing?kind=leader&name=%00", "name"),
        ("/v1/standing?kind=leader&name=%ff", "name"),
        ("/v1/routes?name=", "name"),
        ("/v1/routes?tenant=a:b", "tenant"),
        ("/v1/status?verbose=1", "verbose"),
        ("/healthz?x", "x"),
        ("/metrics?x=1", "x"),
    ] {
        let problem = client.get(path).await.problem(422, "invalid");
        assert_eq!(problem["field"], field, "{path}");
    }
}
