//! The `tenure` command and an agent that hangs, restarts, has another clock or no upstream.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;
use tenure_tests::harness::{
    Agent, Client, Fleet, Gate, Program, RedisServer, TenureRun, binary, boottime_ns, run_to_end,
    until,
};

const NS_PER_S: u64 = 1_000_000_000;
/// Longer than an agent that hangs may keep anybody, and shorter than a call of the SDK waits.
const PATIENCE_NS: u64 = 20 * NS_PER_S;

/// `tenure ARGS…`: exit code, standard output, standard error.
#[track_caller]
fn tenure(agent: &Agent, args: &[&str]) -> (i32, String, String) {
    run_to_end(&mut start(agent, args))
}

#[track_caller]
fn start(agent: &Agent, args: &[&str]) -> Program {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", agent.socket()).args(args);
    Program::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn an_agent_that_hangs_costs_a_few_seconds_whatever_it_is_asked() {
    let mut agent = Agent::start();
    agent.pause();
    let before = boottime_ns();
    let mut all: Vec<(&str, Program)> = [
        "run --leader role --no-wait -- true",
        "run --leader role --wait 2s -- true",
        "run --leader role --wait 10m -- true",
        "run --leader role -- true",
        "status",
        "status --quiet",
        "why leader role",
        "ls",
        "history leader role",
        "standing leader role",
        "routes",
        "revoke leader role",
        "events",
        "observe leader role",
    ]
    .into_iter()
    .map(|line| (line, start(&agent, &line.split(' ').collect::<Vec<_>>())))
    .collect();
    for (line, program) in &mut all {
        let (code, out, err) = run_to_end(program);
        assert_eq!(code, 69, "{line}: {out}{err}");
        let said = out.clone() + &err;
        let is_told =
            said.contains("gave no answer within") || said.contains("is stopped: kill -CONT");
        assert!(is_told, "{line}: {said}");
    }
    assert!(boottime_ns() - before < PATIENCE_NS, "they waited for longer than they may");
    agent.resume();
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn the_doctor_finds_a_stopped_agent_and_the_way_out() {
    let mut agent = Agent::start();
    agent.pause();
    let (code, out, err) = tenure(&agent, &["doctor"]);
    assert_eq!(code, 69, "{out}{err}");
    let pid = agent.pid();
    assert!(out.contains(&format!("tenured, pid {pid}, is stopped")), "{out}");
    assert!(out.contains(&format!("kill -CONT {pid}")), "{out}");
    assert!(!out.contains("tenure doctor"), "advice to look where one looks: {out}");
    agent.resume();
}

/// A host with nothing in /run, whatever other agents have left in that of this one.
const BARE: &str = "mount -t tmpfs none /run && exec \"$0\" \"$@\"";

#[test]
fn without_a_name_every_place_is_looked_at_and_told() {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", BARE]).arg(binary("tenure"));
    command.env_remove("TENURE_SOCKET").env("XDG_RUNTIME_DIR", "/nowhere").arg("status");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, _, err) = run_to_end(&mut Program::start(&mut command));
    assert_eq!(code, 69, "{err}");
    for place in ["/nowhere/tenured", "/run/tenured", "/run/user/0/tenured"] {
        assert!(err.contains(&format!("{place}/api.sock")), "{place}: {err}");
    }
}

#[test]
fn an_agent_that_hangs_during_a_wait_is_not_taken_for_a_holder() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "role", &json!({"ttl_ms": 600_000}));
    let mut run = start(&agent, &["run", "--leader", "role", "--wait", "2s", "--", "true"]);
    until("it to wait", || !agent.http().standing("leader", "role").waiters.is_empty());
    let before = boottime_ns();
    agent.pause();
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!(code, 69, "{err}");
    assert!(err.contains("gave no answer within"), "{err}");
    assert!(boottime_ns() - before < PATIENCE_NS, "it waited for longer than it may");
    agent.resume();
    until("no waiter to be left", || agent.counts() == (1, 1, 0));
}

#[test]
fn a_command_that_meets_a_restart_outlasts_it() {
    let mut agent = Agent::start();
    agent.kill();
    // The state left by an agent that did not end for good.
    assert!(agent.socket().exists());
    let mut run = start(&agent, &["run", "--leader", "role", "--wait", "1m", "--", "true"]);
    // It has met the socket that nobody serves before there is an agent again: it sleeps.
    let wchan = format!("/proc/{}/stat", run.pid());
    until("it to pause", || {
        std::fs::read_to_string(&wchan).is_ok_and(|stat| stat.contains(") S "))
    });
    agent.start_again();
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!(code, 0, "{err}");

    agent.kill();
    let (code, _, err) = tenure(&agent, &["run", "--leader", "role", "--no-wait", "--", "true"]);
    assert_eq!(code, 69, "{err}");
    assert!(err.contains("no agent listens"), "{err}");
}

