//! Peers of a gateway that mean no good: each is told so or cut off, and others go on.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use tenure_tests::harness::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, fields, frame,
};
use tenure_tests::harness::{
    Authority, Campaigner, DEADLINE, Gateway, Key, RedisServer, rss_kib, rss_max_kib, start_agent,
    until,
};
use tokio::net::TcpSocket;

/// A connection that a test never waits for in vain.
fn connected(gateway: &Gateway) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", gateway.port())).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Everything that comes until the gateway closes the connection.
fn all(mut stream: impl Read) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it stays open: {bytes:?}"),
        // It closed while there was more to read.
        Ok(_) | Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

fn statuses(answers: &str) -> Vec<&str> {
    let heads = answers.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head.get(..3).unwrap_or_default()).collect()
}

fn is_alive(gateway: &Gateway) {
    assert_eq!(gateway.call("GET /healthz", "").unwrap().0, 200);
}

#[test]
fn a_request_that_two_servers_could_read_in_two_ways_ends_its_connection() {
    let gateway = Gateway::start("embedded:");
    let second = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let head =
        "POST /v1/upstream/hello HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let body = r#"{"protocol":1,"version":"x"}"#;
    let count = body.len();
    let chunked = format!("{count:x}\r\n{body}\r\n0\r\n\r\n");
    for (name, request, expected) in [
        (
            "both, length first",
            format!(
                "{head}Content-Length: {count}\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}{second}"
            ),
            "200",
        ),
        (
            "both, length last",
            format!(
                "{head}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n{chunked}{second}"
            ),
            "200",
        ),
        (
            "two lengths",
            format!("{head}Content-Length: {count}\r\nContent-Length: 4\r\n\r\n{body}{second}"),
            "400",
        ),
        (
            "a list of lengths",
            format!("{head}Content-Length: {count}, {count}\r\n\r\n{body}{second}"),
            "400",
        ),
        ("a signed length", format!("{head}Content-Length: +{count}\r\n\r\n{body}{second}"), "400"),
        (
            "chunked is not the last",
            format!("{head}Transfer-Encoding: chunked, identity\r\n\r\n{chunked}{second}"),
            "400",
        ),
        (
            "chunked is not alone",
            format!("{head}Transfer-Encoding: identity, chunked\r\n\r\n{chunked}{second}"),
            "422",
        ),
        (
            "another encoding",
            format!("{head}Transfer-Encoding: xchunked\r\n\r\n{chunked}{second}"),
            "400",
        ),
        (
            "a folded header",
            format!("{head}X: a\r\n b\r\nContent-Length: {count}\r\n\r\n{body}{second}"),
            "400",
        ),
        (
            "a blank before the colon",
            format!("{head}Content-Length : {count}\r\n\r\n{body}{second}"),
            "400",
        ),
        (
            "a return in a value",
            format!("{head}X: a\rContent-Length: {count}\r\n\r\n{body}{second}"),
            "400",
        ),
        ("a zero in a value", format!("{head}X: a\0b\r\n\r\n{second}"), "400"),
        ("no HTTP", "\u{16}\u{3}\u{1}\0\r\n\r\n".to_owned(), "400"),
        ("HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "400"),
    ] {
        let mut stream = connected(&gateway);
        // It may be closed before all is written.
        let _ = stream.write_all(request.as_bytes());
        let answers = all(stream);
        let found = statuses(&answers);
        assert!(
            found == [expected] || (found.is_empty() && expected == "400"),
            "{name}: {answers}"
        );
    }
    is_alive(&gateway);
}

#[test]
fn what_is_too_long_is_refused() {
    let gateway = Gateway::start("embedded:");
    let head =
        "POST /v1/upstream/hello HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let long = "x".repeat(128 << 10);
    let body_bytes = 64 << 20;
    for (name, request, expected) in [
        ("a header", format!("{head}X: {long}\r\n\r\n"), "431"),
        ("many headers", format!("{head}{}\r\n", "X: y\r\n".repeat(100)), "431"),
        ("a path", format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), "4"),
        (
            "a body",
            format!("{head}Content-Length: {body_bytes}\r\n\r\n{}", "x".repeat(8 << 20)),
            "413",
        ),
    ] {
        let mut stream = connected(&gateway);
        let mut writer = stream.try_clone().unwrap();
        let writing = thread::spawn(move || {
            let _ = writer.write_all(request.as_bytes());
        });
        let mut answer = [0; 12];
        match stream.read_exact(&mut answer) {
            Ok(()) => {
                let answer = String::from_utf8_lossy(&answer).into_owned();
                assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{name}: {answer}");
            }
            // Bytes that it had not read were on their way when it closed.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{name}"),
        }
        let _ = stream.shutdown(Shutdown::Both);
        writing.join().unwrap();
    }
    assert!(rss_max_kib(gateway.pid()) < 256 << 10);
    is_alive(&gateway);
}

