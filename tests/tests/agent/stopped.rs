//! A stopped agent: everybody knows in time that nothing is held any more.

use nix::sys::signal::Signal;
use serde_json::json;
use tenure::wire::LostReason;
use tenure_tests::harness::{Agent, Client, boottime_ns, until};

#[test]
fn the_page_ends_by_itself_and_the_agent_owns_up_when_it_goes_on() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000}));
    let events = agent.events(session.session);
    let held = http.acquire(session.session, "leader", "role", &json!({"ttl_ms": 3000}));
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
fn the_time_in_which_the_agent_stood_still_does_not_count_against_a_program() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let with = json!({"keepalive_ms": 4000, "progress_ms": 4000});
    let session = http.register(&with);
    let held = http.acquire(session.session, "lease", "mine", &json!({"ttl_ms": 600_000}));
    let page = agent.page(&session);
    agent.pause();
    let over = boottime_ns() + 5_000_000_000;
    until("what the program has promised to be overdue", || boottime_ns() >= over);
    agent.resume();
    assert_eq!(http.post("/v1/beat", &json!({"session": session.session})).status, 204);
    assert!(page.held(held.hold));
    // A busy machine may have the agent stand still for a second at any time.
    let told = || {
        let log = agent.log();
        let lengths = log.split("stood still for ").skip(1).map(|rest| {
            let (seconds, rest) = rest.split_once(" s: ").expect("a length");
            assert!(rest.starts_with("0 holds expired meanwhile"), "{rest}");
            seconds.parse::<f64>().expect("seconds")
        });
        lengths.filter(|seconds| *seconds >= 4.5).count()
    };
    until("the log to tell", || told() == 1);
}

#[test]
fn a_waiter_is_served_after_the_agent_goes_on() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let holder = http.register(&json!({"keepalive_ms": 600_000})).session;
    let waiter = http.register(&json!({"keepalive_ms": 600_000})).session;
    let events = agent.events(waiter);
    for kind in ["leader", "semaphore"] {
        let held = http.acquire(holder, kind, "role", &json!({"ttl_ms": 2000}));
        let waiting = http.queue(waiter, kind, "role", &json!({"ttl_ms": 600_000}));
        agent.pause();
        until("valid-until to pass", || {
            boottime_ns() >= held.valid_until_boottime_ns + 2_000_000_000
        });
        agent.signal(Signal::SIGCONT);
        assert!(events.granted(waiting.hold).token > held.token);
    }
}