#[test]
fn without_an_upstream_nobody_is_said_to_have_it() {
    let mut fleet = Fleet::start_with(RedisServer::start(), 1, "");
    let agent = &fleet.agents[0];
    let run = |wait: &[&str]| {
        let args = [&["run", "--leader", "role"], wait, &["--", "true"]].concat();
        tenure(agent, &args)
    };
    assert_eq!(run(&["--no-wait"]).0, 0);
    fleet.redis.pause();
    for wait in [&["--no-wait"][..], &["--wait", "1s"], &["--wait", "4s"]] {
        let (code, _, err) = run(wait);
        assert_eq!(code, 69, "{wait:?}: {err}");
        assert!(err.contains("the upstream is not available"), "{wait:?}: {err}");
    }
    fleet.redis.resume();
}

#[test]
fn whoever_waits_for_no_holder_waits_for_the_store() {
    let redis = RedisServer::setup().durable().start();
    let mut fleet = Fleet::start_with(redis, 1, "");
    fleet.redis.kill();
    let hasty = ["--no-wait", "--store-wait", "0s"];
    let patient = ["--no-wait", "--store-wait", "1m"];
    let run = |agent: &Agent, wait: &[&str]| {
        start(agent, &[&["run", "--leader", "role"], wait, &["--", "true"]].concat())
    };
    let (code, _, err) = run_to_end(&mut run(&fleet.agents[0], &hasty));
    assert_eq!(code, 69, "{err}");
    let mut waiting = run(&fleet.agents[0], &patient);
    until("it to have asked", || fleet.agents[0].counts().0 == 1);
    fleet.redis.start_again();
    let (code, _, err) = run_to_end(&mut waiting);
    assert_eq!(code, 0, "{err}");

    let (code, _, err) = tenure(&fleet.agents[0], &["run", "--store-wait", "1s", "--", "true"]);
    assert_eq!(code, 64, "{err}");
    assert!(err.contains("--no-wait"), "{err}");
}

