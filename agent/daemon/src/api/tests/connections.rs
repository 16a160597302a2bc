//! How many connections there may be, and how the end of one is noticed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::keeper::Request;
use tenure_core::model::Share;
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use super::super::Limits;
use super::client::post;
use super::rig::Noted;
use super::{Client, Rig, SESSION};

fn wait() -> String {
    let body = format!(r#"{{"session":"{SESSION}","kind":"leader","name":"a","wait":"block"}}"#);
    post("/v1/acquire", &body)
}

#[tokio::test]
async fn a_caller_that_goes_while_it_waits_cancels() {
    let mut rig = Rig::new();
    let mut client = rig.connect().await;
    client.send(wait()).await;
    let ticket = rig.waiting().await;
    drop(client);
    rig.cancelled(ticket).await;
}

#[tokio::test]
async fn a_caller_that_closes_its_writing_half_while_it_waits_cancels() {
    let mut rig = Rig::new();
    let mut client = rig.connect().await;
    client.send(wait()).await;
    let ticket = rig.waiting().await;
    client.stream.shutdown().await.unwrap();
    rig.cancelled(ticket).await;
    client.answer().await.unwrap().problem(409, "wait_timeout");
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn a_caller_with_requests_behind_its_wait_cancels() {
    let mut rig = Rig::new();
    let mut client = rig.connect().await;
    client.send(format!("{}GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET", wait())).await;
    let ticket = rig.waiting().await;
    drop(client);
    rig.cancelled(ticket).await;
}

/// A request for what is free, and for what is answered after it.
fn ask(close: bool) -> String {
    let body = format!(r#"{{"session":"{SESSION}","kind":"leader","name":"a"}}"#);
    let request = post("/v1/acquire", &body);
    if close { request.replacen("\r\n", "\r\nconnection: close\r\n", 1) } else { request }
}

/// Waits until the only connection is gone.
async fn end_is_seen(rig: &Rig) {
    super::within("the end of the connection", async {
        while !rig.numbers().contains("tenured_connections 0\n") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// True if the heart hears that a grant was not read, before it hears of somebody else.
async fn is_returned(rig: &mut Rig) -> bool {
    loop {
        match rig.heard().await {
            Noted::Undelivered(hold) => {
                assert_eq!(hold.0, Uuid::from_u128(9));
                return true;
            }
            Noted::Request(_, request) if matches!(*request, Request::Status(_)) => return false,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_grant_that_its_caller_does_not_read_is_returned() {
    for close in [false, true] {
        let mut rig = Rig::new();
        let mut client = rig.connect().await;
        client.send(ask(close)).await;
        client.stream.readable().await.unwrap();
        drop(client);
        assert!(is_returned(&mut rig).await, "connection: close {close}");
    }
}

#[tokio::test]
async fn a_grant_that_its_caller_has_read_is_its_own() {
    for close in [false, true] {
        let mut rig = Rig::new();
        let mut client = rig.connect().await;
        client.send(ask(close)).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        drop(client);
        end_is_seen(&rig).await;
        assert_eq!(rig.connect().await.get("/v1/status").await.status, 200);
        assert!(!is_returned(&mut rig).await, "connection: close {close}");
    }
}

#[tokio::test]
async fn a_grant_is_its_callers_once_that_has_read_it_and_asks_for_more() {
    let mut rig = Rig::new();
    let mut client = rig.connect().await;
    client.send(ask(false)).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    // The rest is of no concern.
    client.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.stream.readable().await.unwrap();
    drop(client);
    end_is_seen(&rig).await;
    assert_eq!(rig.connect().await.get("/v1/status").await.status, 200);
    assert!(!is_returned(&mut rig).await);
}

#[tokio::test]
async fn a_killed_caller_cancels() {
    let mut rig = Rig::new();
    let request = rig.path.with_file_name("request");
    std::fs::write(&request, wait()).unwrap();
    // A process of its own, that connects and waits for an answer that does not come.
    let script = "import socket, sys\n\
                  s = socket.socket(socket.AF_UNIX)\n\
                  s.connect(sys.argv[1])\n\
                  s.sendall(open(sys.argv[2], 'rb').read())\n\
                  s.recv(1)";
    let spawned = std::process::Command::new("python3")
        .args(["-c", script])
        .args([&rig.path, &request])
        .spawn();
    // Without Python the same is seen by dropping the connection.
    let Ok(mut child) = spawned else { return };
    let ticket = rig.waiting().await;
    child.kill().unwrap();
    child.wait().unwrap();
    rig.cancelled(ticket).await;
}

#[tokio::test]
async fn half_closed_connections_are_answered_and_closed() {
    let rig = Rig::new();
    for _ in 0..50 {
        let mut client = rig.connect().await;
        client.send("GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n").await;
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.answer().await.unwrap().status, 200);
        assert!(client.answer().await.is_none());
    }
    let mut client = rig.connect().await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn idle_connections_make_room() {
    let rig = Rig::with_limits(Limits {
        connections: Share { max: 1000, per_uid: 100 },
        ..Limits::default()
    });
    let mut idle: Vec<Client> = Vec::new();
    for round in 0..1000 {
        idle.push(rig.connect().await);
        if round % 10 == 0 {
            let mut good = rig.connect().await;
            assert_eq!(good.get("/v1/status").await.status, 200, "round {round}");
        }
    }
    // The oldest went first; at most as many are left as may be.
    for client in &mut idle[..850] {
        assert_eq!(client.rest().await, "");
    }
    let last = idle.last_mut().unwrap();
    assert_eq!(last.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn whoever_has_all_its_connections_does_not_keep_others_from_connecting() {
    const SHARE: usize = 128;
    const BEYOND: usize = 256;
    let rig = Rig::with_limits(Limits {
        connections: Share { max: 1000, per_uid: SHARE },
        ..Limits::default()
    });
    // They wait for the agent, which has had no turn yet.
    let connect = |_| std::os::unix::net::UnixStream::connect(&rig.path).unwrap();
    let _theirs: Vec<_> = (0..SHARE + BEYOND).map(connect).collect();
    let mut last = rig.connect().await;
    let passes = async {
        let mut passes = 0;
        loop {
            tokio::task::yield_now().await;
            passes += 1;
            assert!(passes < BEYOND, "each took a turn of all that was ready");
        }
    };
    last.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    tokio::select! {
        // Or its end, while those before it have not left.
        _ = last.answer() => {}
        () = passes => {}
    }
}

#[tokio::test]
async fn another_user_is_not_disturbed() {
    let rig = Rig::with_limits(Limits {
        connections: Share { max: 30, per_uid: 20 },
        ..Limits::default()
    });
    let mut theirs = rig.connect().await;
    assert_eq!(theirs.get("/healthz").await.status, 200);
    rig.uid.store(2000, Ordering::Relaxed);
    let mut idle: Vec<Client> = Vec::new();
    for _ in 0..200 {
        idle.push(rig.connect().await);
    }
    assert_eq!(idle.last_mut().unwrap().get("/healthz").await.status, 200);
    assert_eq!(theirs.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn busy_connections_do_not_make_room() {
    for (limit, limits) in [
        (
            "connections_per_uid",
            Limits { connections: Share { max: 30, per_uid: 3 }, ..Limits::default() },
        ),
        ("connections", Limits { connections: Share { max: 3, per_uid: 30 }, ..Limits::default() }),
    ] {
        let mut rig = Rig::with_limits(limits);
        let mut busy = Vec::new();
        for _ in 0..3 {
            let mut client = rig.connect().await;
            client.send(wait()).await;
            rig.waiting().await;
            busy.push(client);
        }
        let mut refused = rig.connect().await;
        let answer = refused.get("/healthz").await;
        let problem = answer.problem(429, "quota_exceeded");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains('3') && detail.contains(&format!("limits.{limit}_max")),
            "{detail}"
        );
        let counted = format!("tenured_refusals_total{{limit=\"{limit}\"}} 1\n");
        assert!(rig.numbers().contains(&counted));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(refused.answer().await.is_none());
        busy.pop();
        // The place is free once the end has been noticed.
        super::within("a free place", async {
            loop {
                let mut client = rig.connect().await;
                client.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
                if client.answer().await.is_some_and(|answer| answer.status == 200) {
                    return;
                }
            }
        })
        .await;
    }
}
