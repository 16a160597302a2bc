//! Connections to real Redis servers, through what can happen to them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "redis/server.rs"]
mod server;

use std::sync::Arc;

use redis::PushKind;
use server::{DEADLINE, Server, access};
use tenured::config::{RedisAccess, RedisServer};

use tenured::upstream::redis::address::Address;
use tenured::upstream::redis::link::{Connected, Link, LinkState, Purpose};
use tenured::upstream::redis::{Heard, pushes};
use tokio::time::timeout;

fn open(access: RedisAccess, purpose: Purpose) -> Link {
    Link::open(Arc::new(Address::new(access)), purpose)
}

async fn up(link: &Link) -> Connected {
    timeout(DEADLINE, link.up()).await.expect("it comes up").expect("the runtime lives")
}

/// Waits until the link is in such a state.
async fn state(link: &Link, wanted: impl Fn(&LinkState) -> bool) -> LinkState {
    let waiting = async {
        loop {
            let state = link.state();
            if wanted(&state) {
                return state;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, waiting).await.expect("it gets there")
}

async fn refused(access: RedisAccess, expected: &str) {
    let link = open(access, Purpose::Commands);
    let failure = timeout(DEADLINE, link.ready()).await.unwrap().unwrap_err();
    assert!(failure.cause().contains(expected), "{failure:?} does not say {expected:?}");
    let LinkState::Down { error } = link.state() else { panic!("{:?}", link.state()) };
    assert_eq!(error, failure.cause());
}

async fn get(connected: &Connected, key: &str) -> Option<String> {
    let mut connection = connected.connection.clone();
    redis::cmd("GET").arg(key).query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn calls_go_through_sockets_and_ports() {
    let server = Server::start(&[]);
    server.say(&["SET", "a", "1"]);
    for access in [server.unix(), server.tcp()] {
        let link = open(access, Purpose::Beats);
        let connected = link.ready().await.unwrap();
        assert_eq!((connected.generation, link.state()), (1, LinkState::Up));
        assert_eq!(get(&connected, "a").await.as_deref(), Some("1"));
        assert!(server.say(&["CLIENT", "LIST"]).contains("name=tenured-beats"));
        assert!(!connected.server.version.is_empty());
    }
    // Nobody has a link any more.
    let gone = || !server.say(&["CLIENT", "LIST"]).contains("name=tenured-beats");
    while !gone() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn pushes_are_heard_and_their_loss_too() {
    let server = Server::start(&[]);
    let (sink, mut heard) = pushes();
    let link = open(server.unix(), Purpose::Pushes(sink));
    let mut connected = up(&link).await;
    redis::cmd("CLIENT")
        .arg(&["TRACKING", "ON", "BCAST", "PREFIX", "a"])
        .exec_async(&mut connected.connection)
        .await
        .unwrap();
    server.say(&["SET", "b", "1"]);
    server.say(&["SET", "a", "1"]);
    let Heard::Push(push) = heard.next().await else { panic!("lost") };
    assert_eq!(push.kind, PushKind::Invalidate);
    assert_eq!(push.data[0], redis::Value::Array(vec![redis::Value::BulkString(b"a".to_vec())]));

    server.say(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert_eq!(heard.next().await, Heard::Lost);
    assert_eq!(up(&link).await.generation, 2);
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let mut server = Server::start(&[]);
    let link = open(server.unix(), Purpose::Commands);
    up(&link).await;
    server.kill();
    let down = state(&link, |state| matches!(state, LinkState::Down { .. })).await;
    let LinkState::Down { error } = down else { unreachable!() };
    assert!(error.starts_with("cannot connect to Redis at /"), "{error}");
    link.ready().await.unwrap_err();
    server.run();
    let connected = up(&link).await;
    assert_eq!(connected.generation, 2);
    assert_eq!(get(&connected, "a").await, None);
}

#[tokio::test]
async fn a_suspected_connection_is_replaced() {
    let server = Server::start(&[]);
    let link = open(server.unix(), Purpose::Commands);
    let first = up(&link).await;
    link.suspect(first.generation);
    state(&link, |state| *state != LinkState::Up).await;
    let second = up(&link).await;
    assert_eq!(second.generation, 2);
    // Late news of the first.
    link.suspect(first.generation);
    assert_eq!(get(&second, "a").await, None);
    assert_eq!(link.ready().await.unwrap().generation, 2);
}

#[tokio::test]
async fn servers_that_will_not_do_are_refused() {
    let server = Server::start(&[]);
    server.say(&["REPLICAOF", "127.0.0.1", "1"]);
    refused(server.unix(), "is a read-only replica; name its master").await;
    let cluster = Server::start(&["--cluster-enabled", "yes"]);
    refused(cluster.unix(), "is part of a Cluster, which is not supported").await;
    let nowhere = access(RedisServer::Unix(server.path("nowhere")));
    refused(nowhere, "nowhere: No such file or directory").await;
}
