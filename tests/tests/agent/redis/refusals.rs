//! A Redis that answers, but not as an agent needs it.

use serde_json::json;
use tenure::wire::{Code, UpstreamState};
use tenure_stores::redis::examine::acl_rules;
use tenure_stores::redis::layout::Layout;
use tenure_tests::harness::{
    Agent, Campaigner, Client, Holder, RedisServer, Siege, start_agent, until,
};

/// Asks for a leadership, which must be refused because of Redis; the reason.
#[track_caller]
fn refused(agent: &Agent) -> String {
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let answer = http.ask(session, "leader", "role", &json!({}));
    let problem = answer.problem(Code::UpstreamUnavailable);
    assert!(problem.retry_after_ms.is_some() && answer.header("retry-after").is_some());
    http.end(session);
    problem.detail
}

/// Waits until Redis gives an agent what it asks for.
#[track_caller]
fn works(agent: &Agent) {
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    until("Redis to be of use", || http.ask(session, "leader", "role", &json!({})).status == 200);
    http.end(session);
}

#[test]
fn there_are_too_many_clients() {
    const OTHERS: usize = 10;
    let siege = Siege::begin(RedisServer::start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    let mut control = siege.redis.connect();
    let others: Vec<redis::Connection> = (0..OTHERS).map(|_| siege.redis.connect()).collect();
    let mut say = |words: &[&str]| {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query::<redis::Value>(&mut control)
    };
    // Present holders may stay; no others come in.
    say(&["CONFIG", "SET", "maxclients", &(OTHERS + 1).to_string()]).expect("it can be set");
    for proxy in &siege.proxies {
        proxy.cut();
    }
    let jeopardy = long.events.jeopardy(long.held.hold);
    assert!(jeopardy.cause.contains("max number of clients"), "{}", jeopardy.cause);
    let reason = refused(&siege.agents[1]);
    assert!(reason.contains("max number of clients"), "{reason}");
    say(&["CONFIG", "SET", "maxclients", "1000"]).expect("it can be set");
    drop(others);
    until("the hold to be safe", || long.events.has("safe", long.held.hold));
    siege.everybody_gets_another_turn();
    assert!(!long.has_lost());
    long.leave();
    siege.end();
}

#[test]
fn there_is_no_memory_left() {
    let siege = Siege::begin(RedisServer::start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 3000);
    let _: () = siege.redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let reason = refused(&siege.agents[1]);
    assert!(reason.contains("memory"), "{reason}");
    // Beats take no memory.
    let before = long.held.valid_until_boottime_ns + 1_000_000_000;
    until("the hold to be beaten", || tenure_tests::harness::boottime_ns() > before);
    assert!(!long.has_lost(), "{:?}", long.events.all());
    let _: () = siege.redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    siege.everybody_gets_another_turn();
    long.leave();
    siege.end();
}

#[test]
fn the_password_is_wrong() {
    let redis = RedisServer::setup().password("right").start();
    let url = redis.url().replace("redis+unix://", "redis+unix://:hunter2@");
    let agent = start_agent(0, &url, "");
    let reason = refused(&agent);
    assert!(reason.contains("password"), "{reason}");
    let upstream = agent.http().status().upstream;
    assert_eq!(upstream.state, UpstreamState::Down);
    let error = upstream.last_error.expect("it says why");
    assert!(error.contains("password"), "{error}");
    assert!(!error.contains("hunter2") && !agent.log().contains("hunter2"));
    // Put right on the other side, it works without a restart.
    let _: () = redis.command(&["CONFIG", "SET", "requirepass", "hunter2"]);
    works(&agent);
}

#[test]
fn there_is_no_password() {
    let redis = RedisServer::setup().password("right").start();
    let agent = start_agent(0, &redis.url(), "");
    let reason = refused(&agent);
    assert!(reason.contains("password"), "{reason}");
    let _: () = redis.command(&["CONFIG", "SET", "requirepass", ""]);
    works(&agent);
}

#[test]
fn there_is_no_redis() {
    let mut redis = RedisServer::start();
    let url = redis.url();
    redis.kill();
    let agent = start_agent(0, &url, "");
    refused(&agent);
    assert_eq!(agent.http().status().upstream.state, UpstreamState::Down);
    // A waiter is not refused by what may be over in a moment.
    let mut waiter = Campaigner::start(&agent, "waiter");
    let waiting = waiter.queue("leader", "role", &json!({}));
    redis.start_again();
    waiter.events.granted(waiting);
}

#[test]
fn the_rights_are_too_narrow() {
    let redis = RedisServer::start();
    let narrow = ["ACL", "SETUSER", "tenure", "on", ">hunter2", "~prism:*", "&*", "+@all"];
    let _: () = redis.command(&narrow);
    let url = redis.url().replace("redis+unix://", "redis+unix://tenure:hunter2@");
    let agent = start_agent(0, &url, "");
    let reason = refused(&agent);
    assert!(reason.contains("permission") || reason.contains("right"), "{reason}");
    assert!(!reason.contains("hunter2") && !agent.log().contains("hunter2"));
    let _: () = redis.command(&["ACL", "SETUSER", "tenure", "~*"]);
    works(&agent);
}

#[test]
fn the_documented_rights_are_enough() {
    let redis = RedisServer::start();
    let rules = acl_rules(&Layout::default());
    let mut rights = vec!["ACL", "SETUSER", "tenure", "on", ">secret"];
    rights.extend(rules.split(' '));
    let _: () = redis.command(&rights);
    let url = redis.url().replace("redis+unix://", "redis+unix://tenure:secret@");
    let agent = start_agent(0, &url, "");
    for tenant in ["default", "acme"] {
        let register = json!({"tenant": tenant});
        let [mut holder, mut waiter] =
            ["holder", "waiter"].map(|name| Campaigner::start_with(&agent, name, &register));
        for kind in ["leader", "master", "lease", "semaphore"] {
            let held = holder.acquire(kind, "role", &json!({}));
            let waiting = waiter.queue(kind, "role", &json!({}));
            holder.release(held.hold);
            waiter.events.granted(waiting);
        }
    }
    assert_eq!(agent.http().status().upstream.last_error, None);
}

#[test]
fn the_server_is_a_read_only_replica() {
    let master = RedisServer::setup().tcp().start();
    let replica =
        RedisServer::setup().option("replicaof", &format!("127.0.0.1 {}", master.port())).start();
    let agent = start_agent(0, &replica.url(), "");
    let reason = refused(&agent);
    assert!(reason.contains("replica"), "{reason}");
    let _: () = replica.command(&["REPLICAOF", "NO", "ONE"]);
    works(&agent);
}

#[test]
fn the_server_becomes_a_replica_for_a_while() {
    let siege = Siege::begin(RedisServer::start());
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    // A replica without a master: it keeps its data, and takes no writes.
    let _: () = siege.redis.command(&["REPLICAOF", "127.0.0.1", "1"]);
    long.is_in_jeopardy_and_safe_again(|| {
        let _: () = siege.redis.command(&["REPLICAOF", "NO", "ONE"]);
    });
    siege.everybody_gets_another_turn();
    long.leave();
    siege.end();
}
