//! Proxies that callers register: the gateway connects to none outside of `proxy_networks`, sends them nothing of callers
//! before they speak HTTP/2, and tells nobody what it can reach.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tenure_tests::harness::{
    FakeProxy, Gateway, Key, Runners, eventually, register, runner, within,
};
use tokio::runtime::Runtime;
use tonic::{Code, Status};

/// A command to a service that reads lines.
const COMMAND: &str = "set session:admin 0 3600 4";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn try_register(
    gateway: &Gateway,
    key: Option<&Key>,
    id: &str,
    address: &str,
) -> Result<(), Status> {
    let registering = within("a gRPC call", register(gateway, key, id, address));
    let ack = Runtime::new().unwrap().block_on(registering)?;
    assert!(ack.success, "{}", ack.message);
    Ok(())
}

#[track_caller]
fn is_outside(gateway: &Gateway, address: &str, words: &str) {
    let refused = try_register(gateway, None, "p", address).expect_err(address);
    let text = refused.message();
    assert_eq!(refused.code(), Code::PermissionDenied, "{address}: {text}");
    for word in ["proxy_networks", "[[proxies]]", words] {
        assert!(text.contains(word), "{address}: {text}");
    }
}

fn proxies(gateway: &Gateway, key: Option<&Key>) -> Vec<Value> {
    let header = key.map(Key::header).unwrap_or_default();
    let (status, answer) = gateway.call_with(&header, "GET /v1/proxies", "").unwrap();
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    answer["rows"].as_array().unwrap().clone()
}

#[test]
fn a_gateway_on_loopback_connects_neither_to_itself_nor_to_link_local_addresses() {
    let gateway = Gateway::start("embedded:");
    let port = gateway.port();
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::1]",
    ] {
        is_outside(&gateway, &format!("{host}:{port}"), "127.0.0.1 (the gateway itself)");
    }
    is_outside(&gateway, &format!("0.0.0.0:{port}"), "0.0.0.0 (the gateway itself)");
    for host in [
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "169.254.43518",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
    ] {
        is_outside(&gateway, &format!("{host}:80"), "169.254.169.254 (link-local)");
    }
    is_outside(&gateway, "[fe80::1]:80", "link-local");
    is_outside(&gateway, "224.0.0.1:80", "multicast");
    is_outside(&gateway, "0.0.0.0:80", "unspecified");
    assert!(proxies(&gateway, None).is_empty(), "there is nothing to tell of one that was refused");
}

#[test]
fn registering_takes_a_right_and_so_many_are_registered_by_a_principal() {
    let keys =
        [Key::new("laptop"), Key::within("router", &["--right", "proxy", "--proxies-max", "2"])];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    let refused = |key, id| try_register(&gateway, Some(key), id, "127.0.0.1:1").expect_err(id);
    let without = refused(&keys[0], "of-laptop");
    assert_eq!(without.code(), Code::PermissionDenied, "{without}");
    assert!(without.message().contains("the right \"proxy\""), "{without}");
    for id in ["first", "second", "first"] {
        try_register(&gateway, Some(&keys[1]), id, "127.0.0.1:1").unwrap();
    }
    let third = refused(&keys[1], "third");
    assert_eq!(third.code(), Code::ResourceExhausted, "{third}");
    assert!(third.message().contains("proxies_max"), "{third}");
    assert!(proxies(&gateway, Some(&keys[0])).is_empty(), "those of others are not shown");
    assert_eq!(proxies(&gateway, Some(&keys[1])).len(), 2);
}

