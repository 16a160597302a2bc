//! Callers that take as much of a gateway as they can: each is held to a bound that its refusal names, and others go on.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use serde_json::json;
use tenure_tests::harness::frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, fields, frame,
};
use tenure_tests::harness::{DEADLINE, Gateway, Key, rss_kib, until};
use tokio::net::TcpSocket;

/// Bytes of a body that does not end.
const UNFINISHED: usize = 900 << 10;

fn gateway(keys: &[&Key], settings: &str) -> (Gateway, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    std::fs::write(&file, settings).unwrap();
    let config = format!("--config={}", file.display());
    (Gateway::start_by("embedded:", keys, &[config]), dir)
}

/// A connection from an address of this host.
fn connected(from: [u8; 4], gateway: &Gateway) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::from(from), 0).into()).unwrap();
    let port = gateway.port();
    let stream = runtime.block_on(socket.connect((Ipv4Addr::LOCALHOST, port).into())).unwrap();
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// A request whose body does not end. It may be refused in the middle.
fn unfinished(from: [u8; 4], gateway: &Gateway, key: Option<&Key>) -> TcpStream {
    let mut stream = connected(from, gateway);
    let key = key.map(Key::header).unwrap_or_default();
    let _ = write!(
        stream,
        "POST /v1/upstream/claim HTTP/1.1\r\nHost: localhost\r\n{key}Content-Type: application/json\r\n\
         Content-Length: 1000000\r\n\r\n"
    );
    let _ = stream.write_all(&vec![b' '; UNFINISHED]);
    stream
}

