//! Bodies, heads and bytes that no good client sends.

use std::time::Duration;

use super::super::{BODY_MAX, HEAD_MAX, Limits};
use super::client::post;
use super::{Rig, SESSION};

#[tokio::test]
async fn a_body_may_be_64_kib_and_no_more() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    let body = format!(r#"{{"session":"{SESSION}"}}"#);
    let fits = format!("{body}{}", " ".repeat(BODY_MAX - body.len()));
    assert_eq!(client.post("/v1/beat", &fits).await.status, 204);
    let answer = client.post("/v1/beat", &format!("{fits} ")).await;
    answer.problem(413, "too_large");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_waited_for() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    client.send("POST /v1/beat HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999999\r\n\r\n").await;
    client.answer().await.unwrap().problem(413, "too_large");
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn a_chunked_body_is_counted() {
    let rig = Rig::new();
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    let head = "POST /v1/register HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut client = rig.connect().await;
    client.send(format!("{head}2\r\n{{}}\r\n{}0\r\n\r\n", chunk.repeat(15))).await;
    assert_eq!(client.answer().await.unwrap().status, 201);
    client.send(format!("{head}{}", chunk.repeat(17))).await;
    client.answer().await.unwrap().problem(413, "too_large");
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn a_slow_body_is_refused() {
    let rig =
        Rig::with_limits(Limits { body_timeout: Duration::from_millis(20), ..Limits::default() });
    let mut client = rig.connect().await;
    client.send("POST /v1/beat HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{").await;
    let problem = client.answer().await.unwrap().problem(422, "invalid");
    assert!(problem["detail"].as_str().unwrap().contains("not complete after 0.02 s"));
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn a_head_may_be_16_kib_and_no_more() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    let head = |length| format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(length));
    client.send(head(HEAD_MAX - 100)).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    client.send(head(HEAD_MAX)).await;
    assert_eq!(client.answer().await.unwrap().status, 431);
    assert!(client.answer().await.is_none());
    let mut client = rig.connect().await;
    client.send(format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(101))).await;
    assert_eq!(client.answer().await.unwrap().status, 431);
}

#[tokio::test]
async fn slow_heads_are_closed() {
    let rig =
        Rig::with_limits(Limits { head_timeout: Duration::from_millis(20), ..Limits::default() });
    let mut silent = rig.connect().await;
    let mut slow = rig.connect().await;
    slow.send("GET /healthz HT").await;
    let mut second = rig.connect().await;
    assert_eq!(second.get("/healthz").await.status, 200);
    // The first request was quick; the next one is not.
    second.send("GET /heal").await;
    for client in [&mut silent, &mut slow, &mut second] {
        assert_eq!(client.rest().await, "");
    }
}

#[tokio::test]
async fn idle_connections_are_closed_later_than_slow_heads() {
    let rig = Rig::with_limits(Limits {
        head_timeout: Duration::from_secs(1000),
        idle_timeout: Duration::from_millis(20),
        ..Limits::default()
    });
    let mut client = rig.connect().await;
    assert_eq!(client.get("/healthz").await.status, 200);
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn garbage_is_answered_or_closed() {
    let rig = Rig::new();
    for garbage in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: \x01\r\n\r\n",
        b"POST /v1/beat HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/beat HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /v1/beat HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"POST /v1/beat HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
    ] {
        let mut client = rig.connect().await;
        client.send(garbage).await;
        if let Some(answer) = client.answer().await {
            assert!((400..500).contains(&answer.status), "{garbage:?}: {answer:?}");
        }
        assert!(client.answer().await.is_none(), "{garbage:?}");
    }
    // Bytes from a fixed sequence, so that a failure can be repeated.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        let mut bytes =
            b"POST /v1/acquire HTTP/1.1\r\ncontent-length: 64\r\n\r\n{\"kind\":".to_vec();
        for _ in 0..56 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.push((state >> 56) as u8);
        }
        let mut client = rig.connect().await;
        client.send(&bytes).await;
        client.answer().await.unwrap().problem(422, "invalid");
    }
    assert_eq!(rig.connect().await.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    let session = format!(r#"{{"session":"{SESSION}"}}"#);
    let mut all = String::new();
    for _ in 0..100 {
        all.push_str(&post("/v1/beat", &session));
        all.push_str("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
        all.push_str(&post("/v1/beat", "{}"));
    }
    let (mut reader, mut writer) = client.stream.split();
    let send = tokio::io::AsyncWriteExt::write_all(&mut writer, all.as_bytes());
    let read = async {
        let mut seen = Vec::new();
        while String::from_utf8_lossy(&seen).matches("HTTP/1.1 ").count() < 300 {
            let mut chunk = [0; 4096];
            let read = tokio::io::AsyncReadExt::read(&mut reader, &mut chunk).await.unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&chunk[..read]);
        }
        String::from_utf8(seen).unwrap()
    };
    let (sent, seen) = super::within("300 answers", async { tokio::join!(send, read) }).await;
    sent.unwrap();
    let statuses: Vec<&str> = seen.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["204", "200", "422"].repeat(100));
}
