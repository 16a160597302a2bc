//! HTTP/2 that is abused where runners come in: the connection is ended or held to a bound, and runners beside it go on.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;
use tenure_tests::harness::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, fields, frame,
};
use tenure_tests::harness::{DEADLINE, Gateway, RfcRunners, cpu_ns, rss_kib, rss_max_kib, until};

/// Bytes that are sent at most; the buffers of both sockets have some of them.
const FLOOD_BYTES: usize = 64 << 20;
/// Bytes by which the gateway may grow while it is flooded.
const GROWTH_KIB: u64 = 24 << 10;

fn call(path: &str) -> Vec<u8> {
    fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ])
}

fn acquire() -> Vec<u8> {
    call("/prism.admin.v1.ControlPlane/AcquireLease")
}

fn opened(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port())).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    stream
}

/// Sends that again and again, with the numbers of new streams, until the gateway ends the connection; how much it was.
fn flood(gateway: &Gateway, first: &[u8], next: impl Fn(u32) -> Vec<u8>) -> Option<usize> {
    let mut stream = opened(gateway);
    let mut reader = stream.try_clone().unwrap();
    // The answers are read: the gateway may not just wait for that.
    let reading =
        thread::spawn(move || while reader.read(&mut [0; 65_536]).is_ok_and(|it| it > 0) {});
    let mut sent = first.len();
    let mut is_over = stream.write_all(first).is_err();
    let mut number = 1;
    while !is_over && sent < FLOOD_BYTES {
        let mut some = Vec::new();
        while some.len() < 16 << 10 {
            number += 2;
            some.extend(next(number));
        }
        sent += some.len();
        is_over = stream.write_all(&some).is_err();
    }
    let _ = stream.shutdown(std::net::Shutdown::Both);
    reading.join().unwrap();
    is_over.then_some(sent)
}

/// Does this while a runner beats, which is answered all the time.
fn beside_a_runner(gateway: &Gateway, attack: impl FnOnce() + Send) {
    let mut runners = RfcRunners::start();
    runners.open("good", gateway, &json!({}));
    assert_eq!(runners.acquire("good", "runner-01")["success"], true);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            attack();
            is_over.store(true, Ordering::Relaxed);
        });
        let mut beats = 0;
        until("the attack to end", || {
            assert_eq!(runners.heartbeat("good", "runner-01")["lease_renewed"], true);
            beats += 1;
            is_over.load(Ordering::Relaxed)
        });
        eprintln!("{beats} heartbeats meanwhile");
    });
}

#[test]
fn a_flood_of_frames_ends_its_connection() {
    let gateway = Gateway::start("embedded:");
    let open = frame(HEADERS, END_HEADERS, 1, &acquire());
    let begun = frame(HEADERS, 0, 1, &acquire());
    let field = fields(&[("x", &"y".repeat(100))]);
    type Next = Box<dyn Fn(u32) -> Vec<u8> + Send>;
    let same = |bytes: Vec<u8>| -> Next { Box::new(move |_| bytes.clone()) };
    let head = acquire();
    let reset = move |stream| {
        let head = frame(HEADERS, END_STREAM | END_HEADERS, stream, &head);
        [head, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    let head = acquire();
    let unfinished = move |stream| frame(HEADERS, END_HEADERS, stream, &head);
    let floods: Vec<(&str, Vec<u8>, Next)> = vec![
        ("settings", Vec::new(), same(frame(SETTINGS, 0, 0, &[]))),
        ("settings that change", Vec::new(), same(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]))),
        ("pings", Vec::new(), same(frame(PING, 0, 0, &[7; 8]))),
        ("answers to pings", Vec::new(), same(frame(PING, 1, 0, &[7; 8]))),
        ("resets", Vec::new(), Box::new(reset)),
        ("a head without end", begun.clone(), same(frame(CONTINUATION, 0, 1, &field))),
        ("a head of nothing", begun, same(frame(CONTINUATION, 0, 1, &[]))),
        ("windows", Vec::new(), same(frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()))),
        (
            "windows of a stream",
            open.clone(),
            same(frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes())),
        ),
        ("priorities", Vec::new(), Box::new(|stream| frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 7]))),
        ("empty data", open.clone(), same(frame(DATA, 0, 1, &[]))),
        ("padded data", open.clone(), same(frame(DATA, 8, 1, &[&[200][..], &[0; 200]].concat()))),
        ("unknown frames", Vec::new(), same(frame(0xbe, 0, 0, &[1; 16]))),
        ("good-byes", Vec::new(), same(frame(GOAWAY, 0, 0, &[0; 8]))),
        ("promises", open, same(frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]))),
        ("streams over the bound", Vec::new(), Box::new(unfinished)),
    ];
    let before = rss_kib(gateway.pid());
    beside_a_runner(&gateway, || {
        for (name, first, next) in floods {
            let cpu = cpu_ns(gateway.pid());
            let sent = flood(&gateway, &first, next);
            let ms = (cpu_ns(gateway.pid()) - cpu) / 1_000_000;
            eprintln!("{name}: ended after {sent:?} bytes, {ms} ms of CPU");
            assert!(sent.is_some(), "{name}: goes on after {FLOOD_BYTES} bytes");
        }
    });
    let kib = rss_max_kib(gateway.pid()) - before;
    eprintln!("{kib} KiB");
    assert!(kib < GROWTH_KIB, "{kib} KiB");
}

