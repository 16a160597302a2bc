//! Rights to an examination of the upstream, and how many run at a time.

use std::sync::atomic::Ordering;

use serde_json::json;
use tenure_wire::Check;

use super::Rig;

#[tokio::test]
async fn only_root_and_the_agents_user_may_examine_the_upstream() {
    let mut rig = Rig::new();
    let mut client = rig.connect().await;
    let refused = client.get("/v1/doctor").await.problem(403, "forbidden");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("uid 1000 ") && detail.contains("(uid 990)"), "{detail}");
    for uid in [0, 990] {
        rig.uid.store(uid, Ordering::Relaxed);
        let mut client = rig.connect().await;
        client.send("GET /v1/doctor HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let checks = rig.examination().await;
        checks.send(vec![Check::ok("a", "fine"), Check::failure("b", "bad", "mend it")]).unwrap();
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, 200);
        let expected = json!({"checks": [
            {"name": "a", "verdict": "ok", "detail": "fine"},
            {"name": "b", "verdict": "failure", "detail": "bad", "remedy": "mend it"},
        ]});
        assert_eq!(answer.json(), expected);
    }
    client.get("/v1/doctor?deep=1").await.problem(422, "invalid");
}

#[tokio::test]
async fn one_examination_at_a_time_and_none_that_nobody_waits_for() {
    let mut rig = Rig::new();
    rig.uid.store(0, Ordering::Relaxed);
    let mut first = rig.connect().await;
    first.send("GET /v1/doctor HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut abandoned = rig.examination().await;
    let mut second = rig.connect().await;
    let refused = second.get("/v1/doctor").await;
    refused.problem(429, "quota_exceeded");
    assert_eq!(refused.header("retry-after"), Some("1"));

    drop(first);
    super::within("the end of the abandoned examination", abandoned.closed()).await;
    second.send("GET /v1/doctor HTTP/1.1\r\nhost: x\r\n\r\n").await;
    rig.examination().await.send(vec![]).unwrap();
    assert_eq!(second.answer().await.unwrap().json(), json!({"checks": []}));
}

#[tokio::test]
async fn an_examination_has_a_deadline() {
    let mut rig = Rig::new();
    rig.uid.store(0, Ordering::Relaxed);
    let mut client = rig.connect().await;
    client.send("GET /v1/doctor HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let never = rig.examination().await;
    let answer = client.answer().await.unwrap();
    answer.problem(503, "upstream_unavailable");
    drop(never);
}
