//! Rights to change the log's filter, and its bounds.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::{Client, Rig};

async fn put(client: &mut Client, body: &str) -> super::client::Answer {
    let head = format!("PUT /v1/log HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    client.send(&(head + body)).await;
    client.answer().await.unwrap()
}

#[tokio::test]
async fn root_and_the_agents_user_change_what_is_logged() {
    let rig = Rig::new();
    for uid in [0, 990] {
        rig.uid.store(uid, Ordering::Relaxed);
        let mut client = rig.connect().await;
        let configured = json!({"filter": "info", "configured": "info"});
        assert_eq!(client.get("/v1/log").await.json(), configured);
        let answer = put(&mut client, r#"{"filter":"info,tenured::api=debug"}"#).await;
        let wanted = json!({"filter": "info,tenured::api=debug", "configured": "info"});
        assert_eq!((answer.status, answer.json()), (200, wanted.clone()));
        let wrong = put(&mut client, r#"{"filter":"loud"}"#).await;
        assert_eq!(wrong.problem(422, "invalid")["field"], "filter");
        put(&mut client, r#"{"level":"debug"}"#).await.problem(422, "invalid");
        assert_eq!(client.get("/v1/log").await.json(), wanted, "a slip changes nothing");
        for reset in [r#"{"filter":null}"#, "{}", ""] {
            put(&mut client, r#"{"filter":"trace"}"#).await;
            assert_eq!(put(&mut client, reset).await.json(), configured, "{reset}");
        }
    }
}

#[tokio::test]
async fn others_neither_see_nor_change_it() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    client.get("/v1/log").await.problem(403, "forbidden");
    let refused = put(&mut client, r#"{"filter":"trace"}"#).await;
    let detail = refused.problem(403, "forbidden")["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("uid 1000 ") && detail.contains("(uid 990)"), "{detail}");
    rig.uid.store(0, Ordering::Relaxed);
    assert_eq!(rig.connect().await.get("/v1/log").await.json()["filter"], "info");
    let post = rig.connect().await.post("/v1/log", "").await;
    post.problem(405, "method_not_allowed");
    assert_eq!(post.header("allow"), Some("GET, HEAD, PUT"));
}
