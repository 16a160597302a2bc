//! The past of a resource, as people are told of it on any host.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;
use tenure_tests::harness::{Agent, Fleet, TenureRun, binary, eventually};

/// The changes that `tenure history leader nightly --json` tells, newest first.
fn history(agent: &Agent) -> Vec<Value> {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", agent.socket());
    let output = command.args(["history", "leader", "nightly", "--json"]).output();
    let output = output.expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    told["changes"].as_array().expect("there is a list").clone()
}

/// Waits until so many changes are told.
#[track_caller]
fn history_of(agent: &Agent, count: usize) -> Vec<Value> {
    eventually("the changes to be told", || {
        Some(history(agent)).filter(|changes| changes.len() == count)
    })
}

#[track_caller]
fn run(agent: &Agent, script: &str) -> (i32, u32) {
    let mut run = TenureRun::new(&agent.socket(), &["--leader", "nightly"], &["sh", "-c", script]);
    let mut program = run.command().spawn().expect("the command starts");
    let pid = program.id();
    let status = program.wait().expect("it ends");
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).expect("it has ended");
    (code, pid)
}

#[track_caller]
fn check(change: &Value, what: &str, host: &str, (code, pid): (Option<i32>, u32)) {
    assert_eq!(change["what"], what, "{change}");
    assert_eq!(change["host"], host, "{change}");
    assert_eq!(change["exit_status"].as_i64(), code.map(i64::from), "{change}");
    assert_eq!(change["pid"], pid, "{change}");
    assert_eq!(change["uid"], nix::unistd::getuid().as_raw(), "{change}");
    let command = change["command"].as_str().expect("it has a command");
    assert!(command.contains("run --leader nightly -- sh -c"), "{change}");
}

#[test]
fn every_host_tells_who_held_it_and_how_that_ended() {
    let fleet = Fleet::start();
    let [alpha, beta] = &fleet.agents[..] else { panic!("there are two") };
    let (failed, first) = run(alpha, "exit 3");
    let (killed, second) = run(beta, "kill -KILL $$");
    assert_eq!((failed, killed), (3, 137));
    for asked in [alpha, beta] {
        let changes = history_of(asked, 4);
        check(&changes[0], "released", "beta", (Some(137), second));
        check(&changes[1], "granted", "beta", (None, second));
        check(&changes[2], "released", "alpha", (Some(3), first));
        check(&changes[3], "granted", "alpha", (None, first));
        assert_eq!(changes[0]["detail"], "its command ended");
        assert_eq!(changes[2]["token"], changes[3]["token"]);
        assert!(changes[2]["token"].as_u64() < changes[0]["token"].as_u64());
    }
    fleet.is_left_empty();
}

#[test]
fn why_knows_an_end_of_this_moment() {
    let fleet = Fleet::start();
    let [holding, asked] = &fleet.agents[..] else { panic!("there are two") };
    let sleep = ["sleep", "1000"];
    let mut work = TenureRun::new(&holding.socket(), &["--leader", "nightly"], &sleep).start();
    history_of(asked, 1);
    work.signal(Signal::SIGTERM);
    work.wait();
    let mut command = Command::new(binary("tenure"));
    let output =
        command.env("TENURE_SOCKET", asked.socket()).args(["why", "leader", "nightly"]).output();
    let told = String::from_utf8(output.expect("the command runs").stdout).expect("it is UTF-8");
    assert!(told.contains("released by "), "{told}");
    assert!(!told.contains("its end was not told"), "{told}");
}

#[test]
fn an_agent_with_its_own_store_tells_it_after_a_restart() {
    let mut agent = Agent::start();
    let ended = run(&agent, "true");
    let before = history_of(&agent, 2);
    check(&before[0], "released", before[0]["host"].as_str().expect("a host"), (Some(0), ended.1));
    agent.kill();
    agent.start_again();
    let after = history_of(&agent, 2);
    assert_eq!(after[0]["token"], before[0]["token"]);
    assert!(after[0]["ago_ms"].as_u64() >= before[0]["ago_ms"].as_u64());
}
