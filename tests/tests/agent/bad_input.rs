//! Hostile and broken clients: a clear refusal or a closed connection, bounded memory, and answers
//! for everybody else.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tenure::wire::Code;
use tenure_tests::harness::{Agent, Client, DEADLINE, rss_kib, until};

/// Most resident memory of the agent with ten thousand idle connections, KiB.
const RSS_MAX_KIB: u64 = 256 * 1024;
const IDLE_CONNECTIONS: usize = 10_000;

fn connect(agent: &Agent) -> UnixStream {
    let stream = UnixStream::connect(agent.socket()).expect("the agent listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket takes a timeout");
    stream.set_write_timeout(Some(DEADLINE)).expect("a socket takes a timeout");
    stream
}

/// The agent's answer until it closes the connection.
#[track_caller]
fn read_to_close(mut stream: UnixStream) -> String {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        // Closed with something of ours unread.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("not closed: {error}; it said {:?}", String::from_utf8_lossy(&said)),
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[track_caller]
fn check_others_are_served(agent: &Agent) {
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let held = http.acquire(session, "leader", "somebody else's", &json!({}));
    assert!(http.release(session, held.hold));
    assert!(http.end(session));
}

#[test]
fn headers_that_never_end_are_cut_off() {
    let agent = Agent::start();
    let mut loris: Vec<UnixStream> = (0..50).map(|_| connect(&agent)).collect();
    for stream in &mut loris {
        stream.write_all(b"POST /v1/register HTTP/1.1\r\nhost: a\r\nx-slow: ").expect("it listens");
    }
    check_others_are_served(&agent);
    for stream in loris {
        let said = read_to_close(stream);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
}

#[test]
fn a_body_that_never_comes_holds_nobody_up() {
    let agent = Agent::start();
    let mut stuck: Vec<UnixStream> = (0..50).map(|_| connect(&agent)).collect();
    for stream in &mut stuck {
        let head = b"POST /v1/register HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{\"na";
        stream.write_all(head).expect("it listens");
    }
    check_others_are_served(&agent);
    for stream in stuck {
        let said = read_to_close(stream);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
    assert_eq!(agent.counts(), (0, 0, 0));
}

#[test]
fn huge_headers_are_refused() {
    let agent = Agent::start();
    let mut stream = connect(&agent);
    let head =
        format!("GET /v1/status HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(20 * 1024));
    // The agent may close before it has read everything.
    let _ = stream.write_all(head.as_bytes());
    let said = read_to_close(stream);
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    check_others_are_served(&agent);
}

#[test]
fn what_is_not_http_is_closed() {
    let agent = Agent::start();
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"EHLO there\r\n\r\n",
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = connect(&agent);
        stream.write_all(garbage).expect("it listens");
        let said = read_to_close(stream);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{garbage:?}: {said}");
    }
    check_others_are_served(&agent);
}

#[test]
fn contradictory_lengths_are_refused() {
    let agent = Agent::start();
    for head in [
        "content-length: 2\r\ncontent-length: 3",
        "content-length: 2\r\ntransfer-encoding: chunked",
        "content-length: -1",
        "content-length: 99999999999999999999999",
        "transfer-encoding: gzip",
    ] {
        let mut stream = connect(&agent);
        let request = format!(
            "POST /v1/register HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{head}\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).expect("it listens");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let said = read_to_close(stream);
        // RFC 9112 lets a server prefer chunked over a length; then the body is not a chunk.
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{head}: {said}");
    }
    assert_eq!(agent.counts(), (0, 0, 0));
    check_others_are_served(&agent);
}

#[test]
fn a_body_beyond_the_limit_is_refused_however_it_comes() {
    let agent = Agent::start();
    let big = "x".repeat(64 * 1024 + 1);
    let mut plain = connect(&agent);
    let head = format!(
        "POST /v1/acquire HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        big.len()
    );
    plain.write_all(head.as_bytes()).expect("it listens");
    // It may refuse before it has read everything.
    let _ = plain.write_all(big.as_bytes());
    assert!(read_to_close(plain).starts_with("HTTP/1.1 413"));

    let mut chunked = connect(&agent);
    let head = "POST /v1/acquire HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    chunked.write_all(head.as_bytes()).expect("it listens");
    let _ = chunked.write_all(format!("{:x}\r\n{big}\r\n0\r\n\r\n", big.len()).as_bytes());
    assert!(read_to_close(chunked).starts_with("HTTP/1.1 413"));
    check_others_are_served(&agent);
}

#[test]
fn a_half_closed_connection_still_gets_its_answer_or_is_closed() {
    let agent = Agent::start();
    let mut stream = connect(&agent);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").expect("it listens");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let said = read_to_close(stream);
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 200"), "{said}");

    // Half closed in the middle of a request.
    let mut stream = connect(&agent);
    stream.write_all(b"POST /v1/register HTTP/1.1\r\nhost: a\r\ncontent-le").expect("it listens");
    stream.shutdown(Shutdown::Write).expect("it is open");
    read_to_close(stream);
    check_others_are_served(&agent);
}

#[test]
fn a_reader_that_does_not_read_is_cut_off() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let mut deaf = connect(&agent);
    let request = format!("GET /v1/events?session={session} HTTP/1.1\r\nhost: a\r\n\r\n");
    deaf.write_all(request.as_bytes()).expect("it listens");
    let streams = |http: &mut tenure_tests::harness::Http| {
        http.status().sessions.iter().map(|s| s.streams).sum::<u32>()
    };
    until("the stream to open", || streams(&mut http) == 1);
    // Each pair is two events of a few hundred bytes: more than the socket and the backlog take.
    until("the reader to be cut off", || {
        for _ in 0..100 {
            let held = http.acquire(session, "leader", "busy", &json!({}));
            http.release(session, held.hold);
        }
        streams(&mut http) == 0
    });
    let events = agent.events(session);
    events.snapshot();
    // The lagging reader finds an end, after what was sent to it.
    deaf.shutdown(Shutdown::Write).expect("it is open");
    read_to_close(deaf);
}

#[test]
fn a_session_has_four_streams_at_most() {
    let agent = Agent::start();
    let session = agent.http().register(&json!({})).session;
    let _open: Vec<_> = (0..4).map(|_| agent.events(session)).collect();
    agent.http().get(&format!("/v1/events?session={session}")).problem(Code::QuotaExceeded);
}

#[test]
fn a_session_has_sixty_three_holds_at_most() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    for i in 0..63 {
        http.acquire(session, "leader", &format!("role {i}"), &json!({}));
    }
    let refused = http.ask(session, "leader", "one more", &json!({}));
    refused.problem(Code::QuotaExceeded);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(agent.counts(), (1, 63, 0));
}

#[test]
fn a_session_has_as_many_holds_as_it_asked_for() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let with = json!({"holds": 130, "tether": "keepalive", "keepalive_ms": 600_000});
    let session = http.register(&with);
    let page = agent.page(&session);
    assert_eq!(page.slots(), 130);
    let mut last = None;
    for i in 0..130 {
        let more = json!({"ttl_ms": 600_000});
        last = Some(http.acquire(session.session, "leader", &format!("role {i}"), &more));
    }
    let last = last.expect("there are some");
    assert_eq!(last.slot, 129);
    assert!(page.held(last.hold));
    http.ask(session.session, "leader", "one more", &json!({})).problem(Code::QuotaExceeded);

    agent.kill();
    agent.start_again();
    assert!(page.held(last.hold), "also after a crash");
    let mut http = agent.http();
    http.ask(session.session, "leader", "one more", &json!({})).problem(Code::QuotaExceeded);
    for holds in [0, 4096] {
        let refused = http.post("/v1/register", &json!({"holds": holds}));
        assert_eq!(refused.problem(Code::Invalid).field.as_deref(), Some("holds"));
    }
    let few = http.register(&json!({"holds": 1}));
    assert_eq!(agent.page(&few).slots(), 1);
}

#[test]
fn hostile_names_are_names() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"name": "'; DROP TABLE holds; --"})).session;
    for name in [
        "../../etc/passwd",
        "'; DROP TABLE holds; --",
        "a/b c?d=e&f#g",
        "${HOME}",
        "%00",
        "<script>",
        "日本語",
        "\u{1f512}",
        "null",
    ] {
        let held = http.acquire(session, "leader", name, &json!({}));
        assert_eq!(held.name, name);
        assert!(http.release(session, held.hold));
    }
    // The log goes to terminals.
    assert!(!agent.log().bytes().any(|byte| byte < 0x20 && byte != b'\n' && byte != b'\x1b'));
}

#[test]
fn ten_thousand_idle_connections_leave_room_for_others() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit can be read");
    let wanted = IDLE_CONNECTIONS as u64 + 500;
    assert!(hard >= wanted, "needs {wanted} open files; `ulimit -Hn` says {hard}");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard limit is allowed");

    let agent = Agent::start();
    let mut idle = Vec::with_capacity(IDLE_CONNECTIONS);
    while idle.len() < IDLE_CONNECTIONS {
        idle.push(connect(&agent));
        if idle.len() % 1000 == 0 {
            check_others_are_served(&agent);
        }
    }
    let rss = rss_kib(agent.pid());
    assert!(rss < RSS_MAX_KIB, "{rss} KiB resident, {RSS_MAX_KIB} allowed");
    drop(idle);
    check_others_are_served(&agent);
}
