//! Event streams: frames, their end, and readers that are slow or gone.

use std::time::Duration;

use tenure_core::keeper::{Numbered, StreamEnd, StreamTarget};
use tenure_core::model::Share;
use tenure_wire::{Event, MessageEvent, Role, SnapshotEvent};
use uuid::Uuid;

use super::super::Limits;
use super::rig::guarded;
use super::{Client, Rig, SESSION, within};
use crate::heart::StreamItem;

fn snapshot(id: u64) -> StreamItem {
    let event =
        Event::Snapshot(SnapshotEvent { session: Uuid::nil(), role: Role::None, holds: vec![] });
    let event = Numbered::new(id, event);
    StreamItem::Event { event, made: tenure_host::clock::now(), charge: None }
}

async fn open(rig: &Rig, more: &str) -> Client {
    let mut client = rig.connect().await;
    client
        .send(format!("GET /v1/events?session={SESSION} HTTP/1.1\r\nhost: x\r\n{more}\r\n"))
        .await;
    client
}

#[tokio::test]
async fn frames_come_at_once_and_end_with_shutdown() {
    let mut rig = Rig::new();
    let mut client = open(&rig, "last-event-id: 7\r\n").await;
    let (stream, target, events) = rig.opened().await;
    assert!(matches!(target, StreamTarget::Session { last_event_id: Some(7), .. }));
    // The head comes before there is anything to tell.
    let head = client.head().await.unwrap();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("cache-control"), Some("no-store"));
    events.send(snapshot(8)).await.unwrap();
    let frame = client.until("\n\n").await.unwrap();
    assert!(frame.contains("id: 8\nevent: snapshot\ndata: {\"session\":"), "{frame:?}");
    events.send(StreamItem::End(StreamEnd::Restarting)).await.unwrap();
    let rest = client.rest().await;
    assert!(rest.contains("event: shutdown\ndata: {\"cause\":\"restarting\"}\n\n"), "{rest:?}");
    assert!(!rest.contains("id:"), "{rest:?}");
    rig.closed(stream).await;
}

#[tokio::test]
async fn a_bad_last_event_id_means_a_fresh_stream() {
    let mut rig = Rig::new();
    let _client = open(&rig, "last-event-id: \u{fc}x\r\n").await;
    let (_, target, _) = rig.opened().await;
    assert!(matches!(target, StreamTarget::Session { last_event_id: None, .. }));
}

