//! Rounds that a client makes again and again.

use anyhow::ensure;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::connection::{get, post};
use super::requests::{ask, long_name, page_of};
use super::target::Target;

/// Sessions of one project, each with a stream that is opened and closed; then all of them end.
pub(super) async fn project(target: &Target, sessions: usize) -> anyhow::Result<()> {
    let mut connection = target.connect().await;
    let mut begun = Vec::new();
    for number in 0..sessions {
        let with = json!({"name": long_name(number), "project": "p", "tether": "process"});
        let session = connection.register(&with).await?;
        let mut stream = target.connect().await;
        stream.stream.write_all(&get(&format!("/v1/events?session={session}"), 1)).await?;
        stream.more().await?;
        begun.push(session);
    }
    for session in begun {
        connection.exchange(&post("/v1/release", &json!({"session": session}))).await?;
    }
    Ok(())
}

/// A session that comes and goes, as of a short job.
pub(super) async fn come(target: &Target, _: usize) -> anyhow::Result<()> {
    let mut connection = target.connect().await;
    for _ in 0..10 {
        let session = connection.register(&json!({"project": "web", "tether": "process"})).await?;
        connection.exchange(&post("/v1/release", &json!({"session": session}))).await?;
    }
    Ok(())
}

pub(super) async fn read_status(target: &Target, _: usize) -> anyhow::Result<()> {
    let mut connection = target.connect().await;
    let mut path = page_of("status").to_owned();
    loop {
        let answer = connection.exchange(&get(&path, 1)).await?;
        target.saw(&answer.status.to_string());
        ensure!(answer.status == 200, "{}", answer.sort());
        let Ok(cursor) = answer.field("cursor") else { return Ok(()) };
        path = format!("{}&cursor={cursor}", page_of("status"));
    }
}

pub(super) async fn call_once(target: &Target, _: usize) -> anyhow::Result<()> {
    let answer = target.connect().await.exchange(&get("/healthz", 1)).await?;
    target.saw(&answer.status.to_string());
    Ok(())
}

/// A session with as many permits as make the longest lines in a log.
pub(super) async fn pairs(target: &Target, _: usize) -> anyhow::Result<()> {
    let mut connection = target.connect().await;
    loop {
        let session =
            connection.register(&json!({"name": long_name(0), "tether": "process"})).await?;
        let mut requests: Vec<_> = (0..63).map(|at| ask("permits", &session, at)).collect();
        requests.push(post("/v1/release", &json!({"session": session})));
        for answer in connection.exchange_all(&requests).await? {
            target.saw(&answer.sort());
        }
    }
}
