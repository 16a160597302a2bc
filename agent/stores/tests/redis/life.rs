//! Servers and connections that come and go.

use std::future::poll_fn;
use std::time::Duration;

use tenure_core::model::Resource;
use tenure_stores::redis::settings::RedisAccess;
use tenure_stores::remote::{Heard, Hint, Hints, LinkState, Purpose, hints};
use tenure_wire::Kind;

use super::server::Server;
use super::{Link, dialer, eventually, get, open, says, up};

/// With deadlines that a stopped server breaks soon.
fn impatient(access: RedisAccess) -> RedisAccess {
    let patience = Duration::from_millis(500);
    RedisAccess { connect_timeout: patience, timeout: patience, ..access }
}

#[tokio::test]
async fn calls_go_through_sockets_and_ports() {
    let server = Server::start(&[]);
    server.say(&["SET", "a", "1"]);
    let is_there = || server.say(&["CLIENT", "LIST"]).contains("name=tenured-beats");
    for access in [server.unix(), server.tcp()] {
        let link = open(access, Purpose::Beats);
        let connected = link.ready().await.unwrap();
        assert_eq!((connected.generation, link.state()), (1, LinkState::Up));
        assert_eq!(get(&connected, "a").await.as_deref(), Some("1"));
        assert!(is_there());
        assert!(!connected.server.version.is_empty());
        // A clone of what was handed out does not keep the connection.
        drop(link);
        eventually("the connection to end", || (!is_there()).then_some(())).await;
    }
}

#[tokio::test]
async fn a_database_can_be_chosen() {
    let server = Server::start(&[]);
    server.say(&["-n", "3", "SET", "a", "1"]);
    let link = open(RedisAccess { db: 3, ..server.unix() }, Purpose::Commands);
    assert_eq!(get(&up(&link).await, "a").await.as_deref(), Some("1"));
}

async fn next(hints: &mut Hints) -> Heard {
    poll_fn(|context| hints.poll_next(context)).await
}

#[tokio::test]
async fn hints_come_and_their_loss_is_told_too() {
    let server = Server::start(&[]);
    let (sink, mut hints) = hints();
    let link = Link::open_feed(dialer(server.unix()), sink);
    let mut connected = up(&link).await;
    let mut track = redis::cmd("CLIENT");
    track.arg(&["TRACKING", "ON", "BCAST", "PREFIX", "leader:"]);
    track.exec_async(&mut connected.connection).await.unwrap();
    server.say(&["SET", "b", "1"]);
    server.say(&["SET", "leader:a", "1"]);
    let (tenant, kind, name) = ("default".into(), Kind::Leader, "a".into());
    let hint = Hint::Resource(Resource { tenant, kind, name });
    assert_eq!(next(&mut hints).await, Heard::Hint(hint));

    server.say(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert_eq!(next(&mut hints).await, Heard::Lost);
    let mut connected = up(&link).await;
    assert_eq!(connected.generation, 2);

    // More at once than can be taken in.
    track.exec_async(&mut connected.connection).await.unwrap();
    let flood = "for i = 1, 70000 do redis.call('SET', 'leader:' .. i, '') end";
    server.say(&["EVAL", flood, "0"]);
    eventually("another connection", || (link.state() != LinkState::Up).then_some(())).await;
    assert_eq!(next(&mut hints).await, Heard::Lost);
    assert_eq!(up(&link).await.generation, 3);
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let mut server = Server::start(&[]);
    let link = open(server.unix(), Purpose::Commands);
    up(&link).await;
    server.kill();
    says(&link, "cannot connect to Redis at /").await;
    link.ready().await.unwrap_err();
    server.start_again();
    let connected = up(&link).await;
    assert_eq!(connected.generation, 2);
    assert_eq!(get(&connected, "a").await, None);
}

#[tokio::test]
async fn an_idle_connection_to_a_stopped_server_is_noticed() {
    let mut server = Server::start(&[]);
    for access in [server.unix(), server.tcp()] {
        let link = open(impatient(access), Purpose::Commands);
        up(&link).await;
        server.pause();
        // First the one that was there, then the next one.
        says(&link, "within 500 ms while connecting; see whether it is stopped").await;
        server.resume();
        assert!(up(&link).await.generation > 1);
    }
}

#[tokio::test]
async fn a_server_that_becomes_a_replica_is_left() {
    let server = Server::start(&[]);
    let link = open(server.unix(), Purpose::Commands);
    up(&link).await;
    server.say(&["REPLICAOF", "127.0.0.1", "1"]);
    says(&link, "is a read-only replica; name its master").await;
    server.say(&["REPLICAOF", "NO", "ONE"]);
    up(&link).await;
}

#[tokio::test]
async fn a_suspected_connection_is_replaced() {
    let server = Server::start(&[]);
    let link = open(server.unix(), Purpose::Commands);
    let first = up(&link).await;
    link.suspect(first.generation);
    eventually("the connection to end", || (link.state() != LinkState::Up).then_some(())).await;
    let second = up(&link).await;
    assert_eq!(second.generation, 2);
    // Late news of the first.
    link.suspect(first.generation);
    assert_eq!(get(&second, "a").await, None);
    assert_eq!(link.ready().await.unwrap().generation, 2);
}

#[tokio::test]
async fn calls_on_a_lost_connection_end() {
    let mut server = Server::start(&[]);
    let link = open(server.unix(), Purpose::Commands);
    let mut connected = up(&link).await;
    let generation = connected.generation;
    server.pause();
    let ping = redis::cmd("PING");
    let call = ping.exec_async(&mut connected.connection);
    let suspect = async {
        tokio::task::yield_now().await;
        link.suspect(generation);
    };
    let (result, ()) = tokio::join!(call, suspect);
    assert!(result.unwrap_err().is_connection_dropped());
    server.resume();
    assert!(up(&link).await.generation > generation);
}
