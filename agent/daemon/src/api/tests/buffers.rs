//! What a user sends and does not end counts for it in bytes; beyond its share it is refused, and others are not.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::{HEAD_MAX, Limits};
use super::client::post;
use super::{Client, Rig, SESSION};
use crate::policy::SharedPolicy;

/// Room for six heads, or for twelve small bodies, of one user.
const ROOM: usize = 256 * 1024;
const SHARE: usize = 3 * ROOM / 8;
const BODY: usize = 8 * 1024;

fn rig() -> Rig {
    let slow = Duration::from_secs(1000);
    let limits = Limits { head_timeout: slow, body_timeout: slow, ..Limits::default() };
    Rig::with_room(limits, SharedPolicy::default(), ROOM)
}

/// Sends all but the body, and waits until that is wanted.
async fn begin_beat(rig: &Rig) -> Client {
    let mut client = rig.connect().await;
    let request = post("/v1/beat", &beat()).replacen("\r\n", "\r\nexpect: 100-continue\r\n", 1);
    client.send(request.split_inclusive("\r\n\r\n").next().unwrap()).await;
    client
}

fn beat() -> String {
    format!(r#"{{"session":"{SESSION}"}}"#)
}

#[track_caller]
fn check_refused(rig: &Rig, answer: &super::client::Answer) {
    let problem = answer.problem(429, "quota_exceeded");
    let detail = problem["detail"].as_str().unwrap();
    let limit = format!("buffered_bytes_per_uid, {SHARE} bytes");
    assert!(detail.contains(&limit) && detail.contains("uid 1000"), "{detail}");
    let counted = "tenured_refusals_total{limit=\"buffered_bytes_per_uid\"} 1\n";
    assert!(rig.numbers().contains(counted));
}

/// Another user is served beside the one that has taken its share.
async fn check_another_is_served(rig: &Rig) {
    rig.uid.store(2000, Ordering::Relaxed);
    let mut other = begin_beat(rig).await;
    assert_eq!(other.head().await.unwrap().status, 100);
    other.send(beat()).await;
    assert_eq!(other.answer().await.unwrap().status, 204);
    assert_eq!(other.get(&long_path()).await.status, 404);
    rig.uid.store(1000, Ordering::Relaxed);
}

/// A request takes a long head with it.
fn long_path() -> String {
    format!("/{}", "a".repeat(HEAD_MAX - 1000))
}

#[tokio::test]
async fn small_bodies_that_do_not_come_are_bounded() {
    let rig = rig();
    let mut slow = Vec::new();
    for _ in 0..SHARE / BODY {
        let mut client = begin_beat(&rig).await;
        assert_eq!(client.head().await.unwrap().status, 100);
        slow.push(client);
    }
    let mut refused = begin_beat(&rig).await;
    check_refused(&rig, &refused.answer().await.unwrap());
    check_another_is_served(&rig).await;
    // What has come is done with.
    let mut first = slow.swap_remove(0);
    first.send(beat()).await;
    assert_eq!(first.answer().await.unwrap().status, 204);
    assert_eq!(begin_beat(&rig).await.head().await.unwrap().status, 100);
}

#[tokio::test]
async fn long_heads_are_bounded() {
    let rig = rig();
    let mut clients = Vec::new();
    for _ in 0..SHARE / HEAD_MAX {
        let mut client = rig.connect().await;
        // Answered, and yet the connection keeps its buffer.
        assert_eq!(client.get(&long_path()).await.status, 404);
        clients.push(client);
    }
    let mut refused = rig.connect().await;
    check_refused(&rig, &refused.get(&long_path()).await);
    assert_eq!(refused.rest().await, "");
    // Short heads need no room.
    assert_eq!(rig.connect().await.get("/healthz").await.status, 200);
    check_another_is_served(&rig).await;
    clients.pop();
    super::within("room for a long head", async {
        loop {
            let mut client = rig.connect().await;
            if client.get(&long_path()).await.status == 404 {
                return;
            }
        }
    })
    .await;
}