/// The bytes that have come so far.
fn come(stream: &mut TcpStream) -> String {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    stream.set_nonblocking(false).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// True if one of them was refused with that status and that limit.
fn is_refused(streams: &mut [TcpStream], status: &str, limit: &str) -> bool {
    let field = format!("\"field\":\"{limit}\"");
    streams
        .iter_mut()
        .map(come)
        .any(|answer| answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(&field))
}

#[track_caller]
fn is_answered(gateway: &Gateway, key: &Key) {
    let headers = format!("{}Content-Type: application/json\r\n", key.header());
    let answer = gateway.call_with(&headers, "POST /v1/upstream/renew", r#"{"beats":[]}"#).unwrap();
    assert_eq!(answer.0, 200, "{answer:?}");
}

#[test]
fn bodies_that_do_not_end_are_held_to_shares() {
    let keys: Vec<Key> = ["a", "b", "c", "d", "other"].map(Key::new).into();
    let settings = "[limits]\nbody_bytes = 4194304\nbody_bytes_per_principal = 2097152\n\
                    body_bytes_per_address = 3145728\n";
    let (gateway, _dir) = gateway(&keys.iter().collect::<Vec<_>>(), settings);
    let other = &keys[4];
    let mut open = Vec::new();
    for (key, from, status, limit) in [
        (0, 2, "429", "limits.body_bytes_per_principal"),
        (1, 2, "429", "limits.body_bytes_per_address"),
        (2, 3, "503", "limits.body_bytes"),
    ] {
        let mut streams: Vec<TcpStream> =
            (0..6).map(|_| unfinished([127, 0, 0, from], &gateway, Some(&keys[key]))).collect();
        until(limit, || {
            is_answered(&gateway, other);
            is_refused(&mut streams, status, limit)
        });
        open.extend(streams);
    }
    // A body that needs a key is not read before it was shown.
    let mut strangers: Vec<_> =
        (0..8).map(|_| unfinished([127, 0, 0, 4], &gateway, None)).collect();
    until("strangers to be refused", || {
        let answers: Vec<_> = strangers.iter_mut().map(come).collect();
        is_answered(&gateway, other);
        answers.iter().any(|answer| answer.starts_with("HTTP/1.1 401 "))
    });
    drop((open, strangers));
    let whole = format!("{}{{\"beats\":[]}}", " ".repeat(UNFINISHED));
    let headers = format!("{}Content-Type: application/json\r\n", keys[0].header());
    until("room to come back", || {
        let answer = gateway.call_with(&headers, "POST /v1/upstream/renew", &whole);
        answer.is_ok_and(|(status, _)| status == 200)
    });
}

#[test]
fn memory_of_a_burst_goes_back() {
    let [greedy, other] = ["greedy", "other"].map(Key::new);
    let (gateway, _dir) = gateway(&[&greedy, &other], "");
    is_answered(&gateway, &other);
    let before = rss_kib(gateway.pid());
    let mut streams: Vec<_> =
        (0..120).map(|_| unfinished([127, 0, 0, 2], &gateway, Some(&greedy))).collect();
    until("the principal's share to be full", || {
        is_refused(&mut streams, "429", "limits.body_bytes_per_principal")
    });
    is_answered(&gateway, &other);
    let during = rss_kib(gateway.pid());
    assert!(during < before + (128 << 10), "{before} KiB, then {during}");
    drop(streams);
    until("memory to go back", || rss_kib(gateway.pid()) < before + (16 << 10));
}

/// Sessions of a project, each with more than half a kilobyte of names.
const SESSIONS: usize = 4000;
/// Sessions that are announced together.
const TOGETHER: usize = 20;
/// Reads of all of them at a time.
const READS: usize = 150;
/// So many of them are answered before the test ends: the others wait for their rows to be due.
const ANSWERED: usize = 20;

#[test]
fn large_reads_are_made_few_at_a_time_paced_and_each_is_whole() {
    let [greedy, other] = ["greedy", "other"].map(Key::new);
    let (gateway, _dir) = gateway(&[&greedy, &other], "");
    let headers = format!("{}Content-Type: application/json\r\n", greedy.header());
    let post = |operation: &str, body: serde_json::Value| {
        let head = format!("POST /v1/upstream/{operation}");
        let (status, answer) = gateway.call_with(&headers, &head, &body.to_string()).unwrap();
        assert_eq!(status, 200, "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let welcome = post("hello", json!({"protocol": 1, "version": "x"}));
    let welcome: serde_json::Value = serde_json::from_str(&welcome).unwrap();
    let (mark, long) = (welcome["mark"].as_str().unwrap(), "x".repeat(190));
    let announce = |number: usize| {
        let id = format!("67e55044-10b1-426f-{number:04x}-{mark}");
        let owner = json!({"session": id, "host": long, "name": long});
        let ttl = json!({"secs": 600, "nanos": 0});
        let body =
            json!({"owner": owner, "tenant": "t", "project": "p", "surface": long, "ttl": ttl});
        request("announce", &headers, &body.to_string())
    };
    let mut stream = connected([127, 0, 0, 1], &gateway);
    for first in (0..SESSIONS).step_by(TOGETHER) {
        let requests: String = (first..first + TOGETHER).map(announce).collect();
        stream.write_all(requests.as_bytes()).unwrap();
        let mut answers = String::new();
        until("sessions to be there", || {
            answers.push_str(&come(&mut stream));
            answers.matches("HTTP/1.1 200 ").count() == TOGETHER
        });
    }
    let all = json!({"within": {"project": {"tenant": "t", "project": "p"}}, "listed": true, "page": null});
    let members: serde_json::Value = serde_json::from_str(&post("members", all.clone())).unwrap();
    assert_eq!(members["sessions"].as_array().unwrap().len(), SESSIONS, "none is left out");

    let (before, body) = (rss_kib(gateway.pid()), all.to_string());
    let streams: Vec<_> = (0..READS)
        .map(|_| {
            let mut stream = connected([127, 0, 0, 2], &gateway);
            stream.write_all(request("members", &headers, &body).as_bytes()).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    let (mut most, mut begun) = (before, Vec::new());
    until("answers, which nobody reads", || {
        is_answered(&gateway, &other);
        most = most.max(rss_kib(gateway.pid()));
        begun = streams.iter().filter_map(status).collect();
        begun.len() >= ANSWERED
    });
    assert!(begun.iter().all(|status| matches!(status.as_str(), "200" | "429")), "{begun:?}");
    assert!(most < before + (96 << 10), "{before} KiB, then {most}");
}

fn request(operation: &str, headers: &str, body: &str) -> String {
    let head = format!("POST /v1/upstream/{operation} HTTP/1.1\r\nHost: localhost\r\n{headers}");
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The status of an answer that has begun, which is not read.
fn status(stream: &TcpStream) -> Option<String> {
    let mut begin = [0; 12];
    let length = stream.peek(&mut begin).ok()?;
    (length == begin.len()).then(|| String::from_utf8_lossy(&begin[9..]).into_owned())
}

fn grpc(path: &str) -> Vec<u8> {
    fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ])
}

/// A stream of health, for which nobody needs a key, that is silent.
fn watch(from: [u8; 4], gateway: &Gateway) -> TcpStream {
    let mut stream = connected(from, gateway);
    let head = frame(HEADERS, END_HEADERS, 1, &grpc("/grpc.health.v1.Health/Watch"));
    let message = frame(DATA, END_STREAM, 1, &[0; 5]);
    let _ = stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &head, &message].concat());
    stream
}

fn is_open(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 4096];
    let is_open = loop {
        match stream.read(&mut bytes) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == ErrorKind::WouldBlock,
        }
    };
    stream.set_nonblocking(false).unwrap();
    is_open
}

#[test]
fn silent_streams_without_a_key_leave_places_to_callers() {
    let key = Key::new("good");
    let settings = "[limits]\nconnections = 200\nconnections_per_address = 50\n\
                    anonymous_connections_per_address = 50\n";
    let (gateway, _dir) = gateway(&[&key], settings);
    let mut balancer = watch([127, 0, 0, 9], &gateway);
    let mut caller = connected([127, 0, 0, 2], &gateway);
    let call = format!("GET /v1/overview HTTP/1.1\r\nHost: localhost\r\n{}\r\n", key.header());
    let mut ask = || {
        caller.write_all(call.as_bytes()).unwrap();
        let mut status = [0; 12];
        caller.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        until("the rest of the answer", || come(&mut caller).contains('}'));
    };
    ask();
    let mut flood: Vec<TcpStream> = Vec::new();
    for number in 0..200 {
        flood.push(watch([127, 0, 0, 2 + number % 4], &gateway));
        if number % 20 == 0 {
            is_answered(&gateway, &key);
        }
    }
    until("most of the flood to make way", || {
        flood.iter_mut().map(is_open).filter(|open| *open).count() <= 50
    });
    is_answered(&gateway, &key);
    // The attackers' own address is no hindrance.
    ask();
    assert!(is_open(&mut balancer), "one stream of a quiet address stays");
    until("the log to say so", || gateway.log().contains("limits.anonymous_connections"));
}

#[test]
fn unfinished_messages_without_a_key_have_a_small_part() {
    let key = Key::new("good");
    let (gateway, _dir) = gateway(&[&key], "");
    is_answered(&gateway, &key);
    let before = rss_kib(gateway.pid());
    let message = [&[0, 0, 0, 255, 255][..], &[0; 16_000]].concat();
    let flood: Vec<TcpStream> = (0..150)
        .flat_map(|_| 0..4)
        .map(|number| {
            let mut stream = connected([127, 0, 0, 2 + number], &gateway);
            let streams = (0..12).flat_map(|at| {
                let (stream, path) = (2 * at + 1, grpc("/grpc.health.v1.Health/Check"));
                let head = frame(HEADERS, END_HEADERS, stream, &path);
                [head, frame(DATA, 0, stream, &message)].concat()
            });
            let streams: Vec<u8> = streams.collect();
            let _ = stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &streams].concat());
            stream
        })
        .collect();
    is_answered(&gateway, &key);
    let during = rss_kib(gateway.pid());
    assert!(during < before + (96 << 10), "{before} KiB, then {during}");
    drop(flood);
}

