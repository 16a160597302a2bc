//! Tethers of sessions, and their ends.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure::wire::{Code, LostReason};
use tenure_tests::harness::{Agent, Client, Heir, Puppet, until};

#[test]
fn a_process_tether_ends_with_the_process() {
    let agent = Agent::start();
    let mut puppet = Puppet::start(&agent);
    let session = puppet.register(&json!({"tether": "process"})).session;
    puppet.acquire(session, "leader", "role", &json!({}));
    let next = Heir::wait_for(&agent, "leader", "role");
    puppet.program().kill();
    next.gets_it();
    until("the session to end", || agent.counts() == (1, 1, 0));
}

#[test]
fn a_child_that_inherited_the_connection_keeps_the_hold() {
    let agent = Agent::start();
    let mut puppet = Puppet::start(&agent);
    let session = puppet.register(&json!({"tether": "connection"})).session;
    puppet.open_events(session).snapshot();
    let held = puppet.acquire(session, "leader", "inherited", &json!({}));
    // A second session of the same program, without any heir: its end proves that the agent has
    // seen the death of the process.
    let other = puppet.register(&json!({"tether": "process"})).session;
    puppet.acquire(other, "leader", "own", &json!({}));
    let child = puppet.spawn_heir(session);
    let next = Heir::wait_for(&agent, "leader", "inherited");
    let witness = Heir::wait_for(&agent, "leader", "own");

    puppet.program().kill();
    witness.gets_it();
    let holders = agent.http().standing("leader", "inherited").holders;
    let tokens: Vec<_> = holders.iter().map(|holder| holder.token).collect();
    assert_eq!(tokens, [held.token], "the child may still be at work");

    let child = i32::try_from(child).expect("process numbers are small");
    kill(Pid::from_raw(child), Signal::SIGKILL).expect("the child is running");
    next.gets_it();
}

#[test]
fn a_closed_stream_of_a_living_program_lingers_and_then_ends() {
    let agent = Agent::start();
    let mut puppet = Puppet::start(&agent);
    let session = puppet.register(&json!({"tether": "connection", "linger_ms": 3000})).session;
    puppet.open_events(session).snapshot();
    puppet.acquire(session, "semaphore", "gpu", &json!({}));
    let next = Heir::wait_for(&agent, "semaphore", "gpu");
    puppet.close_events(session);
    next.gets_it();
    puppet.post("/v1/beat", &json!({"session": session})).problem(Code::SessionLost);
}

#[test]
fn a_reconnect_within_the_linger_keeps_the_hold() {
    let agent = Agent::start();
    let mut puppet = Puppet::start(&agent);
    let session = puppet.register(&json!({"tether": "connection", "linger_ms": 600_000})).session;
    puppet.open_events(session).snapshot();
    let held = puppet.acquire(session, "leader", "role", &json!({}));
    let streams = || agent.http().status().sessions.iter().map(|s| s.streams).sum::<u32>();
    puppet.close_events(session);
    until("the agent to see the end of the stream", || streams() == 0);
    let snapshot = puppet.open_events(session).snapshot();
    assert_eq!(snapshot.holds.len(), 1);
    assert_eq!(snapshot.holds[0].token, Some(held.token));
}

#[test]
fn a_closed_stream_of_a_killed_program_does_not_linger() {
    let agent = Agent::start();
    let mut puppet = Puppet::start(&agent);
    let session =
        puppet.register(&json!({"tether": "connection", "linger_ms": 86_400_000})).session;
    puppet.open_events(session).snapshot();
    puppet.acquire(session, "leader", "role", &json!({}));
    let next = Heir::wait_for(&agent, "leader", "role");
    puppet.program().kill();
    next.gets_it();
}

#[test]
fn a_keepalive_that_stops_ends_the_session() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"tether": "keepalive", "keepalive_ms": 3000})).session;
    let held = http.acquire(session, "leader", "role", &json!({}));
    let next = Heir::wait_for(&agent, "leader", "role");
    next.gets_it();
    http.post("/v1/beat", &json!({"session": session})).problem(Code::SessionLost);
    let release = json!({"session": session, "hold": held.hold});
    http.post("/v1/release", &release).problem(Code::SessionLost);
}

#[test]
fn a_stopped_program_that_promised_progress_is_stalled() {
    let agent = Agent::start();
    let mut puppet = Puppet::start(&agent);
    let with = json!({"tether": "connection", "progress_ms": 5000});
    let session = puppet.register(&with).session;
    puppet.open_events(session).snapshot();
    // The program cannot read its own stream while it is stopped.
    let witness = agent.events(session);
    let held = puppet.acquire(session, "leader", "role", &json!({"ttl_ms": 600_000}));
    let next = Heir::wait_for(&agent, "leader", "role");
    assert_eq!(puppet.post("/v1/beat", &json!({"session": session})).status, 204);
    puppet.program().pause();
    assert_eq!(witness.lost(held.hold).reason, LostReason::Stalled);
    next.gets_it();
}

#[test]
fn a_hold_ends_at_its_longest_time() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({})).session;
    let events = agent.events(session);
    let held = http.acquire(session, "semaphore", "gpu", &json!({"max_hold_ms": 2000}));
    let next = Heir::wait_for(&agent, "semaphore", "gpu");
    assert_eq!(events.lost(held.hold).reason, LostReason::MaxHold);
    next.gets_it();
}

#[test]
fn the_end_of_a_session_takes_its_waiters_along() {
    let agent = Agent::start();
    let mut http = agent.http();
    let holder = http.register(&json!({})).session;
    http.acquire(holder, "leader", "role", &json!({}));
    let mut puppet = Puppet::start(&agent);
    let session = puppet.register(&json!({"tether": "process"})).session;
    puppet.queue(session, "leader", "role", &json!({}));
    // A caller that blocks is a waiter too.
    let blocking = json!({"session": session, "kind": "semaphore", "name": "s", "wait": "block"});
    http.acquire(holder, "semaphore", "s", &json!({}));
    puppet.start_call("POST", "/v1/acquire", &blocking);
    until("both to wait", || agent.counts() == (2, 2, 2));
    puppet.program().kill();
    until("both to be gone", || agent.counts() == (1, 2, 0));
}