#[test]
fn who_says_nothing_or_half_is_cut_off() {
    let plain = Gateway::start("embedded:");
    let (authority, secure) = secure_gateway();
    let hello = b"POST /v1/upstream/hello HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    let streams = [&b""[..], b"GET /healthz HT", hello].map(|words| {
        let mut stream = connected(&plain);
        stream.write_all(words).unwrap();
        stream
    });
    let silent = connected(&secure);
    let preface = {
        let mut stream = spoken(&authority, &secure, true);
        stream.write_all(&PREFACE[..10]).unwrap();
        stream
    };
    assert_eq!(statuses(&all(&silent)).len(), 0);
    all(preface);
    for (stream, expected) in streams.into_iter().zip([&[][..], &[], &["413"]]) {
        assert_eq!(statuses(&all(stream)), expected);
    }
    is_alive(&plain);
}

/// A gateway that speaks TLS, and the authority of its certificate.
fn secure_gateway() -> (Authority, Gateway) {
    let authority = Authority::new();
    authority.issue("gateway", "IP:127.0.0.1");
    let path = |name| authority.path(name).display().to_string();
    let files = [
        format!("--tls-cert-file={}", path("gateway.pem")),
        format!("--tls-key-file={}", path("gateway.key")),
    ];
    let gateway = Gateway::start_by("embedded:", &[], &files);
    (authority, gateway)
}

/// TLS with a gateway, and HTTP/2 if that is asked for.
fn spoken(
    authority: &Authority,
    gateway: &Gateway,
    is_h2: bool,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.path("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    if is_h2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    let name = "127.0.0.1".try_into().unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(session, connected(gateway))
}

/// GET of a path over https.
fn get(path: &str) -> Vec<u8> {
    fields(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "localhost"),
    ])
}

#[test]
fn http2_that_is_abused_ends_and_others_go_on() {
    let (authority, gateway) = secure_gateway();
    let ca = authority.path("ca.pem").display().to_string();
    let section = format!("[gateway]\ntls_ca_file = {ca:?}\n");
    let agent = start_agent(0, &gateway.url(), &section);
    let mut client = Campaigner::start(&agent, "client");

    let reset_at_once: Vec<u8> = (0..20_000)
        .flat_map(|at| {
            let stream = 2 * at + 1;
            let head = frame(HEADERS, END_STREAM | END_HEADERS, stream, &get("/healthz"));
            [head, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        })
        .collect();
    let endless_head: Vec<u8> = [frame(HEADERS, END_STREAM, 1, &get("/healthz"))]
        .into_iter()
        .chain((0..10_000).map(|_| {
            let field = [&[0x00, 0x01, b'x', 0x7f, 0x80, 0x01][..], &[b'y'; 255]].concat();
            frame(CONTINUATION, 0, 1, &field)
        }))
        .flatten()
        .collect();
    let many_settings: Vec<u8> = (0..20_000).flat_map(|_| frame(SETTINGS, 0, 0, &[])).collect();
    for (name, abuse) in [
        ("requests that are reset", reset_at_once),
        ("an endless head", endless_head),
        ("settings that nobody reads", many_settings),
        ("a frame of no stream", frame(HEADERS, END_HEADERS, 0, &get("/"))),
    ] {
        let mut stream = spoken(&authority, &gateway, true);
        let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        stream.write_all(&opening).unwrap();
        // It may end at any time.
        let sent = stream.write_all(&abuse).and_then(|()| stream.flush());
        client.acquire("leader", name, &json!({}));
        let _ = stream.sock.shutdown(Shutdown::Write);
        all(stream);
        eprintln!("{name}: sent: {sent:?}; {} MiB", rss_max_kib(gateway.pid()) >> 10);
    }
    assert!(rss_max_kib(gateway.pid()) < 256 << 10);
}

#[test]
fn who_does_not_read_what_it_asked_for_is_cut_off() {
    let (authority, gateway) = secure_gateway();
    let mut stream = spoken(&authority, &gateway, true);
    // SETTINGS_INITIAL_WINDOW_SIZE 0: an answer may have a head, and no body until the window grows.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/v1/upstream/changes"));
    stream.write_all(&[PREFACE, &settings, &request].concat()).unwrap();
    all(stream);
}

/// A connection from another address of this host.
async fn connected_from(address: Ipv4Addr, port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await.unwrap();
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

#[test]
fn a_thousand_connections_of_one_address_leave_room_for_others() {
    let key = Key::new("alpha");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    // So few that they are all there before the first one is cut off.
    std::fs::write(&file, "limits.connections_per_address = 500\n").unwrap();
    let config = format!("--config={}", file.display());
    let gateway = Gateway::start_by("embedded:", &[&key], &[config]);
    let agent = start_agent(0, &gateway.url(), &gateway.config(&key));
    let mut client = Campaigner::start(&agent, "client");
    client.acquire("leader", "before", &json!({}));
    let before = rss_kib(gateway.pid());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    // The client's own address is another.
    let flood = Ipv4Addr::new(127, 0, 0, 9);
    let mut open: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = runtime.block_on(connected_from(flood, gateway.port()));
            // A head that does not end.
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ");
            stream
        })
        .collect();
    until("the gateway to tell of it", || gateway.log().contains("closed connections"));
    client.acquire("leader", "meanwhile", &json!({}));
    is_alive(&gateway);
    let during = rss_kib(gateway.pid());
    eprintln!("{} KiB for 500 connections", during - before);
    assert!(during - before < 64 << 10, "{before} KiB, then {during}");
    // Half a head is cut off after a while, those above the limit at once.
    for stream in &mut open {
        assert!(statuses(&all(stream)).is_empty());
    }
    let mut again = runtime.block_on(connected_from(flood, gateway.port()));
    again
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert_eq!(statuses(&all(again)), ["200"]);
    client.acquire("leader", "after", &json!({}));
}

