//! A Redis that came back empty or older: nothing is granted for as long as lost holds may be valid.

use std::process::Command;

use serde_json::json;
use tenure::wire::{Code, UpstreamState};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Fleet, LOST_TTL_MS, RedisServer, Sentinel, binary, grants_go_on,
    nobody_overlaps, start_agent, until,
};

#[test]
fn nobody_overlaps_when_redis_comes_back_empty() {
    let Fleet { agents, mut redis } = Fleet::start_with(RedisServer::start(), 3, "");
    nobody_overlaps(&agents, || {
        redis.kill();
        redis.start_again();
    });
}

#[test]
fn nobody_overlaps_when_redis_comes_back_with_an_older_dump() {
    let Fleet { agents, mut redis } = Fleet::start_with(RedisServer::start(), 3, "");
    // The dump knows the epoch, and none of the holds.
    let mut http = agents[0].http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "early", &json!({"ttl_ms": LOST_TTL_MS}));
    redis.command::<()>(&["SAVE"]);
    nobody_overlaps(&agents, || {
        redis.kill();
        redis.start_again();
    });
}

#[test]
fn nobody_overlaps_when_a_replica_that_was_behind_takes_over() {
    let mut master = RedisServer::setup().tcp().start();
    let port = master.port().to_string();
    let follows = format!("127.0.0.1 {port}");
    let replica = RedisServer::setup().tcp().option("replicaof", &follows).start();
    until("the replica to be in step", || {
        let info: String = replica.command(&["INFO", "replication"]);
        info.contains("master_link_status:up")
    });
    let sentinel = Sentinel::start(&master);
    sentinel.wait_for_replica();
    let agents: Vec<Agent> = (0..3).map(|host| start_agent(host, &sentinel.url(), "")).collect();
    for (host, agent) in agents.iter().enumerate() {
        let mut http = agent.http();
        let session = http.register(&json!({})).session;
        http.acquire(session, "leader", &format!("early-{host}"), &json!({"ttl_ms": LOST_TTL_MS}));
    }
    until("the replica to know of it", || replica.keys().contains(&"leader:early-2".to_owned()));
    let old = sentinel.master_port();
    // From now on the master refuses the replica, whose data stay as they are.
    replica.command::<()>(&["CONFIG", "SET", "masteruser", "nobody"]);
    replica.command::<()>(&["CONFIG", "SET", "masterauth", "wrong"]);
    replica.command::<()>(&["CLIENT", "KILL", "TYPE", "master"]);
    nobody_overlaps(&agents, || {
        master.kill();
        until("the sentinel to name another", || sentinel.master_port() != old);
    });
}

#[test]
fn a_store_that_was_never_used_is_in_no_quarantine() {
    let redis = RedisServer::start();
    let agent = start_agent(0, &redis.url(), "");
    until("it to be up", || {
        let state = agent.http().status().upstream.state;
        assert_ne!(state, UpstreamState::Quarantined);
        state == UpstreamState::Up
    });
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "role", &json!({}));
    // An agent that starts later knows of no epoch.
    let other = start_agent(1, &redis.url(), "");
    let mut http = other.http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "other", &json!({}));
}

#[test]
fn a_restart_with_its_data_is_no_loss() {
    let redis = RedisServer::setup().durable().start();
    let Fleet { agents, mut redis } = Fleet::start_with(redis, 2, "");
    let mut http = agents[0].http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "role", &json!({}));
    redis.kill();
    redis.start_again();
    grants_go_on(&agents);
}

/// Two agents of a Redis that lost a hold of ten minutes.
fn lossy() -> Fleet {
    let mut fleet = Fleet::start();
    let mut http = fleet.agents[0].http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "long", &json!({"ttl_ms": 600_000}));
    fleet.redis.kill();
    fleet.redis.start_again();
    fleet
}

#[test]
fn every_agent_names_the_quarantine_and_any_of_them_ends_it_for_all() {
    let fleet = lossy();
    let mut waiter = Campaigner::start(&fleet.agents[1], "waiter");
    for agent in &fleet.agents {
        until("it to be named", || {
            agent.http().status().upstream.state == UpstreamState::Quarantined
        });
        let ready = agent.http().get("/readyz").problem(Code::UpstreamUnavailable);
        assert!(ready.detail.contains("the upstream lost data"), "{}", ready.detail);
        let told = agent.http().status().upstream.last_error.expect("the status says why");
        assert!(told.contains("the upstream lost data"), "{told}");
    }
    let mut http = fleet.agents[1].http();
    let session = http.register(&json!({})).session;
    for kind in ["leader", "lease", "semaphore", "master"] {
        let refused = http.ask(session, kind, "other", &json!({}));
        let problem = refused.problem(Code::UpstreamUnavailable);
        assert!(problem.retry_after_ms.is_some_and(|ms| ms > 60_000), "{kind}: {problem:?}");
    }
    let kinds = ["leader", "lease", "semaphore", "master"];
    let waits = kinds.map(|kind| waiter.queue(kind, "waited-for", &json!({})));
    let mut command = Command::new(binary("tenured"));
    command.args(["quarantine", "end", "--yes", "--socket"]).arg(fleet.agents[0].socket());
    let output = command.output().expect("it can be run");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("before its time"), "{told}");
    for wait in waits {
        waiter.events.granted(wait);
    }
    for agent in &fleet.agents {
        until("it to grant again", || agent.http().status().upstream.state == UpstreamState::Up);
    }
    // An agent that finds out after that does not begin it again.
    let mut http = fleet.agents[0].http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "long", &json!({}));
}

#[test]
fn the_loss_of_the_mark_is_a_loss() {
    let mut fleet = lossy();
    let quarantined = |agent: &Agent| {
        until("it to be named", || {
            agent.http().status().upstream.state == UpstreamState::Quarantined
        });
    };
    fleet.agents.iter().for_each(quarantined);
    let first: String = fleet.redis.command(&["HGET", "tenure:epoch", "id"]);
    fleet.redis.kill();
    fleet.redis.start_again();
    until("it to be marked again", || {
        let id: Option<String> = fleet.redis.command(&["HGET", "tenure:epoch", "id"]);
        id.is_some_and(|id| id != first)
    });
    fleet.agents.iter().for_each(quarantined);
}

#[test]
fn everything_is_flushed_under_an_idle_agent() {
    let fleet = Fleet::start();
    let mut http = fleet.agents[0].http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "role", &json!({"ttl_ms": 600_000}));
    fleet.redis.command::<()>(&["FLUSHALL"]);
    // Both agents check now and then, and the first claim would notice the loss, too.
    for agent in &fleet.agents {
        until("it to be named", || {
            agent.http().status().upstream.state == UpstreamState::Quarantined
        });
    }
}