#[test]
fn each_default_is_named_in_its_refusal_and_a_key_raises_it() {
    let keys =
        [Key::new("usual"), Key::within("more", &["--holds-max", "3", "--streams-max", "2"])];
    let settings = "[limits]\nholds_per_principal = 2\nsessions_per_principal = 1\n\
                    waiters_per_principal = 1\nstreams_per_principal = 1\n\
                    bytes_kept_per_principal = 65536\n";
    let (gateway, _dir) = gateway(&[&keys[0], &keys[1]], settings);
    let post = |key: &Key, operation: &str, body: serde_json::Value| {
        let headers = format!("{}Content-Type: application/json\r\n", key.header());
        let head = format!("POST /v1/upstream/{operation}");
        gateway.call_with(&headers, &head, &body.to_string()).unwrap()
    };
    let mark = |key| {
        let (_, answer) = post(key, "hello", json!({"protocol": 1, "version": "x"}));
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let welcome: serde_json::Value = serde_json::from_str(body).unwrap();
        welcome["mark"].as_str().unwrap().to_owned()
    };
    let claim = |key, mark: &str, number: u32| {
        let id = format!("67e55044-10b1-426f-{number:04x}-{mark}");
        let owner = json!({"session": id, "host": "h", "name": "n"});
        let resource = json!({"tenant": "t", "kind": "leader", "name": format!("{mark}/{number}")});
        post(
            key,
            "claim",
            json!({
                "id": id, "resource": resource, "owner": owner, "terms": "Leader", "enqueue": false,
                "ttl": {"secs": 30, "nanos": 0}
            }),
        )
    };
    let changes = |key: &Key| {
        let mut stream = connected([127, 0, 0, 1], &gateway);
        let head = "GET /v1/upstream/changes HTTP/1.1\r\nHost: localhost\r\n";
        write!(stream, "{head}{}\r\n", key.header()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        (stream, String::from_utf8_lossy(&status).into_owned())
    };
    let refused = |(status, answer): (u16, String), limit: &str, max: usize| {
        assert_eq!(status, 429, "{answer}");
        assert!(answer.contains(&format!("\"field\":\"{limit}\"")), "{answer}");
        assert!(answer.contains(&format!("{limit} = {max}")), "{answer}");
    };
    let [usual, more] = [&keys[0], &keys[1]];
    let of_usual = mark(usual);
    for number in 0..2 {
        assert_eq!(claim(usual, &of_usual, number).0, 200);
    }
    refused(claim(usual, &of_usual, 2), "limits.holds_per_principal", 2);
    let of_more = mark(more);
    for number in 0..3 {
        assert_eq!(claim(more, &of_more, number).0, 200);
    }
    refused(claim(more, &of_more, 3), "holds_max", 3);
    let (first, second) = (changes(usual), changes(usual));
    assert!(first.1.ends_with("200") && second.1.ends_with("429"), "{second:?}");
    let (third, fourth) = (changes(more), changes(more));
    assert!(third.1.ends_with("200") && fourth.1.ends_with("200"));
}
