//! `tenure doctor` of an agent on a Redis: the agent looks, the command tells.

use std::process::{Command, Stdio};

use serde_json::Value;
use tenure::wire::{Check, Diagnosis, UpstreamState, Verdict};
use tenure_tests::harness::{Agent, Client, Program, RedisServer, binary, run_to_end, until};

const PASSWORD: &str = "correct-horse-battery";

fn command(agent: &Agent, args: &[&str]) -> Program {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", agent.socket()).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Program::start(&mut command)
}

/// Its exit code, and what it found.
#[track_caller]
fn doctor(agent: &Agent) -> (i32, Vec<Check>) {
    let (code, out, err) = run_to_end(&mut command(agent, &["doctor", "--json"]));
    let diagnosis: Diagnosis =
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    (code, diagnosis.checks)
}

#[track_caller]
fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    let found = checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {checks:#?}"))
}

/// An agent, once it hears what others change.
#[track_caller]
fn agent_on(url: &str) -> Agent {
    let agent = Agent::setup().upstream(url).start();
    until("the agent to listen", || {
        let found: Diagnosis = agent.http().get("/v1/doctor").expect(200);
        find(&found.checks, "redis.feed").verdict == Verdict::Ok
    });
    agent
}

#[test]
fn the_doctor_tells_what_is_wrong_with_a_redis() {
    let redis = RedisServer::setup().durable().start();
    let agent = agent_on(&redis.url());
    let (code, checks) = doctor(&agent);
    let of_redis = |checks: &[Check]| {
        let of_redis = checks.iter().filter(|check| check.name.starts_with("redis."));
        of_redis.cloned().collect::<Vec<_>>()
    };
    let sound = of_redis(&checks);
    assert!(sound.len() > 10, "{checks:#?}");
    assert!(sound.iter().all(|check| check.verdict == Verdict::Ok), "{sound:#?}");
    assert_eq!(code, 0, "{checks:#?}");

    redis.command::<()>(&["CONFIG", "SET", "maxmemory", "64mb"]);
    redis.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let (code, checks) = doctor(&agent);
    assert_eq!(code, 1, "{checks:#?}");
    let eviction = find(&checks, "redis.eviction");
    assert_eq!(eviction.verdict, Verdict::Failure, "{eviction:#?}");
    let (code, text, _) = run_to_end(&mut command(&agent, &["doctor"]));
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("maxmemory-policy is allkeys-lru"), "{text}");
    assert!(text.contains("→ CONFIG SET maxmemory-policy noeviction"), "{text}");
}

#[test]
fn a_redis_that_is_gone_is_told_with_its_last_error() {
    let mut redis = RedisServer::start();
    let agent = agent_on(&redis.url());
    let status = agent.http().status().upstream;
    let address = redis.url();
    assert!(status.address.as_ref().is_some_and(|at| at.contains(&address)), "{status:?}");
    assert!(status.guarantee.starts_with("single Redis; "), "{status:?}");
    redis.process().kill();
    until("the agent to notice", || agent.http().status().upstream.state == UpstreamState::Down);
    let (code, checks) = doctor(&agent);
    assert_eq!(code, 1, "{checks:#?}");
    let upstream = find(&checks, "upstream");
    assert_eq!(upstream.verdict, Verdict::Failure);
    assert!(upstream.detail.contains("last error: "), "{upstream:#?}");
    let connection = find(&checks, "redis.connection");
    assert_eq!(connection.verdict, Verdict::Failure);
    assert!(connection.detail.contains("cannot connect to Redis at /"), "{connection:#?}");
}

#[test]
fn an_examination_of_a_silent_redis_holds_up_nobody() {
    let mut redis = RedisServer::start();
    let agent = agent_on(&redis.url());
    redis.process().pause();
    let mut http = agent.http();
    let examination = std::thread::spawn({
        let mut http = agent.http();
        move || http.get("/v1/doctor").expect::<Diagnosis>(200)
    });
    let mut answered = 0;
    while !examination.is_finished() {
        assert_eq!(http.get("/readyz").status, 200);
        answered += usize::from(!examination.is_finished());
    }
    assert!(answered > 0, "others are answered meanwhile");
    let found = examination.join().expect("it has a deadline of its own");
    redis.process().resume();
    let connection = find(&found.checks, "redis.connection");
    assert_eq!(connection.verdict, Verdict::Failure, "{connection:#?}");
}

#[test]
fn nobody_sees_the_password() {
    let redis = RedisServer::start();
    redis.command::<()>(&["CONFIG", "SET", "requirepass", PASSWORD]);
    let url = redis.url();
    let (scheme, path) = url.split_once("://").expect("a URL");
    let agent = agent_on(&format!("{scheme}://:{PASSWORD}@{path}"));
    let mut seen = agent.log();
    seen += &agent.http().get("/v1/status").text();
    seen += &agent.http().get("/v1/doctor").text();
    seen += &run_to_end(&mut command(&agent, &["doctor"])).1;
    seen += &run_to_end(&mut command(&agent, &["status"])).1;
    let status: Value = agent.http().get("/v1/status").json(200);
    let address = status["upstream"]["address"].as_str().expect("where it is");
    assert!(address.starts_with("redis+unix:///") && !address.contains('@'), "{address}");
    assert!(!seen.contains(PASSWORD), "{seen}");
    assert!(seen.contains("redis.rights"), "{seen}");
}
