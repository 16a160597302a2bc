//! The faults that other tests rely on happen: a fault that does nothing proves nothing.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use redis::{
    Connection, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    RedisResult,
};
use serde_json::json;
use tempfile::TempDir;
use tenure_tests::harness::{
    Contents, DEADLINE, Direction, Fence, Proxy, Python, RedisServer, boottime_ns, until,
};

const SILENCE: Duration = Duration::from_millis(200);

fn through(proxy: &Proxy) -> Connection {
    try_through(proxy).expect("the proxy lets it through")
}

fn try_through(proxy: &Proxy) -> RedisResult<Connection> {
    let url = proxy.url();
    let path = url.strip_prefix("redis+unix://").and_then(|rest| rest.strip_suffix("?db=0"));
    let address = ConnectionAddr::Unix(path.expect("a Unix socket").into());
    // Agents speak RESP3, in which news are frames of their own kind.
    let settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let info = address.into_connection_info()?.set_redis_settings(settings);
    let connection = redis::Client::open(info)?.get_connection()?;
    connection.set_read_timeout(Some(SILENCE))?;
    Ok(connection)
}

fn incr(connection: &mut Connection, key: &str) -> RedisResult<u64> {
    redis::cmd("INCR").arg(key).query(connection)
}

fn value(redis: &RedisServer, key: &str) -> Option<u64> {
    redis.command(&["GET", key])
}

#[test]
fn a_cut_reply_is_one_whose_request_was_carried_out() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let (mut first, mut second) = (through(&proxy), through(&proxy));
    proxy.cut_reply_to("target");
    assert_eq!(incr(&mut first, "other").unwrap(), 1);
    let error = incr(&mut first, "target").unwrap_err();
    assert!(!error.is_timeout(), "{error}");
    proxy.wait_replies_cut(1);
    assert_eq!(value(&redis, "target"), Some(1), "it was carried out");
    assert_eq!(incr(&mut second, "target").unwrap(), 2, "only one is cut");
}

#[test]
fn what_vanishes_does_so_in_its_direction() {
    let redis = RedisServer::start();
    for (direction, carried_out) in [(Direction::Requests, None), (Direction::Replies, Some(1))] {
        let proxy = Proxy::before(&redis);
        let mut connection = through(&proxy);
        proxy.swallow(direction);
        assert!(incr(&mut connection, "key").unwrap_err().is_timeout());
        assert_eq!(value(&redis, "key"), carried_out, "{direction:?}");
        proxy.heal();
        assert!(incr(&mut connection, "key").is_err(), "it is closed");
        assert!(incr(&mut through(&proxy), "key").is_ok());
        let _: () = redis.command(&["DEL", "key"]);
    }
}

#[test]
fn cut_connections_are_closed_and_refused_ones_stay_out() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let mut connection = through(&proxy);
    proxy.cut();
    assert!(incr(&mut connection, "key").is_err());
    assert!(incr(&mut through(&proxy), "key").is_ok());
    proxy.refuse();
    assert!(try_through(&proxy).is_err());
    proxy.heal();
    assert!(incr(&mut through(&proxy), "key").is_ok());
}

#[test]
fn replies_are_delayed() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let mut connection = through(&proxy);
    proxy.delay(SILENCE / 2);
    let before = boottime_ns();
    incr(&mut connection, "key").unwrap();
    assert!(boottime_ns() - before >= (SILENCE / 2).as_nanos() as u64);
}

#[test]
fn news_vanish_and_replies_pass() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let (heard, hear) = sync_channel(16);
    let mut connection = through(&proxy);
    let listener = std::thread::spawn(move || {
        let mut subscription = connection.as_pubsub();
        subscription.subscribe("channel").expect("a confirmation is no news");
        heard.send("subscribed".to_owned()).expect("the test listens");
        subscription.set_read_timeout(Some(DEADLINE)).expect("a socket has timeouts");
        while let Ok(message) = subscription.get_message() {
            heard.send(message.get_payload().expect("text")).expect("the test listens");
        }
    });
    assert_eq!(hear.recv_timeout(DEADLINE).unwrap(), "subscribed");
    let publish = |text| redis.command::<u64>(&["PUBLISH", "channel", text]);
    assert_eq!(publish("first"), 1);
    assert_eq!(hear.recv_timeout(DEADLINE).unwrap(), "first");
    proxy.swallow_news();
    assert_eq!(publish("second"), 1);
    assert!(incr(&mut through(&proxy), "key").is_ok(), "replies pass");
    proxy.cut();
    listener.join().expect("it ends with its connection");
    assert!(hear.try_recv().is_err(), "the second has vanished");
}

#[test]
fn data_survives_a_kill_only_where_it_is_to() {
    for durable in [true, false] {
        let setup = RedisServer::setup();
        let mut redis = if durable { setup.durable().start() } else { setup.start() };
        let _: () = redis.command(&["SET", "key", "1", "EX", "600"]);
        redis.kill();
        redis.start_again();
        let dump = redis.dump();
        assert_eq!(dump.contains_key("key"), durable);
        if let Some(entry) = dump.get("key") {
            assert_eq!(entry.contents, Contents::Text("1".to_owned()));
            assert!(entry.expires_in_ms.is_some_and(|ms| ms <= 600_000));
        }
    }
}

#[test]
fn a_stopped_server_says_nothing() {
    let mut redis = RedisServer::start();
    let mut connection = redis.connect();
    connection.set_read_timeout(Some(SILENCE)).unwrap();
    redis.pause();
    assert!(incr(&mut connection, "key").unwrap_err().is_timeout());
    redis.resume();
    until("it to speak again", || value(&redis, "key") == Some(1));
}

#[test]
#[should_panic(expected = "late writes")]
fn two_at_a_guarded_resource_are_noticed() {
    let fence = Fence::default();
    assert!(fence.write(2, || true));
    assert!(!fence.write(1, || false), "who knows that it is over does not write");
    fence.refused_nobody();
    assert!(fence.write(1, || true), "who believes to hold it does");
    fence.refused_nobody();
}

#[test]
fn one_too_many_behind_a_permit_is_noticed() {
    let redis = RedisServer::start();
    let slots = TempDir::new().expect("a temporary directory can be made");
    let cycle = json!({"name": "gpu", "value": 2, "slots": slots.path(), "stay_ms": 0});
    let mut package = Python::package(&redis.python_url());
    let turns = package.begin("cycle", &cycle);
    package.event(0, "entered");
    let locked: Vec<_> = (0..2)
        .map(|slot| {
            let path = slots.path().join(format!("slot-{slot}"));
            let file = std::fs::File::create(path).expect("the directory is ours");
            // Waits until the package is outside.
            nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive)
                .unwrap_or_else(|(_, error)| panic!("{error}"))
        })
        .collect();
    package.event(0, "too_many");
    drop(locked);
    package.call("stop", &json!({}));
    package.result(turns);
}
