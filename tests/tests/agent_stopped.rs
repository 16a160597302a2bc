//! A stopped agent: everybody knows in time that nothing is held any more.

use std::fs;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure::wire::LostReason;
use tenure_tests::harness::{Agent, Client, TenureRun, boottime_ns, eventually, until};

#[test]
fn the_page_ends_by_itself_and_the_agent_owns_up_when_it_goes_on() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000}));
    let events = agent.events(session.session);
    let held = http.acquire(session.session, "leader", "role", &json!({"ttl_ms": 1500}));
    let page = agent.page(&session);
    assert!(page.held(held.hold));

    agent.pause();
    let valid_until = page.slot(held.slot).valid_until_ns;
    until("valid-until to pass", || boottime_ns() >= valid_until);
    assert!(!page.held(held.hold), "nobody had to tell");
    assert_eq!(page.slot(held.slot).valid_until_ns, valid_until);

    agent.resume();
    let lost = events.lost(held.hold);
    assert_eq!(lost.reason, LostReason::Expired);
    assert_eq!(lost.token, held.token);
    assert_eq!(page.slot(held.slot).valid_until_ns, 0);
    let next = http.acquire(session.session, "leader", "role", &json!({"wait": "block"}));
    assert!(next.token > held.token);
}

#[test]
fn a_guarded_command_is_ended_without_the_agent() {
    // The first obeys SIGTERM, the second must be killed.
    for trap in ["", "trap '' TERM; "] {
        let mut agent = Agent::start();
        let path = agent.dir().join("pid");
        let script = format!(
            "{trap}echo $$ $TENURE_PAGE > {}; while :; do sleep 0.02; done",
            path.display()
        );
        let args = ["--leader", "role", "--ttl", "3s", "--kill-after", "1s"];
        let mut command = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]);
        command.command().stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = command.start();
        let said = eventually("the command to run", || {
            fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        });
        let (pid, _) = said.split_once(' ').expect("two words");
        let child = Pid::from_raw(pid.parse().expect("a process number"));

        agent.pause();
        until("the command to be ended", || kill(child, None).is_err());
        assert_eq!(run.wait_code(), 74);
        agent.resume();
        until("nothing to be left", || agent.counts() == (0, 0, 0));
    }
}

#[test]
fn a_waiter_is_served_after_the_agent_goes_on() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let holder = http.register(&json!({"keepalive_ms": 600_000})).session;
    let waiter = http.register(&json!({"keepalive_ms": 600_000})).session;
    let events = agent.events(waiter);
    for kind in ["leader", "semaphore"] {
        let held = http.acquire(holder, kind, "role", &json!({"ttl_ms": 1000}));
        let waiting = http.queue(waiter, kind, "role", &json!({"ttl_ms": 600_000}));
        agent.pause();
        until("valid-until to pass", || {
            boottime_ns() >= held.valid_until_boottime_ns + 1_000_000_000
        });
        agent.signal(Signal::SIGCONT);
        assert!(events.granted(waiting.hold).token > held.token);
    }
}
