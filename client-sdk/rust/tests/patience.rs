//! Calls to an agent that takes no connections for a while.
#![cfg(feature = "client")]
#![allow(clippy::expect_used, missing_docs, reason = "tests")]

use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use tenure::Agent;
use tenure::client::{CallError, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Answers one call, whatever came before it.
async fn serve(listener: UnixListener) {
    listener.set_nonblocking(true).expect("nonblocking");
    let listener = tokio::net::UnixListener::from_std(listener).expect("within a runtime");
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = [0; 1024];
        if stream.read(&mut request).await.is_ok_and(|bytes| bytes > 0) {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.expect("it takes the answer");
            return;
        }
    }
}

/// A listener with as many connections waiting as it takes.
fn full(path: &Path) -> (UnixListener, Vec<UnixStream>) {
    let new = || {
        let made = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_NONBLOCK, None);
        made.expect("a socket")
    };
    let address = UnixAddr::new(path).expect("a short path");
    let listener = new();
    bind(listener.as_raw_fd(), &address).expect("bound");
    listen(&listener, Backlog::new(1).expect("a backlog")).expect("listening");
    let mut waiting = Vec::new();
    loop {
        let client = new();
        match connect(client.as_raw_fd(), &address) {
            Ok(()) => waiting.push(client.into()),
            Err(error) => {
                assert_eq!(error, nix::errno::Errno::EAGAIN);
                return (listener.into(), waiting);
            }
        }
    }
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_full_queue_of_connections_is_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("api.sock");
    let (listener, waiting) = full(&path);
    let client = Client::connect(Some(&path)).expect("a path");
    let hasty = client.with_patience(Duration::ZERO).expect("the same path");
    let error = hasty.healthz().await.expect_err("full");
    assert!(error.to_string().contains("too many connections"), "{error}");
    assert!(error.is_transient());
    let serve = async {
        drop(waiting);
        serve(listener).await;
    };
    let (called, ()) = tokio::join!(client.healthz(), serve);
    called.expect("its turn came");
}

#[tokio::test]
async fn a_restart_is_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("api.sock");
    drop(UnixListener::bind(&path).expect("bound"));
    let client = Client::connect(Some(&path)).expect("a path");
    let error = client.healthz().await.expect_err("nobody came");
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
    let next = async {
        std::fs::remove_file(&path).expect("it is there");
        serve(UnixListener::bind(&path).expect("bound again")).await;
    };
    let (called, ()) = tokio::join!(client.healthz(), next);
    called.expect("the next agent answered");

    std::fs::remove_file(&path).expect("it is there");
    let error = client.healthz().await.expect_err("there is none");
    assert!(error.to_string().contains("there is no agent socket"), "{error}");
}

#[tokio::test]
async fn no_agent_is_an_error_that_helps() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("api.sock");
    let error = Agent::connect_to(&path).await.expect_err("nobody").to_string();
    assert!(error.contains(&path.display().to_string()) && error.contains("start the agent"));
    std::fs::write(&path, "").expect("a file");
    let error = Agent::connect_to(&path).await.expect_err("nobody").to_string();
    assert!(error.contains("is not a socket"), "{error}");
}
