//! Proxies and readers of streams that stand still while routes change, and routes that end while there is no gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tenure_tests::harness::{
    FakeProxy, Gateway, Python, RedisServer, RouteStream, Runners, boottime_ns, eventually,
    free_port, register, rss_kib, runner, within,
};
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/proto/protos");
const MAILBOXES: usize = 200;
const ROUNDS: usize = 4;
/// What a gateway may take for what somebody does not take, KiB.
const GROWS_BY_KIB_MAX: u64 = 4096;
/// What a reader takes without being asked, bytes; far less than all changes.
const WINDOW: u32 = 16_384;

fn mailbox(number: usize) -> String {
    format!("mail-{number}@proxy-01")
}

/// Every mailbox changes again and again, and is degraded in the end. How much more memory the gateway has, KiB.
fn changes(gateway: &Gateway, runners: &Runners) -> u64 {
    let mut before = 0;
    for round in 1..=ROUNDS {
        for number in 0..MAILBOXES {
            runners.take(number, &mailbox(number), ["degraded", "active"][round % 2]);
        }
        // What any change takes once is there by then.
        if round == 2 {
            before = rss_kib(gateway.pid());
        }
    }
    rss_kib(gateway.pid()).saturating_sub(before)
}

/// True if the gateway says so of its only proxy.
fn is(gateway: &Gateway, what: &str) -> Option<bool> {
    let (_, answer) = gateway.call("GET /v1/proxies", "").ok()?;
    let rows: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    rows["rows"][0][what].as_bool()
}

#[test]
fn a_proxy_that_stood_still_is_right_when_it_goes_on() {
    let gateway = Gateway::start("embedded:");
    let runners = Runners::new(&gateway, None);
    let port = free_port().to_string();
    let mut proxy = Python::start("route_taker.py", &[&port, PROTOS]);
    let runtime = Runtime::new().unwrap();
    let address = format!("127.0.0.1:{port}");
    let ack = runtime.block_on(register(&gateway, None, "proxy-01", &address)).unwrap();
    assert!(ack.success, "{}", ack.message);
    for number in 0..MAILBOXES {
        runners.take(number, &mailbox(number), "active");
    }
    let has = |degraded: usize| {
        move |told: &Value| {
            let now = (&told["routes"], &told["degraded"]);
            (now == (&json!(MAILBOXES), &json!(degraded))).then_some(())
        }
    };
    proxy.event_after(0, "it to be told of all", has(0));
    proxy.program().signal(Signal::SIGSTOP);
    runners.take(0, &mailbox(0), "degraded");
    eventually("it to be missed", || is(&gateway, "behind").filter(|it| *it));
    let grown = changes(&gateway, &runners);
    assert!(grown <= GROWS_BY_KIB_MAX, "{grown} KiB");
    let (seen, began) = (proxy.events().len(), boottime_ns());
    proxy.program().signal(Signal::SIGCONT);
    proxy.event_after(seen, "it to be right", has(MAILBOXES));
    println!("right after {} ms; {grown} KiB", (boottime_ns() - began) / 1_000_000);
    eventually("it to be there again", || {
        let is_right = is(&gateway, "connected")? && !is(&gateway, "behind")?;
        is_right.then_some(())
    });
}

#[test]
fn a_stream_that_nobody_reads_takes_no_memory_and_tells_the_latest() {
    let gateway = Gateway::start("embedded:");
    let runners = Runners::new(&gateway, None);
    Runtime::new().unwrap().block_on(within("the stream", async {
        let endpoint = Endpoint::from_shared(gateway.url()).unwrap();
        let narrow = endpoint.initial_stream_window_size(WINDOW).connect_lazy();
        let mut stream = RouteStream::open(narrow, None).await.unwrap();
        let grown = changes(&gateway, &runners);
        assert!(grown <= GROWS_BY_KIB_MAX, "{grown} KiB");
        let of = |number| (mailbox(number), (runner(number), "degraded".to_owned()));
        stream.until(&BTreeMap::from_iter((0..MAILBOXES).map(of))).await;
    }));
}

#[test]
fn what_ended_while_there_was_no_gateway_is_removed_from_proxies() {
    let redis = RedisServer::start();
    let mut gateway = Gateway::start(&redis.url());
    let runners = Runners::new(&gateway, None);
    let proxy = FakeProxy::start("proxy-01", Duration::ZERO);
    let runtime = Runtime::new().unwrap();
    let ack = runtime.block_on(register(&gateway, None, "proxy-01", &proxy.address()));
    assert!(ack.unwrap().success);
    runners.take(1, &mailbox(1), "active");
    runners.take_for(2, &mailbox(2), "active", 4, 0);
    let route = |number| (mailbox(number), (runner(number), "active".to_owned()));
    proxy.knows(&BTreeMap::from([1, 2].map(route)));
    eventually("it to be noted", || {
        let noted = std::fs::read_to_string(gateway.state_dir().join("routes-told")).ok()?;
        noted.contains(&mailbox(2)).then_some(())
    });
    gateway.kill();
    let lease = format!("tenure:lease:{}", mailbox(2));
    eventually("the lease to end", || {
        let is_there: bool = redis.command(&["EXISTS", &lease]);
        (!is_there).then_some(())
    });
    gateway.start_again();
    proxy.knows(&BTreeMap::from([route(1)]));
}
