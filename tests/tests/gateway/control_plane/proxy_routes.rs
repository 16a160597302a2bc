//! The routes of mailboxes reach proxies and streams, whatever becomes of gateways and of other proxies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_tests::harness::{
    Campaigner, FakeProxy, Gateway, Key, RedisServer, RouteStream, Runners, boottime_ns, channel,
    eventually, register, runner, start_agent, within,
};
use tokio::runtime::Runtime;
use tonic::{Code, Status};

type Routes = BTreeMap<String, (String, String)>;

fn route(routes: &mut Routes, mailbox: &str, number: usize, status: &str) {
    routes.insert(mailbox.to_owned(), (runner(number), status.to_owned()));
}

fn mailbox(number: usize) -> String {
    format!("mail-{number}@proxy-01")
}

fn on<T>(future: impl Future<Output = T>) -> T {
    Runtime::new().unwrap().block_on(within("a gRPC call", future))
}

#[track_caller]
fn registered(gateway: &Gateway, key: Option<&Key>, proxy: &FakeProxy) {
    // A server that has just started may not listen yet; the gateway tries again.
    let ack = on(register(gateway, key, &proxy.id, &proxy.address())).unwrap();
    assert!(ack.success, "{}", ack.message);
}

/// Prints how long after the change the proxies were told of it.
fn print_lags(what: &str, mut lags: Vec<u64>) {
    lags.sort_unstable();
    let at = |share: usize| lags.get(lags.len() * share / 100).map_or(0, |ns| ns / 1_000_000);
    let last = lags.last().map_or(0, |ns| ns / 1_000_000);
    println!("{what}: p50 {} ms, p90 {} ms, p99 {} ms, last {last} ms", at(50), at(90), at(99));
}

