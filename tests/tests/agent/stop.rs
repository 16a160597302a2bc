//! A stop releases everything and tells everybody.

use nix::sys::signal::Signal;
use serde_json::json;
use tenure::wire::{Code, LostReason};
use tenure_tests::harness::{Agent, Client, Puppet, until};

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
