//! Holds that are kept from others for a while, whatever becomes of the command, its wrapper and the agent.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::json;
use tenure::wire::{Code, Problem, Released};
use tenure_tests::harness::{
    Agent, Client, Fleet, Http, RedisServer, TenureRun, read_when_there, start_agent, until,
};
use uuid::Uuid;

const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];

/// Whether somebody else is granted it.
fn is_free(http: &mut Http, kind: &str) -> bool {
    is_name_free(http, kind, "role")
}

fn is_name_free(http: &mut Http, kind: &str, name: &str) -> bool {
    let other = http.register(&json!({"project": "p"})).session;
    let answer = http.ask(other, kind, name, &json!({}));
    let is_free = answer.status == 200;
    assert!(is_free || answer.expect::<Problem>(409).code == Code::Contended);
    http.end(other);
    is_free
}

fn hold(http: &mut Http, kind: &str, at_least_ms: u64) -> (Uuid, Uuid) {
    let session = http.register(&json!({"project": "p"})).session;
    let more = json!({"hold_at_least_ms": at_least_ms, "ttl_ms": 1000});
    (session, http.acquire(session, kind, "role", &more).hold)
}

#[test]
fn the_cron_recipe_runs_a_short_job_once_on_three_hosts() {
    let fleet = Fleet::start_with(RedisServer::start(), 3, "");
    let ran = fleet.agents[0].dir().join("ran");
    let job = format!("echo ran >> {}", ran.display());
    let mut codes = Vec::new();
    // One after the other, as if the clocks of the hosts were apart: each begins when the one before is done.
    for agent in &fleet.agents {
        let args = ["--leader", "nightly", "--at-least", "10m", "--no-wait"];
        codes.push(TenureRun::new(&agent.socket(), &args, &["sh", "-c", &job]).finish().0);
    }
    assert_eq!(codes, [0, 75, 75]);
    assert_eq!(fs::read_to_string(&ran).expect("it ran").lines().count(), 1);
    let standing = fleet.agents[0].http().standing("leader", "nightly");
    assert!(standing.holders[0].kept_ms.is_some_and(|ms| ms > 500_000), "{standing:?}");
}

/// Kills a wrapper with SIGKILL; its command ends with it.
fn kill_wrapper(socket: &Path, file: &Path) {
    let script = format!("echo ready > {}; exec sleep 600", file.display());
    let args = ["--leader", "role", "--at-least", "10m", "--tether", "child", "--ttl", "1s"];
    let mut run = TenureRun::new(socket, &args, &["sh", "-c", &script]).start();
    assert_eq!(read_when_there(file).trim(), "ready");
    run.kill();
}

#[test]
fn it_outlives_the_wrapper_and_every_end_of_the_agent() {
    let redis = RedisServer::start();
    let mut agents = [0, 1].map(|host| start_agent(host, &redis.url(), ""));
    kill_wrapper(&agents[0].socket(), &agents[0].dir().join("said"));
    until("the session to end", || agents[0].counts().0 == 0);
    let mut other = agents[1].http();
    assert!(!is_free(&mut other, "leader"), "the wrapper was killed");
    for kind in ["master", "lease", "semaphore"] {
        let (session, _) = hold(&mut agents[0].http(), kind, 600_000);
        assert!(agents[0].http().end(session));
        assert!(!is_free(&mut other, kind), "{kind}: its session ended");
    }
    agents[0].kill();
    agents[0].start_again();
    for kind in KINDS {
        assert!(!is_free(&mut other, kind), "{kind}: the agent was killed and started again");
    }
    assert!(agents[0].stop().success());
    for kind in KINDS {
        assert!(!is_free(&mut other, kind), "{kind}: the agent is stopped");
    }
    agents[0].start_again();
    for kind in KINDS {
        assert!(!is_free(&mut other, kind), "{kind}: the agent is there again");
    }
}

/// What ends the agent, and whether the wrapper is killed while it is away or its command ends by itself.
const AWAY: [(Signal, bool); 4] = [
    (Signal::SIGUSR2, true),
    (Signal::SIGUSR2, false),
    (Signal::SIGKILL, true),
    (Signal::SIGKILL, false),
];

#[test]
fn it_outlives_what_befalls_the_wrapper_while_the_agent_is_away() {
    let redis = RedisServer::start();
    let mut agents = [0, 1].map(|host| start_agent(host, &redis.url(), ""));
    let mut other = agents[1].http();
    for (at, (signal, is_killed)) in AWAY.into_iter().enumerate() {
        let name = format!("role-{at}");
        let [said, go] = ["said", "go"].map(|file| agents[0].dir().join(format!("{name}-{file}")));
        let script = format!(
            "echo ready > {}; until [ -e {} ]; do sleep 0.05; done",
            said.display(),
            go.display()
        );
        let args = ["--leader", &name, "--at-least", "10m", "--tether", "child", "--ttl", "1s"];
        let mut run = TenureRun::new(&agents[0].socket(), &args, &["sh", "-c", &script]).start();
        assert_eq!(read_when_there(&said).trim(), "ready");
        agents[0].signal(signal);
        agents[0].wait_exit();
        if is_killed {
            run.kill();
        } else {
            fs::write(&go, "").expect("the directory is ours");
        }
        assert!(!is_name_free(&mut other, "leader", &name), "{signal}, {is_killed}: no agent");
        agents[0].start_again();
        if !is_killed {
            assert_eq!(run.wait_code(), 0, "{signal}");
        }
        until("the session to end", || agents[0].counts().0 == 0);
        assert!(
            !is_name_free(&mut other, "leader", &name),
            "{signal}, {is_killed}: its end is seen"
        );
    }
}

#[test]
fn it_is_free_when_its_time_is_over() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    for kind in KINDS {
        let (session, hold) = hold(&mut http, kind, 1_500);
        let body = json!({"session": session, "hold": hold});
        let released: Released = http.post("/v1/release", &body).expect(200);
        assert!(released.released && released.kept_ms.is_some_and(|ms| ms <= 1_500));
        assert!(!is_free(&mut http, kind), "{kind}");
        until("its time to be over", || is_free(&mut http, kind));
    }
    let (session, _) = hold(&mut http, "leader", 600_000);
    assert!(http.end(session));
    agent.kill();
    agent.start_again();
    assert!(!is_free(&mut agent.http(), "leader"), "the agent's own store keeps it as well");
    assert!(agent.stop().success(), "what is kept does not keep the agent");
    agent.start_again();
    assert!(!is_free(&mut agent.http(), "leader"));
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let more = json!({"hold_at_least_ms": 86_400_001_u64});
    let problem: Problem = http.ask(session, "leader", "role", &more).expect(422);
    assert_eq!(problem.field.as_deref(), Some("hold_at_least_ms"), "{problem}");
}