#[tokio::test]
async fn every_end_has_its_cause() {
    for (end, cause) in [
        (Some(StreamEnd::SessionEnded), "session_ended"),
        (Some(StreamEnd::Stopping), "stopping"),
        (None, "lagged"),
    ] {
        let mut rig = Rig::new();
        let mut client = rig.connect().await;
        client.send("GET /v1/observe?kind=leader&name=a HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let (_, target, events) = rig.opened().await;
        assert!(matches!(target, StreamTarget::Resource(_)));
        if let Some(end) = end {
            events.send(StreamItem::End(end)).await.unwrap();
        }
        drop(events);
        let all = client.rest().await;
        let frame = format!("event: shutdown\ndata: {{\"cause\":\"{cause}\"}}\n\n");
        assert_eq!(all.matches("event: shutdown").count(), 1, "{all:?}");
        assert!(all.contains(&frame), "{all:?}");
        assert!(all.ends_with("0\r\n\r\n"), "{all:?}");
    }
}

#[tokio::test]
async fn a_reader_that_goes_closes_its_stream() {
    let mut rig = Rig::new();
    let mut client = open(&rig, "").await;
    let (stream, _, _events) = rig.opened().await;
    client.head().await.unwrap();
    drop(client);
    rig.closed(stream).await;
}

#[tokio::test]
async fn a_reader_that_goes_before_its_stream_is_open_closes_it() {
    let mut rig = Rig::new();
    drop(open(&rig, "").await);
    let (stream, _, _events) = rig.opened().await;
    rig.closed(stream).await;
}

#[tokio::test]
async fn a_reader_with_requests_behind_its_stream_closes_it() {
    let mut rig = Rig::new();
    let mut client = open(&rig, "").await;
    let (stream, _, _events) = rig.opened().await;
    client.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    drop(client);
    rig.closed(stream).await;
}

#[tokio::test]
async fn a_reader_that_reads_nothing_is_cut_off() {
    let mut rig =
        Rig::with_limits(Limits { write_timeout: Duration::from_millis(50), ..Limits::default() });
    let client = open(&rig, "").await;
    let (stream, _, events) = rig.opened().await;
    let payload = serde_json::Value::String("x".repeat(10_000));
    let message = MessageEvent { project: "p".into(), direct: true, payload };
    let event = Numbered::new(1, Event::Message(message));
    // Until the buffers between here and there are full, and the connection is closed for it.
    within("the end of the stream", async {
        let made = tenure_host::clock::now();
        let item = StreamItem::Event { event: event.clone(), made, charge: None };
        while events.send(item.clone()).await.is_ok() {}
    })
    .await;
    rig.closed(stream).await;
    assert_eq!(rig.connect().await.get("/healthz").await.status, 200);
    drop(client);
}

#[tokio::test]
async fn a_stream_that_guarded_work_hangs_on_is_closed_by_its_end_alone() {
    let short = Duration::from_millis(50);
    let mut rig = Rig::with_limits(Limits { write_timeout: short, ..Limits::default() });
    let mut client = rig.connect().await;
    let session = guarded();
    client.send(format!("GET /v1/events?session={session} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    let (stream, _, events) = rig.opened().await;
    let payload = serde_json::Value::String("x".repeat(10_000));
    let message = MessageEvent { project: "p".into(), direct: true, payload };
    let event = Numbered::new(1, Event::Message(message));
    within("what the reader does not take to be let go", async {
        let made = tenure_host::clock::now();
        let item = StreamItem::Event { event: event.clone(), made, charge: None };
        while events.send(item.clone()).await.is_ok() {}
    })
    .await;
    // It is open for the heart still: what it hears next is somebody else.
    let other = open(&rig, "").await;
    let (other_stream, _, _events) = rig.opened().await;
    drop(other);
    rig.closed(other_stream).await;
    // The reader is back, and finds the end of what there was.
    client.rest().await;
    assert_eq!(rig.metrics.streams.get(), 1, "its place is taken");
    drop(client);
    rig.closed(stream).await;
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused_until_one_ends() {
    let limits = Limits { streams: Share { max: 3, per_uid: 2 }, ..Limits::default() };
    let mut rig = Rig::with_limits(limits);
    let mut first = open(&rig, "").await;
    let (stream, _, events) = rig.opened().await;
    first.head().await.unwrap();
    let mut second = open(&rig, "").await;
    second.head().await.unwrap();
    let mut refused = open(&rig, "").await;
    let answer = refused.answer().await.unwrap();
    let detail = answer.problem(429, "quota_exceeded")["detail"].to_string();
    assert!(detail.contains("limits.streams_per_uid_max"), "{detail}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(rig.metrics.streams.get(), 2);
    // The connection itself serves on.
    assert_eq!(refused.get("/healthz").await.status, 200);
    events.send(StreamItem::End(StreamEnd::SessionEnded)).await.unwrap();
    first.rest().await;
    rig.closed(stream).await;
    within("a free place", async {
        while open(&rig, "").await.head().await.unwrap().status != 200 {}
    })
    .await;
}

#[tokio::test]
async fn a_quiet_stream_outlives_every_timeout() {
    let short = Duration::from_millis(1);
    let mut rig = Rig::with_limits(Limits {
        head_timeout: short,
        idle_timeout: short,
        write_timeout: short,
        ..Limits::default()
    });
    let mut client = open(&rig, "").await;
    let (_, _, events) = rig.opened().await;
    client.head().await.unwrap();
    // Another connection that says nothing is swept: so the sweep has passed the stream too.
    assert_eq!(rig.connect().await.rest().await, "");
    assert_eq!(rig.connect().await.rest().await, "");
    events.send(snapshot(1)).await.unwrap();
    assert!(client.until("event: snapshot").await.is_some());
}
