//! The connections to proxies: kept while no route changes, given up when the host is gone, and logged when they break often.

use std::collections::BTreeMap;
use std::env;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;
use tenure_tests::harness::{
    FakeProxy, Foreign, Gateway, Hosts, Python, Runners, boottime_ns, eventually, free_port,
    go_program, register, runner, within,
};
use tokio::runtime::Runtime;

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/proto/protos");
const MAILBOXES: usize = 300;
/// How long nothing changes: servers of grpcio end a connection at the fourth ping that comes too early, those of grpc-go at
/// the third. And how often
/// that is tried with `TENURE_LOAD=full`, each time for as long as a test may wait for anything.
const REST_S: u64 = 30;
const REST_FULL_S: u64 = 100;
const RESTS_FULL: usize = 6;
/// The host of a proxy that is gone is noticed within 8 s; a busy machine takes longer.
const NOTICED_WITHIN: Duration = Duration::from_secs(40);

fn mailbox(number: usize) -> String {
    format!("mail-{number}@proxy-01")
}

fn routes(count: usize) -> BTreeMap<String, (String, String)> {
    let route = |number| (mailbox(number), (runner(number), "active".to_owned()));
    (0..count).map(route).collect()
}

#[track_caller]
fn registered(gateway: &Gateway, id: &str, address: &str) {
    let registering = within("a gRPC call", register(gateway, None, id, address));
    let ack = Runtime::new().unwrap().block_on(registering).unwrap();
    assert!(ack.success, "{}", ack.message);
}

/// What the gateway says of its proxies.
fn proxies(gateway: &Gateway) -> Vec<Value> {
    let (_, answer) = gateway.call("GET /v1/proxies", "").unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").expect("it has a body");
    let answer: Value = serde_json::from_str(body).expect("it is JSON");
    answer["rows"].as_array().expect("there are rows").clone()
}

#[test]
fn proxies_with_the_defaults_of_grpc_keep_their_connection_while_nothing_changes() {
    let full = env::var("TENURE_LOAD").is_ok_and(|size| size == "full");
    let (rests, rest_s) = if full { (RESTS_FULL, REST_FULL_S) } else { (1, REST_S) };
    let gateway = Gateway::start("embedded:");
    let runners = Runners::new(&gateway, None);
    let ports = [free_port(), free_port()].map(|port| port.to_string());
    let of_grpcio = Python::start("route_taker.py", &[&ports[0], PROTOS]);
    let of_grpc_go = go_program("route_taker", &[&ports[1]]);
    let foreign: [&Foreign; 2] = [&of_grpcio, &of_grpc_go];
    let of_tonic = FakeProxy::start("proxy-03", Duration::ZERO);
    for (id, port) in ["proxy-01", "proxy-02"].into_iter().zip(&ports) {
        registered(&gateway, id, &format!("127.0.0.1:{port}"));
    }
    registered(&gateway, "proxy-03", &of_tonic.address());
    for number in 0..MAILBOXES {
        runners.take_for(number, &mailbox(number), "active", 3600, 0);
    }
    let mut seen = [0; 2];
    let mut have = |count: usize| {
        let what = format!("{count} routes");
        let has = |told: &Value| (told["routes"] == count).then(|| told.clone());
        let told = [0, 1].map(|it| foreign[it].event_after(seen[it], &what, has));
        of_tonic.knows(&routes(count));
        seen = foreign.map(|proxy| proxy.events().len());
        told
    };
    have(MAILBOXES);
    for _ in 0..rests {
        // Nothing is told from its beginning until its end.
        runners.take_for(MAILBOXES, &mailbox(MAILBOXES), "active", rest_s, 0);
        let [before, after] = [MAILBOXES + 1, MAILBOXES].map(&mut have);
        for (before, after) in before.into_iter().zip(after) {
            assert_eq!(after["connections"], 1, "{after}");
            let calls = [before, after].map(|told| told["calls"].as_u64().unwrap());
            assert!(calls[1] - calls[0] < MAILBOXES as u64 / 2, "all were told anew: {calls:?}");
        }
        for proxy in proxies(&gateway) {
            assert!(proxy["connected"] == true && proxy["reconnects"] == 0, "{proxy}");
        }
    }
    assert!(!gateway.log().contains("the connection to a proxy broke"), "{}", gateway.log());
}

#[test]
fn a_proxy_whose_host_is_gone_is_noticed_while_nothing_is_told() {
    let Some(hosts) = Hosts::new(2) else { return };
    let ip: Ipv4Addr = hosts.address(1).parse().unwrap();
    let proxy = hosts.on(1, || FakeProxy::start_at("proxy-01", ip, Duration::ZERO));
    hosts.on(0, || {
        let gateway = Gateway::start("embedded:");
        let runners = Runners::new(&gateway, None);
        registered(&gateway, &proxy.id, &proxy.address());
        runners.take_for(0, &mailbox(0), "active", 3600, 0);
        proxy.knows(&routes(1));
        eventually("it to be connected", || {
            (proxies(&gateway)[0]["connected"] == true).then_some(())
        });
        let cut_at = boottime_ns();
        hosts.cut(0, 1);
        eventually("it to be missed", || {
            (proxies(&gateway)[0]["connected"] == false).then_some(())
        });
        let took = Duration::from_nanos(boottime_ns() - cut_at);
        println!("missed after {} ms", took.as_millis());
        assert!(took < NOTICED_WITHIN, "{took:?}");
        hosts.heal();
        eventually("it to be there again", || {
            (proxies(&gateway)[0]["connected"] == true).then_some(())
        });
    });
}

#[test]
fn a_connection_that_breaks_often_is_said_with_its_count_and_cause() {
    const BREAKS: u64 = 3;
    let gateway = Gateway::start("embedded:");
    let runners = Runners::new(&gateway, None);
    let mut proxy = FakeProxy::start("proxy-01", Duration::ZERO);
    registered(&gateway, &proxy.id, &proxy.address());
    runners.take_for(0, &mailbox(0), "active", 3600, 0);
    for _ in 0..BREAKS {
        proxy.knows(&routes(1));
        let log = gateway.log();
        assert!(!log.contains("the connection to a proxy broke"), "{log}");
        proxy.kill();
        proxy.start_again();
    }
    let line = eventually("it to be said", || {
        let log = gateway.log();
        log.lines().find(|line| line.contains("the connection to a proxy broke")).map(str::to_owned)
    });
    for part in ["WARN", "proxy-01", "broke 3 times in the last 10 min", "cause", &proxy.address()]
    {
        assert!(line.contains(part), "{part:?} is not in {line}");
    }
    proxy.knows(&routes(1));
    eventually("the count", || (proxies(&gateway)[0]["reconnects"] == BREAKS).then_some(()));
    let log = gateway.log();
    assert_eq!(log.matches("the connection to a proxy broke").count(), 1, "once a minute: {log}");
}