#[test]
fn five_thousand_connections_leave_room_for_agents() {
    const ADDRESSES: u8 = 5;
    const OF_EACH: usize = 1000;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let key = Key::new("alpha");
    let gateway = Gateway::start_with("embedded:", &[&key]);
    let agent = start_agent(0, &gateway.url(), &gateway.config(&key));
    let mut client = Campaigner::start(&agent, "client");
    let held = client.acquire("leader", "before", &json!({}));
    let before = rss_kib(gateway.pid());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let mut open = Vec::new();
    for address in 0..ADDRESSES {
        for number in 0..OF_EACH {
            let from = Ipv4Addr::new(127, 0, 1, address);
            let mut stream = runtime.block_on(connected_from(from, gateway.port()));
            // Half of them are not heard of again, and the others have asked something.
            let end = if number % 2 == 0 { "X: " } else { "\r\n" };
            write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n{end}").unwrap();
            open.push(stream);
        }
    }
    for stream in open.iter_mut().skip(1).step_by(2) {
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    client.acquire("leader", "meanwhile", &json!({}));
    is_alive(&gateway);
    let kib = rss_kib(gateway.pid()) - before;
    eprintln!("{kib} KiB for {} connections", open.len());
    assert!(kib < 128 << 10, "{kib} KiB");
    drop(open);
    client.acquire("leader", "after", &json!({}));
    assert!(client.has(held.hold));
}

#[test]
fn an_end_answers_what_is_under_way_and_says_good_bye_to_streams() {
    let mut redis = RedisServer::start();
    let mut gateway = Gateway::start(&redis.url());
    let open = |path: &str, body: &str| {
        let mut stream = connected(&gateway);
        let length = body.len();
        write!(stream, "{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        stream
    };
    let mut stream = open("GET /v1/upstream/changes", "");
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let idle = connected(&gateway);
    let resource = json!({"tenant": "t", "kind": "leader", "name": "n"});
    redis.pause();
    let call = open("POST /v1/upstream/inspect", &json!({"resource": resource}).to_string());
    // They come after it.
    (0..3).for_each(|_| is_alive(&gateway));
    gateway.terminate();
    until("the gateway to accept nothing", || {
        TcpStream::connect(("127.0.0.1", gateway.port())).is_err()
    });
    redis.resume();
    let answer = all(call);
    assert!(statuses(&answer) == ["200"] && answer.contains("connection: close"), "{answer}");
    let rest = all(stream);
    assert!(rest.contains(": the gateway is stopping\n\n"), "{rest}");
    assert!(all(idle).is_empty());
    assert!(gateway.ended().success());
}