#[test]
fn heads_that_grow_when_they_are_read_cost_little() {
    let gateway = Gateway::start("embedded:");
    let before = rss_kib(gateway.pid());
    // A field of 4 000 bytes that is remembered, and named by one byte each 12 000 times: 48 MB.
    let name = [&[0x40, 1, b'x', 0x7f][..], &[0xa1, 0x1e], &vec![b'y'; 4000]].concat();
    let bomb = [acquire(), name, vec![0xbe; 12_000]].concat();
    let (_, rest) = bomb.split_at(16_000);
    let heads = |stream| {
        let first = frame(HEADERS, END_STREAM, stream, &bomb[..16_000]);
        [first, frame(CONTINUATION, END_HEADERS, stream, rest)].concat()
    };
    beside_a_runner(&gateway, || {
        let cpu = cpu_ns(gateway.pid());
        let sent = flood(&gateway, &[], heads);
        eprintln!(
            "ended after {sent:?} bytes, {} ms of CPU",
            (cpu_ns(gateway.pid()) - cpu) / 1_000_000
        );
    });
    let kib = rss_max_kib(gateway.pid()) - before;
    eprintln!("{kib} KiB");
    assert!(kib < GROWTH_KIB, "{kib} KiB");
}

/// Everything that comes until the gateway closes the connection.
fn all(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it stays open: {bytes:?}"),
        Ok(_) | Err(_) => bytes,
    }
}

#[test]
fn who_begins_and_does_not_go_on_is_cut_off() {
    let gateway = Gateway::start("embedded:");
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", gateway.port())).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    };
    // Half a preface, byte by byte.
    let mut slow = connect();
    let mut half = PREFACE[..20].iter();
    // A preface, and no more; one with half a frame; one with half a head.
    let begun = [&[][..], &frame(SETTINGS, 0, 0, &[])[..5], &frame(HEADERS, 0, 1, &acquire())].map(
        |more| {
            let mut stream = connect();
            stream.write_all(&[PREFACE, more].concat()).unwrap();
            stream
        },
    );
    // Calls whose messages never come, as many as there may be.
    let mut calling = opened(&gateway);
    let calls: Vec<u8> = (0..64)
        .flat_map(|number| frame(HEADERS, END_HEADERS, 2 * number + 1, &acquire()))
        .collect();
    calling.write_all(&calls).unwrap();
    let mut answered = 0;
    let mut buffer: Vec<u8> = Vec::new();
    until("the calls to be answered", || {
        if let Some(byte) = half.next() {
            // It may be cut off before its end.
            let _ = slow.write_all(&[*byte]);
        }
        let mut some = [0; 4096];
        let count = calling.read(&mut some).unwrap();
        buffer.extend(&some[..count]);
        while let Some(length) =
            buffer.get(..3).map(|it| usize::from(it[1]) << 8 | usize::from(it[2]))
            && buffer.len() >= 9 + length
        {
            answered += usize::from(buffer[3] == HEADERS);
            buffer.drain(..9 + length);
        }
        answered == 64
    });
    // Then it has nothing under way, and ends.
    for stream in begun.iter().chain([&slow]) {
        all(stream);
    }
}