#[test]
fn a_command_in_another_time_namespace_is_refused() {
    let apart = |offset: &str| {
        let mut command = Command::new("unshare");
        command.args(["--time", "--fork", &format!("--boottime={offset}"), "--"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    if !apart("1000").arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no time namespaces here");
        return;
    }
    let agent = Agent::start();
    for (offset, said) in [("-300", "300.0 s behind"), ("300", "300.0 s ahead of")] {
        let mut command = apart(offset);
        command.env("TENURE_SOCKET", agent.socket()).arg(binary("tenure"));
        command.args(["run", "--leader", "role", "--", "echo", "it ran"]);
        let (code, out, err) = run_to_end(&mut Program::start(&mut command));
        assert_eq!((code, out.as_str()), (69, ""), "{offset}: {err}");
        let seconds = said.split_once(' ').expect("a number").1;
        assert!(err.contains(seconds) && err.contains("time namespace"), "{offset}: {err}");
        until("nothing to be left", || agent.counts() == (0, 0, 0));

        let mut command = apart(offset);
        command.env("TENURE_SOCKET", agent.socket()).arg(binary("tenure")).arg("doctor");
        let (code, out, err) = run_to_end(&mut Program::start(&mut command));
        assert_eq!(code, 1, "{offset}: {out}{err}");
        let clock = out.lines().find(|line| line.contains(" clock ")).expect("it is checked");
        assert!(clock.starts_with("failure") && clock.contains(seconds), "{offset}: {out}");
        assert!(clock.contains("time namespace"), "{offset}: {out}");
    }
}

#[test]
fn a_command_does_not_wait_for_its_own_end() {
    let agent = Agent::start();
    let tenure = binary("tenure").display().to_string();
    let nested = |outer: &[&str], inner: &[&str]| {
        let wait: &[&str] = if inner.contains(&"-n") { &[] } else { &["--wait", "10m"] };
        let command = [&[tenure.as_str(), "run"], inner, wait, &["--", "echo", "ran"]].concat();
        TenureRun::new(&agent.socket(), outer, &command).finish()
    };
    let leader = ["--leader", "role"];
    let master = ["--master", "--project", "p"];
    for kind in [&leader[..], &master] {
        let (code, out, err) = nested(kind, kind);
        assert_eq!((code, out.as_str()), (75, ""), "{err}");
        assert!(err.contains("TENURE_HOLD") && err.contains("wait for itself"), "{err}");
    }
    assert_eq!(nested(&leader, &["--leader", "other"]).1, "ran\n");
    assert_eq!(nested(&leader, &master).1, "ran\n");
    assert_eq!(nested(&leader, &["--leader", "role", "--tenant", "t"]).1, "ran\n");
    let (code, _, err) = nested(&leader, &["--leader", "role", "-n", "-E", "9"]);
    assert!(code == 9 && err.contains("taken by a `tenure run` around this command"), "{err}");
    let permit = ["--semaphore", "s", "--limit", "1"];
    for inner in [&permit[..], &["--semaphore", "s"]] {
        let (code, out, err) = nested(&permit, inner);
        assert_eq!((code, out.as_str()), (75, ""), "{err}");
        assert!(err.contains("wait for itself"), "{err}");
    }
    assert_eq!(nested(&permit, &["--semaphore", "s", "--limit", "2"]).1, "ran\n");
    assert_eq!(nested(&["--semaphore", "s", "--limit", "2"], &["--semaphore", "s"]).1, "ran\n");
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn two_commands_that_wait_for_each_other_are_told() {
    let agent = Agent::start();
    let folder = TempDir::new().expect("a temporary directory");
    let tenure = binary("tenure").display().to_string();
    let start = |own: &str, other: &str| {
        let script = format!(
            "touch {own}.there; until test -e {other}.there; do sleep 0.05; done; exec {tenure} lock {other} -- true"
        );
        let mut run = TenureRun::new(&agent.socket(), &["--leader", own], &["sh", "-c", &script]);
        let log = File::create(folder.path().join(format!("{own}.log"))).expect("it is ours");
        run.command().current_dir(folder.path()).stderr(log);
        run.start()
    };
    let mut both = [start("a", "b"), start("b", "a")];
    let told = |own: &str| {
        let log = folder.path().join(format!("{own}.log"));
        fs::read_to_string(log).expect("it is there")
    };
    for (own, other) in [("a", "b"), ("b", "a")] {
        let expected = format!(
            "perhaps a deadlock: its command waits for leader/{own}, which is held around this one; end one of the two"
        );
        until(&format!("{own} to be told"), || told(own).contains(&expected));
        assert!(told(own).contains(&format!("waiting for leader/{other}: held by ")));
    }
    both[0].signal(Signal::SIGTERM);
    assert_eq!(both[1].wait_code(), 0);
}

/// A machine so busy that the stream of a session is opened later than its `linger_ms`.
#[test]
fn a_session_that_ended_before_its_stream_was_opened_is_replaced() {
    let agent = Agent::setup().config("tether = { linger = \"500ms\" }").start();
    let gate = Gate::before(&agent.socket());
    gate.set_silent(true);
    let args = ["--leader", "role", "--wait", "60s"];
    let mut run = TenureRun::new(&gate.socket(), &args, &["true"]).start();
    until("the command to register", || gate.caught() >= 1);
    until("its session to end", || agent.counts().0 == 0);
    gate.set_silent(false);
    let (code, out, err) = run_to_end(&mut run);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn a_command_that_is_stopped_is_told_what_was_away_and_for_how_long() {
    let args = ["run", "--leader", "role", "--ttl", "2s", "--kill-after", "1s", "--"];
    let args = [&args[..], &["sh", "-c", "echo ready; exec sleep 600"]].concat();
    let begin = |agent: &Agent| {
        let run = start(agent, &args);
        until("it to hold", || agent.counts().1 == 1);
        run
    };
    let mut agent = Agent::start();
    let mut run = begin(&agent);
    agent.kill();
    let (_, _, err) = run_to_end(&mut run);
    let socket = agent.socket().display().to_string();
    assert!(err.contains("the hold is not renewed (no agent has answered at "), "{err}");
    assert!(err.contains(&format!("{socket} for ")), "{err}");

    let mut fleet = Fleet::start_with(RedisServer::start(), 1, "");
    let mut run = begin(&fleet.agents[0]);
    fleet.redis.pause();
    let (_, _, err) = run_to_end(&mut run);
    assert!(err.contains("the store has "), "{err}");
    fleet.redis.resume();
    until("the history to say why", || {
        let (_, told, _) = tenure(&fleet.agents[0], &["history", "leader", "role"]);
        told.contains("expired: the store has ") || told.contains("its command was stopped")
    });
}
