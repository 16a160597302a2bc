//! Counters of requests and connections.

use super::{Rig, within};

fn has(rig: &Rig, line: &str) -> bool {
    rig.numbers().lines().any(|found| found == line)
}

#[tokio::test]
async fn answers_are_counted_by_endpoint_and_status() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    for path in ["/healthz", "/healthz?x", "/v1/acquire", "/a", "/b", "/v1/beat%2f"] {
        client.get(path).await;
    }
    client.post("/v1/register", "").await;
    for line in [
        r#"tenured_requests_total{endpoint="/healthz",code="200"} 1"#,
        r#"tenured_requests_total{endpoint="/healthz",code="422"} 1"#,
        r#"tenured_requests_total{endpoint="/v1/acquire",code="405"} 1"#,
        r#"tenured_requests_total{endpoint="/v1/register",code="201"} 1"#,
        r#"tenured_requests_total{endpoint="other",code="404"} 3"#,
    ] {
        assert!(has(&rig, line), "{line} is missing in {}", rig.numbers());
    }
}

#[tokio::test]
async fn open_connections_are_counted() {
    let rig = Rig::new();
    let mut clients = [rig.connect().await, rig.connect().await];
    for client in &mut clients {
        client.get("/healthz").await;
    }
    assert!(has(&rig, "tenured_connections 2"));
    drop(clients);
    within("the end of both connections", async {
        while !has(&rig, "tenured_connections 0") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
