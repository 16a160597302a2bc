//! A store that answers and refuses writes is down, for every reason and with that reason, until it takes them again.

use std::cell::RefCell;

use serde_json::json;
use tenure::wire::{Check, Diagnosis, UpstreamState, Verdict};
use tenure_stores::redis::examine::acl_rules;
use tenure_stores::redis::layout::Layout;
use tenure_tests::harness::{
    Agent, Campaigner, Client, Gateway, Postgres, RedisServer, start_agent, until,
};

fn state(agent: &Agent) -> UpstreamState {
    agent.http().status().upstream.state
}

#[track_caller]
fn is_up(agent: &Agent) {
    until("the agent to be up", || state(agent) == UpstreamState::Up);
}

/// Asks for a hold, which must be refused.
#[track_caller]
fn is_refused(agent: &Agent) {
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let refused = http.ask(session, "leader", "other", &json!({}));
    assert!(refused.status >= 400, "{}", refused.text());
    http.end(session);
}

/// Waits until status, readiness, metrics and doctor say that the store refuses writes, in these words.
#[track_caller]
fn is_told(agent: &Agent, check: &str, words: &str) {
    let mut last = String::new();
    until(&format!("the agent to be down by {words:?}"), || {
        let upstream = agent.http().status().upstream;
        let error = upstream.last_error.unwrap_or_default();
        if error != last {
            eprintln!("{:?}: {error}", upstream.state);
            last = error;
        }
        upstream.state == UpstreamState::Down
            && last.contains("refuses writes: ")
            && last.contains(words)
            && upstream.since_ms.is_some()
    });
    let ready: serde_json::Value = agent.http().get("/readyz").expect(200);
    assert_eq!(ready["upstream"], "down");
    let metrics = agent.http().get("/metrics").text();
    assert!(metrics.contains("tenured_upstream_state{state=\"down\"} 1"), "{metrics}");
    let checks = agent.http().get("/v1/doctor").expect::<Diagnosis>(200).checks;
    let is_found = |it: &Check| it.name == check && it.verdict == Verdict::Failure;
    assert!(checks.iter().any(is_found), "{checks:#?}");
}

/// The store refuses from `refuse` on until `mend`.
#[track_caller]
fn is_down_while_it_refuses(
    agent: &Agent,
    (check, words): (&str, &str),
    refuse: impl FnOnce(),
    mend: impl FnOnce(),
) {
    is_up(agent);
    refuse();
    is_refused(agent);
    is_told(agent, check, words);
    mend();
    is_up(agent);
    let outage = agent.http().status().upstream.outage.expect("it was away");
    assert!(outage.lasted_ms > 0);
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    until("it to be granted", || http.ask(session, "leader", "other", &json!({})).status == 200);
    http.end(session);
}

#[test]
fn a_redis_that_refuses_writes_is_down() {
    let redis = RedisServer::start();
    let agent = start_agent(0, &redis.url(), "");
    let set = |name: &str, value: &str| {
        let _: () = redis.command(&["CONFIG", "SET", name, value]);
    };
    // Beats go on without memory, and prove nothing.
    let mut program = Campaigner::start(&agent, "program");
    program.acquire("leader", "role", &json!({"ttl_ms": 2000}));
    let writes = "redis.writes";
    is_down_while_it_refuses(
        &agent,
        (writes, "OOM"),
        || set("maxmemory", "1"),
        || set("maxmemory", "0"),
    );
    is_down_while_it_refuses(
        &agent,
        (writes, "NOREPLICAS"),
        || set("min-replicas-to-write", "1"),
        || set("min-replicas-to-write", "0"),
    );
    // A connection that is made anew gets no answer either.
    is_up(&agent);
    let _: () = redis.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    is_refused(&agent);
    until("the agent to be down", || {
        let upstream = agent.http().status().upstream;
        let error = upstream.last_error.unwrap_or_default();
        upstream.state == UpstreamState::Down && error.contains("no answer")
    });
    let _: () = redis.command(&["CLIENT", "UNPAUSE"]);
    is_up(&agent);
}

#[test]
fn a_redis_user_that_lost_a_right_is_shut_out_and_one_without_a_tenant_is_not() {
    let redis = RedisServer::start();
    let user = |rules: &[&str]| {
        let _: () = redis.command(&[&["ACL", "SETUSER", "tenure"], rules].concat());
    };
    let rules = acl_rules(&Layout::default());
    let of_one_tenant = rules.split(' ').filter(|rule| !rule.contains("tenant:"));
    user(&["on", ">hunter2"].into_iter().chain(of_one_tenant).collect::<Vec<_>>());
    let url = redis.url().replace("redis+unix://", "redis+unix://tenure:hunter2@");
    let agent = start_agent(0, &url, "");
    is_down_while_it_refuses(
        &agent,
        ("redis.rights", "NOPERM"),
        || user(&["-hset"]),
        || user(&["+hset"]),
    );
    // The Redis user has rights for one tenant alone: claims of other tenants are refused each time.
    let mut http = agent.http();
    let session = http.register(&json!({"tenant": "acme"})).session;
    for _ in 0..20 {
        assert!(http.ask(session, "lease", "box", &json!({})).status >= 400);
        assert_eq!(state(&agent), UpstreamState::Up, "{:?}", http.status().upstream);
    }
}

#[test]
fn a_postgres_that_refuses_writes_is_down() {
    let postgres = Postgres::setup().start();
    postgres.sql("create role own login; grant create on database postgres to own");
    let agent = start_agent(0, &postgres.url_as("own"), "");
    is_up(&agent);
    let sql = |text: &str| {
        postgres.sql(text);
    };
    let terminate = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'own'";
    is_down_while_it_refuses(
        &agent,
        ("postgres.writes", "read-only transaction"),
        || {
            sql("alter role own set default_transaction_read_only = on");
            sql(terminate);
        },
        || {
            sql("alter role own reset default_transaction_read_only");
            sql(terminate);
        },
    );
    is_down_while_it_refuses(
        &agent,
        ("postgres.writes", "permission denied"),
        || sql("revoke insert on tenure.claim from own"),
        || sql("grant insert on tenure.claim to own"),
    );
    // Every claim waits for the lock.
    let locked = RefCell::new(None);
    is_down_while_it_refuses(
        &agent,
        ("postgres.writes", "no answer"),
        || *locked.borrow_mut() = Some(postgres.hold("lock table tenure.claim in exclusive mode")),
        || drop(locked.take()),
    );
}

#[test]
fn an_idle_agent_and_one_behind_a_gateway_are_told_as_well() {
    let postgres = Postgres::setup().start();
    let gateway = Gateway::start(&postgres.url());
    let agents = [start_agent(0, &gateway.url(), ""), start_agent(1, &postgres.url(), "")];
    agents.iter().for_each(is_up);
    postgres.sql("alter system set default_transaction_read_only = on");
    postgres.sql("select pg_reload_conf()");
    for agent in &agents {
        until("the agent to be told", || state(agent) == UpstreamState::Down);
    }
    let upstream = agents[0].http().status().upstream;
    assert_eq!(upstream.behind.as_deref(), Some("postgres"));
    assert!(upstream.last_error.is_some_and(|error| error.contains("refuses writes: ")));
    postgres.sql("alter system reset all");
    postgres.sql("select pg_reload_conf()");
    agents.iter().for_each(is_up);
}
