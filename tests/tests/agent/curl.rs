//! The whole API with nothing but curl.

use std::fs::{self, File};

use serde_json::{Value, json};
use tenure::wire::{Acquired, Code, HoldState, Waiting};
use tenure_tests::harness::{Agent, Client, Curl, Program, until};

/// `curl -N` on an event stream, and the file that it writes to.
struct CurlEvents {
    _curl: Program,
    output: std::path::PathBuf,
}

impl CurlEvents {
    fn open(agent: &Agent, session: uuid::Uuid) -> CurlEvents {
        let output = agent.dir().join(format!("events-{session}"));
        let mut command =
            Curl::new(&agent.socket()).command(&format!("/v1/events?session={session}"));
        command.stdout(File::create(&output).expect("the agent's directory is ours"));
        CurlEvents { _curl: Program::start(&mut command), output }
    }

    #[track_caller]
    fn wait_for(&self, event: &str) -> String {
        let read = || fs::read_to_string(&self.output).expect("the file was made before");
        // The blank line ends the frame: before it the data may be half there.
        let complete = |text: &str| {
            text.split_once(&format!("event: {event}\n"))
                .is_some_and(|(_, rest)| rest.contains("\n\n"))
        };
        until(&format!("event {event} in {:?}", self.output), || complete(&read()));
        read()
    }
}

fn tour(kind: &str, name: &str, more: &Value) {
    let agent = Agent::start();
    let mut curl = Curl::new(&agent.socket());

    let session = curl.register(&json!({"name": "shell script", "project": "tour"}));
    assert!(!session.secret.is_empty());
    assert!(!session.resumed);
    assert_eq!(session.agent.upstream, "embedded");
    assert_eq!(session.agent.guarantee, "one host");
    assert_eq!(agent.page(&session).session(), session.session);

    let events = CurlEvents::open(&agent, session.session);
    events.wait_for("snapshot");

    let granted = curl.acquire(session.session, kind, name, more);
    assert_eq!(granted.kind.as_str(), kind);
    assert_eq!(granted.name, if kind == "master" { "tour" } else { name });
    assert_eq!(granted.state, HoldState::Held);
    assert!(granted.token > 0);
    assert!(granted.valid_ms < granted.ttl_ms, "valid-until comes before the upstream's expiry");
    assert!(agent.page(&session).held(granted.hold));
    let stream = events.wait_for("granted");
    assert!(stream.contains(&granted.hold.to_string()), "{stream}");
    assert!(stream.contains(&granted.token.to_string()), "{stream}");

    assert!(curl.release(session.session, granted.hold));
    assert!(!agent.page(&session).held(granted.hold));
    events.wait_for("released");
    assert!(!curl.release(session.session, granted.hold), "it is given back already");

    assert!(curl.end(session.session));
    events.wait_for("shutdown");
    assert_eq!(agent.counts(), (0, 0, 0));
}

#[test]
fn a_leader_from_register_to_release() {
    tour("leader", "cleanup", &json!({}));
}

#[test]
fn a_master_from_register_to_release() {
    tour("master", "", &json!({"priority": 3}));
}

#[test]
fn a_lease_from_register_to_release() {
    let attributes = json!({"address": "10.0.0.7:8982", "proxy_id": "p1", "status": "warm"});
    tour("lease", "mailbox-7", &json!({"grace_ms": 1000, "attributes": attributes}));
}

#[test]
fn a_permit_from_register_to_release() {
    tour("semaphore", "gpu", &json!({"limit": 2, "max_hold_ms": 600_000}));
}

#[test]
fn an_empty_body_registers_with_the_defaults() {
    let agent = Agent::start();
    let mut curl = Curl::new(&agent.socket());
    let session = curl.register(&json!({}));
    let status = curl.status();
    let seen = status.sessions.iter().find(|s| s.session == session.session);
    let seen = seen.expect("the caller sees its own session");
    assert_eq!(seen.tether, tenure::wire::Tether::Keepalive);
    assert_eq!((seen.tenant.as_str(), seen.project.as_str()), ("default", "default"));
}

