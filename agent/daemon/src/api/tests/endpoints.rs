//! Answers of each endpoint when nothing is wrong, and refusals of the policy.

use std::sync::atomic::Ordering;

use serde_json::json;
use tenure_bounds::{Bounds, Globs};
use tenure_wire::Kind;

use super::super::Limits;
use super::rig::NOBODY;
use super::{Rig, SESSION};
use crate::policy::{Policy, Rule, SharedPolicy, Who};

fn acquire(more: &str) -> String {
    format!(r#"{{"session":"{SESSION}",{more}}}"#)
}

#[tokio::test]
async fn every_endpoint_answers() {
    let rig = Rig::new();
    let mut client = rig.connect().await;

    let registered = client.post("/v1/register", "").await;
    assert_eq!(registered.status, 201);
    let registered = registered.json();
    let page = rig.path.with_file_name(SESSION);
    assert_eq!(registered["page"], page.to_str().unwrap());
    assert_eq!(registered["boot_id"], "00000000-0000-0000-0000-000000000007");
    assert_eq!(registered["agent"]["guarantee"], "one host");
    assert_eq!(registered["resumed"], false);
    let resume = format!(r#"{{"resume":{{"session":"{SESSION}","secret":"ab"}}}}"#);
    assert_eq!(client.post("/v1/register", &resume).await.status, 201);

    let leader = acquire(r#""kind":"leader","name":"a""#);
    let held = client.post("/v1/acquire", &leader).await;
    assert_eq!((held.status, &held.json()["token"]), (200, &json!(42)));
    assert_eq!(held.header("content-type"), Some("application/json"));
    let queue = acquire(r#""kind":"semaphore","name":"a","wait":"queue","limit":2"#);
    let waiting = client.post("/v1/acquire", &queue).await;
    assert_eq!((waiting.status, &waiting.json()["position"]), (202, &json!(2)));
    let taken = client.post("/v1/acquire", &acquire(r#""kind":"leader","name":"taken""#)).await;
    assert_eq!(taken.problem(409, "contended")["holder"]["host"], "there");
    assert_eq!(taken.header("retry-after"), None);
    let ask = acquire(r#""kind":"leader","name":"quarantined""#);
    let quarantined = client.post("/v1/acquire", &ask).await;
    quarantined.problem(503, "upstream_unavailable");
    assert_eq!(quarantined.header("retry-after"), Some("2"));
    let lost = client.post("/v1/acquire", &acquire(r#""kind":"leader","name":"lost""#)).await;
    lost.problem(410, "session_lost");
    assert_eq!(lost.header("retry-after"), None);

    let session = format!(r#"{{"session":"{SESSION}"}}"#);
    assert_eq!(client.post("/v1/release", &session).await.json(), json!({"released": false}));
    assert_eq!(client.post("/v1/checkpoint", &session).await.json()["ok"], true);
    let beaten = client.post("/v1/beat", &session).await;
    assert_eq!((beaten.status, &*beaten.body), (204, ""));

    let standing = client.get("/v1/standing?kind=lease&name=a%20b&tenant=t").await.json();
    assert_eq!((&standing["name"], &standing["tenant"]), (&json!("a b"), &json!("t")));
    assert_eq!(client.get("/v1/routes").await.json()["version"], 3);
    let status = client.get("/v1/status").await.json();
    assert_eq!(status["agent"]["sessions"], 1000);
    assert_eq!(status["agent"]["holds"], 12);
    assert_eq!(status["agent"]["waiters"], 12);
    assert_eq!(status["upstream"]["state"], "down");
    assert_eq!(status["upstream"]["address"], "redis://there:6379/0");

    assert_eq!(client.get("/healthz").await.json(), json!({"ok": true}));
    let ready = client.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["upstream"]), (200, &json!("down")));
    let metrics = client.get("/metrics").await;
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text;"));
    assert!(metrics.body.ends_with("# EOF\n"));
    assert_eq!(client.get("/openapi.json").await.json()["openapi"], "3.1.0");
}

#[tokio::test]
async fn unknown_paths_and_methods_say_what_there_is() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    let problem = client.get("/v2/none%0a").await.problem(404, "not_found");
    assert!(problem["detail"].as_str().unwrap().contains("POST /v1/acquire"));
    client.get("/v1/acquire/").await.problem(404, "not_found");
    let wrong = client.get("/v1/acquire").await;
    wrong.problem(405, "method_not_allowed");
    assert_eq!(wrong.header("allow"), Some("POST"));
    let wrong = client.post("/v1/status", "").await;
    wrong.problem(405, "method_not_allowed");
    assert_eq!(wrong.header("allow"), Some("GET, HEAD"));
    client.send("OPTIONS /v1/beat HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.answer().await.unwrap().problem(405, "method_not_allowed");
    client.send("HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.header("content-length")), (200, Some("11")));
    // A HEAD would open a stream and close it with what it tethers.
    client.send(format!("HEAD /v1/events?session={SESSION} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.header("allow")), (405, Some("GET")));
}

#[tokio::test]
async fn revoking_is_for_administrators() {
    let rig = Rig::new();
    let body = r#"{"kind":"leader","name":"a"}"#;
    for (uid, status) in [(1000, 403), (0, 200), (990, 200)] {
        rig.uid.store(uid, Ordering::Relaxed);
        let answer = rig.connect().await.post("/v1/revoke", body).await;
        assert_eq!(answer.status, status, "uid {uid}");
        if status == 403 {
            answer.problem(403, "forbidden");
        }
    }
}

#[tokio::test]
async fn a_peer_without_identity_is_unauthorized() {
    let rig = Rig::new();
    rig.uid.store(NOBODY, Ordering::Relaxed);
    let mut client = rig.connect().await;
    client.get("/v1/status").await.problem(401, "unauthorized");
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn whom_rules_bound_is_told_of_this_agent_alone() {
    let rig = Rig::new();
    let all = rig.connect().await.get("/v1/agents?limit=3").await;
    let agents = all.json();
    let told = |of: &str| -> Vec<_> {
        let agents = agents["agents"].as_array().unwrap();
        agents.iter().map(|agent| agent[of].clone()).collect()
    };
    assert_eq!(told("agent"), ["own", "late", "gone"]);
    assert_eq!(told("this"), [true, false, false]);
    assert_eq!(told("seen"), [true, true, false]);
    assert_eq!(agents["cursor"], "7");
    rig.connect().await.get("/v1/agents?limit=0").await.problem(422, "invalid");

    let rig = Rig::with(Limits::default(), rules());
    for (uid, count) in [(1000, 1), (0, 3), (990, 3)] {
        rig.uid.store(uid, Ordering::Relaxed);
        let first = rig.connect().await.get("/v1/agents").await.json();
        assert_eq!(first["agents"].as_array().unwrap().len(), count, "uid {uid}");
        let later = rig.connect().await.get("/v1/agents?cursor=7").await.json();
        assert_eq!(later["agents"].as_array().unwrap().is_empty(), uid == 1000, "uid {uid}");
    }
}

fn rules() -> SharedPolicy {
    let globs = |text: &str| Some(Globs::new([text]).unwrap());
    SharedPolicy::new(Policy::new(vec![Rule {
        uid: Who::Ids(vec![1000]),
        gid: Who::Ids(vec![1000]),
        bounds: Bounds {
            tenants: globs("default"),
            projects: globs("apollo"),
            kinds: vec![Kind::Leader, Kind::Master],
            names: globs("a*"),
            priority_max: Some(5),
            ..Bounds::default()
        },
    }]))
}

#[tokio::test]
async fn a_session_without_a_page_is_refused() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    std::fs::remove_file(rig.path.with_file_name(SESSION)).unwrap();
    let refused = client.post("/v1/register", "{}").await;
    let problem = refused.problem(503, "upstream_unavailable");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("it would have no page"), "{detail}");
    // Resumed, it may do without.
    let resume = format!(r#"{{"resume":{{"session":"{SESSION}","secret":"5ec1e7"}}}}"#);
    assert_eq!(client.post("/v1/register", &resume).await.status, 201);
}

#[tokio::test]
async fn the_policy_is_asked() {
    let rig = Rig::with(Limits::default(), rules());
    let mut client = rig.connect().await;
    for (path, body, status) in [
        ("/v1/register", "{}".to_owned(), 201),
        ("/v1/register", r#"{"project":"apollo"}"#.to_owned(), 201),
        ("/v1/register", r#"{"project":"gemini"}"#.to_owned(), 403),
        ("/v1/register", r#"{"tenant":"other"}"#.to_owned(), 403),
        ("/v1/acquire", acquire(r#""kind":"leader","name":"a""#), 200),
        ("/v1/acquire", acquire(r#""kind":"leader","name":"b""#), 403),
        ("/v1/acquire", acquire(r#""kind":"lease","name":"a""#), 403),
        ("/v1/acquire", acquire(r#""kind":"master","priority":5"#), 200),
        ("/v1/acquire", acquire(r#""kind":"master""#), 403),
    ] {
        let answer = client.post(path, &body).await;
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
    }
    for (path, status) in [
        ("/v1/standing?kind=leader&name=a", 200),
        ("/v1/standing?kind=leader&name=b", 403),
        ("/v1/observe?kind=lease&name=a", 403),
        ("/v1/routes", 403),
        ("/v1/standing?kind=leader&name=a&tenant=other", 403),
        ("/v1/routes?tenant=other", 403),
        ("/v1/observe?kind=leader&name=a&tenant=other", 403),
        ("/v1/status", 200),
    ] {
        assert_eq!(client.get(path).await.status, status, "{path}");
    }
    rig.uid.store(1001, Ordering::Relaxed);
    let problem = rig.connect().await.post("/v1/register", "").await.problem(403, "forbidden");
    assert!(problem["detail"].as_str().unwrap().contains("uid 1001"));
}

#[tokio::test]
async fn a_quarantine_is_ended_by_root_and_the_agent_s_user_alone() {
    let rig = Rig::new();
    for (uid, status) in [(1000, 403), (990, 200), (0, 200)] {
        rig.uid.store(uid, Ordering::Relaxed);
        let answer = rig.connect().await.post("/v1/quarantine/end", "").await;
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    let answer = rig.connect().await.post("/v1/quarantine/end", "").await.json();
    assert_eq!(answer, json!({"ended": true, "left_ms": 29_500}));
}
