//! The end of serving.

use std::time::Duration;

use tenure_core::keeper::StreamEnd;

use super::super::{Drained, Limits};
use super::client::post;
use super::rig::guarded;
use super::{Rig, SESSION, within};
use crate::heart::StreamItem;

#[tokio::test]
async fn idle_connections_end_and_no_more_are_taken() {
    let rig = Rig::new();
    let mut kept = rig.connect().await;
    assert_eq!(kept.get("/healthz").await.status, 200);
    let mut silent = rig.connect().await;
    rig.shutdown.cancel();
    assert_eq!(within("the drain", rig.served).await.unwrap(), Drained { cut: 0 });
    assert_eq!(kept.rest().await, "");
    assert_eq!(silent.rest().await, "");
    assert!(tokio::net::UnixStream::connect(&rig.path).await.is_err());
}

#[tokio::test]
async fn streams_end_when_the_heart_says_so() {
    let mut rig = Rig::new();
    let mut client = rig.connect().await;
    client.send(format!("GET /v1/events?session={SESSION} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    let (_, _, events) = rig.opened().await;
    client.head().await.unwrap();
    rig.shutdown.cancel();
    events.send(StreamItem::End(StreamEnd::Stopping)).await.unwrap();
    assert_eq!(within("the drain", rig.served).await.unwrap(), Drained { cut: 0 });
    assert!(client.rest().await.contains(r#"{"cause":"stopping"}"#));
}

#[tokio::test]
async fn requests_in_flight_finish() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    let body = format!(r#"{{"session":"{SESSION}"}}"#);
    let request = post("/v1/beat", &body);
    let (first, second) = request.split_at(request.len() - 5);
    client.send(first).await;
    // The head is being served when another connection's request, sent later, is answered.
    assert_eq!(rig.connect().await.get("/healthz").await.status, 200);
    rig.shutdown.cancel();
    client.send(second).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (204, Some("close")));
    assert_eq!(within("the drain", rig.served).await.unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn the_deadline_cuts_what_is_left() {
    let mut rig =
        Rig::with_limits(Limits { drain_timeout: Duration::from_millis(50), ..Limits::default() });
    let mut client = rig.connect().await;
    let body = format!(r#"{{"session":"{SESSION}","kind":"leader","name":"a","wait":"block"}}"#);
    client.send(post("/v1/acquire", &body)).await;
    let ticket = rig.waiting().await;
    rig.shutdown.cancel();
    rig.cancelled(ticket).await;
    assert_eq!(within("the drain", rig.served).await.unwrap(), Drained { cut: 1 });
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn the_deadline_leaves_streams_that_guarded_work_hangs_on() {
    let mut rig =
        Rig::with_limits(Limits { drain_timeout: Duration::from_millis(50), ..Limits::default() });
    let mut client = rig.connect().await;
    client.send(format!("GET /v1/events?session={} HTTP/1.1\r\nhost: x\r\n\r\n", guarded())).await;
    let (_, _, events) = rig.opened().await;
    client.head().await.unwrap();
    rig.shutdown.cancel();
    assert_eq!(within("the drain", rig.served).await.unwrap(), Drained { cut: 0 });
    // The heart is not told that the work has ended, and can still say something.
    events.send(StreamItem::End(StreamEnd::Stopping)).await.unwrap();
    assert!(client.rest().await.contains(r#"{"cause":"stopping"}"#));
}