#[test]
fn dead_and_slow_proxies_delay_nobody_and_are_right_when_they_return() {
    const PROXIES: usize = 50;
    const DEAD: usize = 10;
    const SLOW: usize = 5;
    let gateway = Gateway::start("embedded:");
    let runners = Runners::new(&gateway, None);
    let mut proxies: Vec<FakeProxy> = (0..PROXIES)
        .map(|number| {
            let is_slow = (DEAD..DEAD + SLOW).contains(&number);
            let delay = if is_slow { Duration::from_secs(3) } else { Duration::ZERO };
            FakeProxy::start(&format!("proxy-{number:02}"), delay)
        })
        .collect();
    for proxy in &proxies {
        registered(&gateway, None, proxy);
    }
    let mut expected = Routes::new();
    runners.take(1, &mailbox(1), "active");
    route(&mut expected, &mailbox(1), 1, "active");
    proxies.iter().for_each(|proxy| proxy.knows(&expected));

    proxies[..DEAD].iter_mut().for_each(FakeProxy::kill);
    let mut lags = Vec::new();
    for number in 2..22 {
        let began = boottime_ns();
        runners.take(number, &mailbox(number), "active");
        route(&mut expected, &mailbox(number), number, "active");
        for proxy in &proxies[DEAD + SLOW..] {
            proxy.knows(&expected);
            lags.push(proxy.told().lock().at[&mailbox(number)].saturating_sub(began));
        }
    }
    print_lags("35 of 50 proxies, 10 dead and 5 slow", lags);
    runners.release(1, &mailbox(1));
    expected.remove(&mailbox(1));
    runners.take(2, &mailbox(2), "degraded");
    route(&mut expected, &mailbox(2), 2, "degraded");
    proxies[DEAD..].iter().for_each(|proxy| proxy.knows(&expected));

    let began = boottime_ns();
    proxies[..DEAD].iter_mut().for_each(FakeProxy::start_again);
    proxies.iter().for_each(|proxy| proxy.knows(&expected));
    let last = |proxy: &FakeProxy| proxy.told().lock().at.values().max().copied().unwrap_or(0);
    let lags = proxies[..DEAD].iter().map(|proxy| last(proxy).saturating_sub(began));
    print_lags("10 proxies that came back", lags.collect());

    let overview = eventually("the overview to show all of them", || {
        let (_, answer) = gateway.call("GET /v1/overview", "").unwrap();
        let overview: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        let shown = &overview["control_plane"];
        let proxies = shown["proxies"].as_array()?;
        let is_right = |it: &&Value| it["connected"] == true && it["lacks"] == 0;
        (proxies.iter().filter(is_right).count() == PROXIES).then(|| shown.clone())
    });
    assert_eq!((&overview["mailboxes"], &overview["runners"]), (&json!(20), &json!(20)));
    assert_eq!(overview["proxies"][0]["partitions"], json!([0, 4]));
    let number = |metrics: &str, name: &str| -> Option<u64> {
        let name = format!("tenured_gateway_{name} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
    };
    let metrics = eventually("the numbers to be those of all", || {
        let (_, metrics) = gateway.call("GET /metrics", "").unwrap();
        let now = ["proxies", "proxies_connected", "proxies_behind", "route_streams"];
        let is_right = now.map(|name| number(&metrics, name)) == [50, 50, 0, 0].map(Some);
        is_right.then_some(metrics)
    });
    let pushes =
        |outcome| number(&metrics, &format!("route_pushes_total{{outcome=\"{outcome}\"}}"));
    let [delivered, failed] = ["delivered", "failed"].map(|it| pushes(it).unwrap());
    assert!(delivered >= 20 * 50 && failed > 0, "{delivered} {failed}");
    assert_eq!((pushes("refused"), pushes("late")), (Some(0), Some(0)));
    assert_eq!(number(&metrics, "route_lag_seconds_count"), Some(delivered));

    // One that is started again, while nothing changes, is told everything.
    proxies[PROXIES - 1].kill();
    proxies[PROXIES - 1].start_again();
    proxies[PROXIES - 1].knows(&expected);
}

/// What a stream tells of a mailbox from its taking until it is gone, if its ttl and its grace are so many seconds.
fn life(gateway: &Gateway, runners: &Runners, seconds: u64) -> Vec<String> {
    on(async {
        let mut stream = RouteStream::open(channel(gateway), None).await.unwrap();
        let began = boottime_ns();
        runners.take_for(1, &mailbox(1), "active", seconds, seconds);
        let mut told = Vec::new();
        while told.is_empty() || !stream.routes.is_empty() {
            stream.next().await.unwrap();
            let status = stream.routes.get(&mailbox(1)).map(|(_, status)| status.clone());
            println!("{status:?} after {} ms", (boottime_ns() - began) / 1_000_000);
            told.extend(status);
        }
        told
    })
}

#[test]
fn a_route_is_expiring_at_the_ttl_and_gone_after_its_grace() {
    let redis = RedisServer::start();
    for store in ["embedded:", &redis.url()] {
        let gateway = Gateway::start(store);
        let runners = Runners::new(&gateway, None);
        let proxy = FakeProxy::start("proxy-01", Duration::ZERO);
        registered(&gateway, None, &proxy);
        let lives = [2, 10].into_iter().map(|seconds| life(&gateway, &runners, seconds));
        // Whoever reads late misses what has passed: a busy machine is given more time.
        let is_seen = lives.into_iter().any(|told| told == ["active", "expiring"]);
        assert!(is_seen, "{store}");
        proxy.knows(&Routes::new());
    }
}

#[test]
fn a_proxy_of_the_configuration_is_told_without_registering() {
    let proxy = FakeProxy::start("proxy-01", Duration::ZERO);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    let section = format!("[[proxies]]\nid = \"proxy-01\"\naddress = \"{}\"\n", proxy.address());
    std::fs::write(&file, section).unwrap();
    let config = format!("--config={}", file.display());
    let gateway = Gateway::start_by("embedded:", &[], &[config]);
    let runners = Runners::new(&gateway, None);
    runners.take(1, &mailbox(1), "active");
    let mut expected = Routes::new();
    route(&mut expected, &mailbox(1), 1, "active");
    proxy.knows(&expected);
    // Nobody else can have its name.
    let refused = on(register(&gateway, None, "proxy-01", "127.0.0.1:1"));
    let message = refused.map_or_else(|status| status.message().to_owned(), |ack| ack.message);
    assert!(message.contains("in the gateway's configuration"), "{message}");
}

/// Takes and gives up mailboxes until it is told to stop; what is left.
fn churn(gateway: &Gateway, stop: &AtomicBool) -> Routes {
    let runners = Runners::new(gateway, None);
    let mut left = Routes::new();
    for number in 1..60_000 {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mailbox = mailbox(number % 20);
        if left.remove(&mailbox).is_some() {
            runners.release(number - 20, &mailbox);
        }
        runners.take(number, &mailbox, "active");
        route(&mut left, &mailbox, number, "active");
    }
    left
}

#[test]
fn versions_never_go_back_over_gateways_and_their_ends() {
    let redis = RedisServer::start();
    let mut mortal = Gateway::start(&redis.url());
    let gateway = Gateway::start(&redis.url());
    let proxy = FakeProxy::start("proxy-01", Duration::ZERO);
    registered(&mortal, None, &proxy);
    let stop = AtomicBool::new(false);
    let expected = std::thread::scope(|scope| {
        let churning = scope.spawn(|| churn(&gateway, &stop));
        let stream = on(async {
            let mut stream = RouteStream::open(channel(&mortal), None).await.unwrap();
            for round in 0..12 {
                let there = stream.version + 4;
                while stream.version < there {
                    stream.next().await.unwrap();
                }
                if round % 4 == 3 {
                    mortal.kill();
                    // Messages on their way may come still; the end comes after it.
                    while stream.next().await.is_ok() {}
                    stream.go_on_at(channel(&gateway), None).await.unwrap();
                    mortal.start_again();
                } else {
                    let next = if round % 4 == 0 { &gateway } else { &mortal };
                    stream.go_on_at(channel(next), None).await.unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
            stream
        });
        let (expected, mut stream) = (churning.join().unwrap(), stream);
        // Streams live on the runtime that opened them.
        on(async {
            for next in [&mortal, &gateway] {
                stream.go_on_at(channel(next), None).await.unwrap();
                stream.until(&expected).await;
            }
        });
        expected
    });
    proxy.knows(&expected);
    // The gateway at which it registered is gone: the other one goes on.
    mortal.kill();
    let runners = Runners::new(&gateway, None);
    let mut expected = expected;
    runners.take(2000, "late@proxy-01", "active");
    route(&mut expected, "late@proxy-01", 2000, "active");
    proxy.knows(&expected);
}

#[test]
fn a_thousand_streams_are_told_and_end_with_their_key() {
    const STREAMS: usize = 1000;
    const PER_CHANNEL: usize = 50;
    let (key, other) = (Key::within("watcher", &["--right", "proxy"]), Key::new("other"));
    let gateway = Gateway::start_with("embedded:", &[&key, &other]);
    let runners = Runners::new(&gateway, Some(&other));
    on(async {
        let mut streams = Vec::new();
        for _ in 0..STREAMS / PER_CHANNEL {
            let channel = channel(&gateway);
            for _ in 0..PER_CHANNEL {
                streams.push(RouteStream::open(channel.clone(), Some(&key)).await.unwrap());
            }
        }
        let mut expected = Routes::new();
        for number in 1..4 {
            let began = boottime_ns();
            runners.take(number, &mailbox(number), "active");
            route(&mut expected, &mailbox(number), number, "active");
            let mut lags = Vec::new();
            for stream in &mut streams {
                stream.until(&expected).await;
                lags.push(boottime_ns() - began);
            }
            print_lags("1000 streams, read one after the other", lags);
        }
        gateway.set_keys(&[&other]);
        for mut stream in streams {
            let end = loop {
                if let Err(end) = stream.next().await {
                    break end;
                }
            };
            assert_eq!(end.code(), Code::Unauthenticated, "{end}");
        }
        let refused = RouteStream::open(channel(&gateway), Some(&key)).await.err();
        assert_eq!(refused.map(|status| status.code()), Some(Code::Unauthenticated));
    });
}

#[test]
fn leases_of_agents_show_and_a_stopping_gateway_says_so() {
    let redis = RedisServer::start();
    let mut gateway = Gateway::start(&redis.url());
    let agent = start_agent(0, &redis.url(), "");
    let proxy = FakeProxy::start("proxy-01", Duration::ZERO);
    registered(&gateway, None, &proxy);
    let mut program = Campaigner::start(&agent, "runner-7");
    let attributes = json!({"address": "10.0.0.7:8982", "proxy_id": "proxy-01", "partition": 7});
    let held = program.acquire("lease", "audit@proxy-01", &json!({"attributes": attributes}));
    let mut expected = Routes::new();
    route(&mut expected, "audit@proxy-01", 7, "active");
    proxy.knows(&expected);
    on(async {
        let mut stream = RouteStream::open(channel(&gateway), None).await.unwrap();
        let first = stream.next().await.unwrap();
        assert!(first.is_snapshot && first.updated.len() == 1, "{first:?}");
        let route = &first.updated[0];
        assert_eq!((route.partition, &*route.address), (7, "10.0.0.7:8982"));
        assert_eq!((&*route.proxy_id, route.fencing_token), ("proxy-01", held.token));
        program.release(held.hold);
        stream.until(&Routes::new()).await;
        gateway.terminate();
        let end: Result<_, Status> = stream.next().await;
        assert_eq!(end.unwrap_err().code(), Code::Unavailable);
    });
    proxy.knows(&Routes::new());
    assert!(gateway.ended().success());
}

#[test]
fn a_proxy_is_told_of_the_tenant_of_its_key_and_by_its_owner_alone() {
    let other_tenant = Key::within("acme", &["--tenant", "acme", "--right", "proxy"]);
    let (first, second) =
        (Key::within("first", &["--right", "proxy"]), Key::within("second", &["--right", "proxy"]));
    let some_names = Key::within("narrow", &["--name", "ci/*", "--right", "proxy"]);
    let keys = [&other_tenant, &first, &second, &some_names];
    let gateway = Gateway::start_with("embedded:", &keys);
    let proxies = ["a", "b"].map(|id| FakeProxy::start(id, Duration::ZERO));
    registered(&gateway, Some(&first), &proxies[0]);
    registered(&gateway, Some(&other_tenant), &proxies[1]);
    Runners::new(&gateway, Some(&first)).take(1, &mailbox(1), "active");
    let mut expected = Routes::new();
    route(&mut expected, &mailbox(1), 1, "active");
    proxies[0].knows(&expected);
    assert!(proxies[1].told().lock().at.is_empty());

    let address = proxies[0].address();
    let taken = eventually("the id to be known", || {
        let ack = on(register(&gateway, Some(&second), "a", &address)).unwrap();
        (!ack.success).then_some(ack.message)
    });
    assert!(taken.contains("another principal"), "{taken}");
    for (key, id, address, code) in [
        (Some(&some_names), "c", "h:1", Code::PermissionDenied),
        (Some(&first), "c", "nowhere", Code::InvalidArgument),
        (Some(&first), "", "h:1", Code::InvalidArgument),
        (None, "c", "h:1", Code::Unauthenticated),
    ] {
        let refused = on(register(&gateway, key, id, address)).unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    // Its key is taken away: it is told no more.
    gateway.set_keys(&[&second, &other_tenant]);
    eventually("it to be dropped", || {
        gateway.log().contains("a proxy is told no more").then_some(())
    });
}

#[test]
fn no_more_proxies_register_than_there_are_partitions() {
    let key = Key::within("many", &["--right", "proxy", "--proxies-max", "300"]);
    let gateway = Gateway::start_with("embedded:", &[&key]);
    let key = Some(&key);
    on(async {
        for number in 0..256 {
            let id = format!("proxy-{number:03}");
            let ack = register(&gateway, key, &id, "127.0.0.1:1").await.unwrap();
            assert!(ack.success, "{number}: {}", ack.message);
            let own = ack.partition_ranges[0];
            // It is the last one as yet.
            let each = 256 / (number + 1);
            assert_eq!((own.start, own.end), (each * number, 255), "{number}");
        }
        let refused = register(&gateway, key, "proxy-256", "127.0.0.1:1").await.unwrap();
        let rule = "this tenant has 256 proxies, as many as there are partitions";
        assert_eq!((refused.success, &*refused.message), (false, rule));
        // One that is known registers again.
        assert!(register(&gateway, key, "proxy-007", "127.0.0.1:1").await.unwrap().success);
    });
}

#[test]
fn routes_that_end_together_are_not_asked_for_one_by_one() {
    const MAILBOXES: usize = 100;
    // All are there before the first ends, on a busy machine too.
    const TTL_S: u64 = 24;
    let gateway = Gateway::start("embedded:");
    let runners = Runners::new(&gateway, None);
    let proxy = FakeProxy::start("proxy-01", Duration::ZERO);
    registered(&gateway, None, &proxy);
    let questions = || -> u64 {
        let (_, metrics) = gateway.call("GET /metrics", "").unwrap();
        let name = "tenured_gateway_store_latency_seconds_count ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(name));
        count.and_then(|count| count.parse().ok()).expect("it is a number")
    };
    let mut expected = Routes::new();
    for number in 0..MAILBOXES {
        runners.take_for(number, &mailbox(number), "active", TTL_S, 0);
        route(&mut expected, &mailbox(number), number, "active");
    }
    proxy.knows(&expected);
    for half in [0..MAILBOXES / 2, MAILBOXES / 2..MAILBOXES] {
        runners.renew(half.map(|number| (number, mailbox(number))), TTL_S);
    }
    let before = questions();
    proxy.knows(&Routes::new());
    let asked = questions() - before;
    assert!(asked < MAILBOXES as u64 / 2, "{asked} questions for {MAILBOXES} routes");
}
