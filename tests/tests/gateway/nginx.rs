//! A gateway behind nginx, of which Debian's configuration is as it comes: each location has a `proxy_pass`, and no more.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;

use serde_json::json;
use tenure::wire::UpstreamState;
use tenure_tests::harness::{
    Campaigner, Client, DEADLINE, Gateway, Nginx, RedisServer, start_agent, until,
};

/// Where agents hear of changes.
const CHANGES: &str = "/v1/upstream/changes";

/// Opens the change stream as an agent does.
#[track_caller]
fn stream(port: u16) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it takes connections");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket has a timeout");
    write!(stream, "GET {CHANGES} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    stream.read_line(&mut first).expect("it answers");
    assert_eq!(first, "HTTP/1.1 200 OK\r\n");
    stream
}

/// Waits for so many signs of life, between which nothing else is told.
#[track_caller]
fn hears_signs_of_life(mut stream: BufReader<TcpStream>, count: usize) {
    let mut heard = 0;
    while heard < count {
        let mut line = String::new();
        let read = stream.read_line(&mut line).expect("a sign of life comes");
        assert!(read > 0, "nginx ended the stream, after {heard} signs of life");
        heard += usize::from(line == ": \n");
    }
}

#[test]
fn agents_behind_it_hear_at_once_and_no_stream_is_cut() {
    let redis = RedisServer::start();
    let mut gateways = [0, 1].map(|_| Gateway::start(&redis.url()));
    // The second gateway can hang while the stream of the first goes on.
    let exactly = format!("= {CHANGES}");
    let nginx = Nginx::before(&[("/", &gateways[1]), (&exactly, &gateways[0])]);
    let alpha = start_agent(0, &gateways[0].url(), "");
    let beta = start_agent(1, &nginx.url(), "");
    until("the gateway to be reached", || beta.http().status().upstream.state == UpstreamState::Up);
    // The first comes at once. nginx cuts a stream on which it hears nothing for a minute.
    let silent = stream(nginx.port());
    let silent = thread::spawn(move || hears_signs_of_life(silent, 2));

    let mut holder = Campaigner::start(&alpha, "holder");
    let mut next = Campaigner::start(&beta, "next");
    for _ in 0..3 {
        let held = holder.acquire("leader", "role", &json!({"ttl_ms": 600_000}));
        let waiting = next.queue("leader", "role", &json!({"ttl_ms": 600_000}));
        // Nobody answers a question now: the stream alone can tell.
        gateways[1].pause();
        holder.release(held.hold);
        assert!(next.events.granted(waiting).token > held.token);
        gateways[1].resume();
        next.release(waiting);
    }
    silent.join().expect("no stream is cut");
    let log = beta.log();
    assert!(!log.contains("it ended its stream") && !log.contains("was silent"), "{log}");
}