#[test]
fn networks_that_are_named_are_those_alone_and_the_administrator_has_others() {
    let proxy = FakeProxy::start("of-the-file", Duration::ZERO);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    let text = format!(
        "proxy_networks = \"127.0.0.8/32, fd00::/8\"\n[[proxies]]\nid = \"of-the-file\"\naddress = \"{}\"\n",
        proxy.address()
    );
    std::fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.display());
    let gateway = Gateway::start_by("embedded:", &[], &[config]);
    for address in ["127.0.0.1:1", "[::1]:1", "192.168.7.7:80", "[2606:4700::1111]:80"] {
        is_outside(&gateway, address, "which are 127.0.0.8/32,fd00::/8");
    }
    // One that may be registered, with nothing there; and one whose name leads out of the networks.
    try_register(&gateway, None, "within", "127.0.0.8:1").unwrap();
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    let by_name = format!("localhost:{}", inside.local_addr().unwrap().port());
    try_register(&gateway, None, "by-name", &by_name).unwrap();
    let runners = Runners::new(&gateway, None);
    runners.take(1, "mail", "active");
    let routes = BTreeMap::from([("mail".to_owned(), (runner(1), "active".to_owned()))]);
    proxy.knows(&routes);
    let names = eventually("the administrator's proxy to be connected", || {
        let shown = proxies(&gateway, None);
        let connected = shown.iter().filter(|it| it["connected"] == true);
        let names: Vec<_> = connected.map(|it| it["proxy_id"].clone()).collect();
        (!names.is_empty()).then_some(names)
    });
    assert_eq!(names, ["of-the-file"], "the others are outside, or away");
    inside.set_nonblocking(true).unwrap();
    assert_eq!(inside.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// Everything that a service hears on its first connection, which says this first.
fn heard(listener: TcpListener, greeting: &'static str) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
        stream.write_all(greeting.as_bytes()).unwrap();
        let mut heard = Vec::new();
        // An error says that the gateway hung up before it had read all.
        let _ = stream.read_to_end(&mut heard);
        heard
    })
}

#[test]
fn a_service_that_speaks_no_http_2_hears_nothing_of_a_caller() {
    let gateway = Gateway::start("embedded:");
    let runners = Runners::new(&gateway, None);
    runners.take(1, COMMAND, "active");
    let services = ["", "220 mail ESMTP\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"].map(|greeting| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = heard(listener, greeting);
        try_register(&gateway, None, &format!("p{}", greeting.len()), &address).unwrap();
        (greeting, heard)
    });
    for (greeting, service) in services {
        let heard = service.join().unwrap();
        assert!(heard.starts_with(PREFACE), "{greeting:?}: {heard:?}");
        let after_it = &heard[PREFACE.len()..];
        // A gateway that has read the greeting by then hangs up at once.
        let is_silent = after_it.is_empty() && !greeting.is_empty();
        // The head of a SETTINGS frame, and six bytes for each setting.
        let is_settings = matches!(after_it, [_, _, length, 4, _, 0, 0, 0, 0, settings @ ..]
            if settings.len() == usize::from(*length));
        assert!(is_silent || is_settings, "{greeting:?}: {heard:?}");
    }
    let shown = proxies(&gateway, None);
    assert_eq!(shown.len(), 3);
    assert!(shown.iter().all(|it| it["connected"] == false), "{shown:?}");
}

#[test]
fn a_key_is_told_of_its_own_proxies() {
    let bounds = ["--tenant", "default", "--right", "proxy"];
    let [own, other] = ["own", "other"].map(|name| Key::within(name, &bounds));
    let gateway = Gateway::start_with("embedded:", &[&own, &other]);
    let proxy = FakeProxy::start("p", Duration::ZERO);
    try_register(&gateway, Some(&own), "p", &proxy.address()).unwrap();
    Runners::new(&gateway, Some(&own)).take(1, "mail", "active");
    eventually("its own principal to be told of it", || {
        let shown = proxies(&gateway, Some(&own));
        shown.first().filter(|it| it["connected"] == true).map(drop)
    });
    assert!(proxies(&gateway, Some(&other)).is_empty());
    let (_, overview) = gateway.call_with(&other.header(), "GET /v1/overview", "").unwrap();
    assert!(!overview.contains(&proxy.address()), "{overview}");
}
