//! A store that lost data, behind a gateway: its agents are told.

use std::process::Command;

use serde_json::json;
use tenure::wire::{Code, UpstreamState};
use tenure_tests::harness::{Client, Gateway, RedisServer, binary, start_agent, until};

#[test]
fn agents_are_told_of_a_quarantine_that_the_gateway_s_administrator_ends() {
    let mut redis = RedisServer::start();
    let gateway = Gateway::start(&redis.url());
    let agent = start_agent(0, &gateway.url(), "");
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "long", &json!({"ttl_ms": 600_000}));
    redis.kill();
    redis.start_again();
    until("the agent to be told", || {
        agent.http().status().upstream.state == UpstreamState::Quarantined
    });
    let ready = agent.http().get("/readyz").problem(Code::UpstreamUnavailable);
    assert!(ready.detail.contains("tenured-gateway quarantine end"), "{}", ready.detail);
    http.ask(session, "leader", "other", &json!({})).problem(Code::UpstreamUnavailable);
    http.queue(session, "leader", "waited-for", &json!({}));

    let run = |program: &str, more: &[&str]| {
        let mut command = Command::new(binary(program));
        let output = command.args(["quarantine", "end"]).args(more).output();
        let output = output.expect("it can be run");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let socket = agent.socket();
    let (done, said) = run("tenured", &["--yes", "--socket", &socket.display().to_string()]);
    assert!(
        !done && said.contains("tenured-gateway quarantine end"),
        "it is not the agent's: {said}"
    );
    let (done, said) = run("tenured-gateway", &["--upstream", &redis.url()]);
    assert!(!done && said.contains("two holders"), "{said}");
    let (done, said) = run("tenured-gateway", &["--yes", "--upstream", &redis.url()]);
    assert!(done && said.contains("grants again"), "{said}");
    until("it to be granted", || !agent.http().standing("leader", "waited-for").holders.is_empty());
    until("the agent to be told", || agent.http().status().upstream.state == UpstreamState::Up);
    let (done, said) = run("tenured-gateway", &["--yes", "--upstream", &redis.url()]);
    assert!(done && said.contains("no quarantine"), "{said}");
}
