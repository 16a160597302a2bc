//! Agents that follow the master that Sentinel names.

use serde_json::json;
use tenure_tests::harness::{Client, Holder, RedisServer, Sentinel, Siege, until};

/// A master and its replica, in step.
#[track_caller]
fn pair() -> (RedisServer, RedisServer) {
    let master = RedisServer::setup().tcp().start();
    let replica = RedisServer::setup()
        .tcp()
        .option("replicaof", &format!("127.0.0.1 {}", master.port()))
        .start();
    until("the replica to be in step", || {
        let info: String = replica.command(&["INFO", "replication"]);
        info.contains("master_link_status:up")
    });
    (master, replica)
}

#[test]
fn agents_follow_a_failover() {
    let (mut master, replica) = pair();
    let sentinel = Sentinel::start(&master);
    let siege = Siege::begin_at(replica, &sentinel.url());
    let long = Holder::of_leadership(&siege.agents[0], "long", 60_000);
    // It has to have reached the replica: what has not is lost with the master.
    until("the replica to know of it", || siege.redis.keys().contains(&"leader:long".to_owned()));
    let old = sentinel.master_port();
    master.kill();
    until("the sentinel to name another", || sentinel.master_port() != old);
    assert_eq!(sentinel.master_port(), siege.redis.port());
    siege.everybody_gets_another_turn();
    until("the hold to be beaten there", || {
        long.events.has("safe", long.held.hold) || !long.events.has("jeopardy", long.held.hold)
    });
    assert!(!long.has_lost(), "the replica knew of it");
    let standing = siege.agents[1].http().standing("leader", "long");
    assert_eq!(standing.holders[0].token, long.held.token);
    long.leave();
    // Replication is asynchronous: a grant of the last instant may be gone, and granted again. Then
    // tokens tell the two apart, which is what the upstream's guarantee says.
    siege.end_without_exclusion();
}

#[test]
fn an_agent_says_what_failover_can_do() {
    let (master, _replica) = pair();
    let sentinel = Sentinel::start(&master);
    let agent = tenure_tests::harness::start_agent(0, &sentinel.url(), "");
    let upstream = agent.http().status().upstream;
    assert_eq!(upstream.kind, "redis");
    assert!(upstream.guarantee.contains("failover"), "{}", upstream.guarantee);
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "role", &json!({}));
    assert!(master.keys().contains(&"leader:role".to_owned()), "it writes to the master");
}
