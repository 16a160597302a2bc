//! A stop releases everything and tells everybody.

use nix::sys::signal::Signal;
use serde_json::json;
use tenure::wire::{Code, LostReason};
use tenure_tests::harness::{Agent, Client, Fleet, Puppet, TenureRun, read_pid, run_to_end, until};

#[test]
fn sigterm_releases_and_tells_and_exits_with_clients_attached() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut agent = Agent::start();
        let mut puppet = Puppet::start(&agent);
        let session = puppet.register(&json!({"tether": "connection"}));
        let events = puppet.open_events(session.session);
        let leader = puppet.acquire(session.session, "leader", "role", &json!({}));
        let permit = puppet.acquire(session.session, "semaphore", "gpu", &json!({}));

        let mut http = agent.http();
        let other = http.register(&json!({"tether": "process"})).session;
        let other_events = agent.events(other);
        let mut idle = agent.http();
        assert_eq!(idle.get("/healthz").status, 200);
        let blocking = json!({
            "session": session.session, "kind": "lease", "name": "mailbox", "wait": "block",
        });
        let lease = http.acquire(other, "lease", "mailbox", &json!({}));
        puppet.start_call("POST", "/v1/acquire", &blocking);
        until("the call to block", || agent.counts() == (2, 3, 1));

        agent.signal(signal);
        assert!(agent.wait_exit().success());

        for hold in [leader.hold, permit.hold] {
            assert_eq!(events.lost(hold).reason, LostReason::AgentStopping);
        }
        assert_eq!(events.shutdown().cause, "stopping");
        assert_eq!(other_events.lost(lease.hold).reason, LostReason::AgentStopping);
        assert_eq!(other_events.shutdown().cause, "stopping");
        other_events.wait_end();
        puppet.answer().problem(Code::Stopping);
        assert!(agent.pages().is_empty(), "{:?}", agent.pages());

        agent.start_again();
        let mut http = agent.http();
        assert_eq!(agent.counts(), (0, 0, 0), "nothing is adopted after a stop");
        let next = http.register(&json!({})).session;
        let newest = leader.token.max(permit.token).max(lease.token);
        for (kind, name) in [("leader", "role"), ("semaphore", "gpu"), ("lease", "mailbox")] {
            let granted = http.acquire(next, kind, name, &json!({}));
            assert!(granted.token > newest, "free at once, and the token has grown");
        }
    }
}

#[test]
fn a_second_signal_ends_it_too() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let _events = agent.events(session);
    agent.signal(Signal::SIGTERM);
    agent.signal(Signal::SIGTERM);
    agent.wait_exit();
}

#[test]
fn a_live_socket_is_not_taken_over_and_its_owner_is_named() {
    let agent = Agent::start();
    let mut second = std::process::Command::new(tenure_tests::harness::binary("tenured"));
    second.arg("agent").arg("--socket").arg(agent.socket());
    second.arg("--state-dir").arg(agent.dir().join("state-2"));
    second.arg("--runtime-dir").arg(agent.dir().join("run-2"));
    let output = second.output().expect("it starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("api.sock"), "{said}");
    assert!(said.contains(&agent.pid().to_string()), "names the owner: {said}");
    assert_eq!(agent.http().get("/healthz").status, 200);
}

#[test]
fn a_stale_socket_is_replaced() {
    let mut agent = Agent::start();
    agent.kill();
    assert!(agent.socket().exists(), "a killed agent leaves its socket");
    agent.start_again();
    agent.http().status();
}

/// An agent stops while a command on its host needs so long to end, or never does; another host waits meanwhile.
#[track_caller]
fn check_guarded_work(to_end: &str) {
    let mut fleet = Fleet::start();
    let folder = fleet.agents[0].dir().to_owned();
    let (pid, lock) = (folder.join("pid"), folder.join("lock"));
    // The file is locked for as long as anything of the command runs.
    let script =
        format!("trap '{to_end}' TERM; echo $$ >{}; while :; do sleep 0.05; done", pid.display());
    let args = ["--leader", "role", "--ttl", "8s", "--kill-after", "1m"];
    let lock = lock.display().to_string();
    let flock = ["flock", &lock, "sh", "-c", &script];
    let mut run = TenureRun::new(&fleet.agents[0].socket(), &args, &flock).start();
    read_pid(&pid);
    let next = ["flock", "--nonblock", &lock, "true"];
    let mut next = TenureRun::new(&fleet.agents[1].socket(), &args, &next).start();
    until("the other to wait", || fleet.agents[1].counts().2 == 1);
    fleet.agents[0].signal(Signal::SIGTERM);
    let (code, _, err) = run_to_end(&mut next);
    assert_eq!(code, 0, "{to_end:?}: two hold it at once: {err}");
    assert_eq!(run.wait_code(), 74);
    assert!(fleet.agents[0].wait_exit().success());
}

#[test]
fn guarded_work_that_ends_at_once_lets_the_next_host_begin() {
    check_guarded_work("exit");
}

#[test]
fn guarded_work_that_takes_3_seconds_to_stop_keeps_its_hold_meanwhile() {
    check_guarded_work("sleep 3; exit");
}

#[test]
fn guarded_work_that_takes_longer_than_its_agent_keeps_its_hold_meanwhile() {
    check_guarded_work("sleep 6; exit");
}

#[test]
fn guarded_work_that_does_not_stop_keeps_its_hold_until_it_is_killed() {
    check_guarded_work("");
}