#[test]
fn wait_none_is_refused_and_names_the_holder() {
    let agent = Agent::start();
    let mut curl = Curl::new(&agent.socket());
    let first = curl.register(&json!({"name": "first"}));
    let second = curl.register(&json!({"name": "second"}));
    for (kind, more) in [
        ("leader", json!({})),
        ("lease", json!({})),
        ("semaphore", json!({})),
        ("master", json!({})),
    ] {
        let granted = curl.acquire(first.session, kind, "taken", &more);
        let problem = curl.ask(second.session, kind, "taken", &more).problem(Code::Contended);
        let holder = problem.holder.expect("on this host everybody is known");
        assert_eq!(holder.name, "first", "{kind}");
        assert_eq!(holder.token, granted.token, "{kind}");
        assert!(!holder.host.is_empty(), "{kind}");
        assert!(holder.uid.is_some(), "{kind}");
        assert_eq!(
            curl.standing(kind, if kind == "master" { "default" } else { "taken" }).waiters,
            []
        );
    }
}

#[test]
fn wait_block_answers_when_the_holder_lets_go() {
    let agent = Agent::start();
    let mut curl = Curl::new(&agent.socket());
    let first = curl.register(&json!({}));
    let second = curl.register(&json!({}));
    let held = curl.acquire(first.session, "leader", "role", &json!({}));

    let blocked = std::thread::spawn({
        let mut curl = Curl::new(&agent.socket());
        move || {
            let more = json!({"wait": "block"});
            curl.ask(second.session, "leader", "role", &more).expect::<Acquired>(200)
        }
    });
    until("the second to wait", || curl.standing("leader", "role").waiters.len() == 1);
    curl.release(first.session, held.hold);
    let granted = blocked.join().expect("the second was granted");
    assert!(granted.token > held.token);
}

#[test]
fn wait_block_gives_up_at_its_timeout() {
    let agent = Agent::start();
    let mut curl = Curl::new(&agent.socket());
    let first = curl.register(&json!({}));
    let second = curl.register(&json!({}));
    for kind in ["leader", "semaphore"] {
        curl.acquire(first.session, kind, "role", &json!({}));
        let more = json!({"wait": "block", "timeout_ms": 50});
        curl.ask(second.session, kind, "role", &more).problem(Code::WaitTimeout);
        assert_eq!(curl.standing(kind, "role").waiters, [], "a wait that ended leaves nothing");
    }
}

#[test]
fn wait_queue_answers_at_once_and_grants_by_event() {
    let agent = Agent::start();
    let mut curl = Curl::new(&agent.socket());
    let first = curl.register(&json!({}));
    let second = curl.register(&json!({}));
    let events = CurlEvents::open(&agent, second.session);
    let held = curl.acquire(first.session, "semaphore", "gpu", &json!({"limit": 1}));
    let answer =
        curl.ask(second.session, "semaphore", "gpu", &json!({"limit": 1, "wait": "queue"}));
    let waiting: Waiting = answer.expect(202);
    assert_eq!(waiting.state, HoldState::Waiting);
    assert_eq!(waiting.position, Some(1));
    curl.release(first.session, held.hold);
    let stream = events.wait_for("granted");
    assert!(stream.contains(&waiting.hold.to_string()), "{stream}");
}

#[test]
fn a_caller_that_disconnects_cancels_its_wait() {
    let agent = Agent::start();
    let mut curl = Curl::new(&agent.socket());
    let first = curl.register(&json!({}));
    let second = curl.register(&json!({}));
    for kind in ["leader", "lease", "semaphore"] {
        curl.acquire(first.session, kind, "role", &json!({}));
        let body = json!({
            "session": second.session, "kind": kind, "name": "role", "wait": "block",
        });
        let mut command = curl.command("/v1/acquire");
        command.arg("--data").arg(body.to_string()).stdout(std::process::Stdio::null());
        let mut blocked = Program::start(&mut command);
        until("the second to wait", || curl.standing(kind, "role").waiters.len() == 1);
        blocked.kill();
        until("the wait to be cancelled", || curl.standing(kind, "role").waiters.is_empty());
    }
}

#[test]
fn the_same_request_id_is_the_same_hold() {
    let agent = Agent::start();
    let mut curl = Curl::new(&agent.socket());
    let session = curl.register(&json!({}));
    let more = json!({"request": "job 17, first try"});
    let first = curl.acquire(session.session, "leader", "role", &more);
    let again = curl.acquire(session.session, "leader", "role", &more);
    assert_eq!((first.hold, first.token), (again.hold, again.token));
    assert_eq!(agent.counts(), (1, 1, 0));

    let other = curl.ask(session.session, "leader", "role", &json!({"request": "job 18"}));
    let problem = other.problem(Code::Contended);
    assert_eq!(problem.holder.and_then(|holder| holder.hold), Some(first.hold), "not re-entrant");
}
