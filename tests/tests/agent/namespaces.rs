//! Clients that the agent has no number for, because they live in another PID namespace than it does:
//! containers that share nothing but the socket's directory.

use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;
use tenure::wire::{Code, SessionStatus};
use tenure_tests::harness::{Agent, Client, Heir, Puppet, TenureRun, binary, other_users, until};
use uuid::Uuid;

/// An agent in a PID namespace of its own; `None` without root.
fn agent_apart() -> Option<(Agent, [u32; 2])> {
    let users = other_users()?;
    Some((Agent::setup().open_to_all().apart().start(), users))
}

#[track_caller]
fn status_of(agent: &Agent, session: Uuid) -> SessionStatus {
    let mut sessions = agent.http().status().sessions.into_iter();
    sessions.find(|status| status.session == session).expect("root sees every session")
}

#[test]
fn a_process_without_a_number_is_watched_all_the_same() {
    let Some((agent, [uid, other])) = agent_apart() else { return };
    for (mut client, tether) in [
        (Puppet::start(&agent), "process"),
        (Puppet::start_as(&agent, uid), "process"),
        (Puppet::start_apart(&agent, uid), "process"),
        (Puppet::start_apart(&agent, other), "connection"),
    ] {
        let (session, next) = Heir::of(&agent, &mut client, tether);
        let mut http = agent.http();
        http.post("/v1/beat", &json!({"session": session})).problem(Code::SessionLost);
        http.end(next.session);
    }
    until("nothing to be left", || agent.counts() == (0, 0, 0));
    // Each death was seen as one, not only as the end of a connection. The log is written later.
    until("four lines in the log", || agent.log().matches("\"process exited\"").count() == 4);
}

#[test]
fn two_containers_hand_over() {
    let Some((agent, [one, other])) = agent_apart() else { return };
    let mut first = Puppet::start_apart(&agent, one);
    let mut second = Puppet::start_apart(&agent, other);
    let with = json!({"tether": "process"});
    let [held, waiting] = [&mut first, &mut second].map(|puppet| puppet.register(&with));
    let grant = first.acquire(held.session, "leader", "role", &json!({}));
    let events = second.open_events(waiting.session);
    let wait = second.queue(waiting.session, "leader", "role", &json!({})).hold;

    // Each reads its own page, and nobody else's.
    for (puppet, own, others) in [(&mut first, &held, &waiting), (&mut second, &waiting, &held)] {
        assert_eq!(puppet.read_file(&own.page), Ok(4096));
        puppet.read_file(&others.page).expect_err("it is another user's");
    }
    assert!(agent.page(&held).held(grant.hold) && !agent.page(&waiting).held(wait));

    first.program().kill();
    let granted = events.granted(wait);
    assert!(granted.token > grant.token);
    assert!(agent.page(&waiting).held(wait));
}

#[test]
fn no_number_is_shown_rather_than_a_wrong_one() {
    let Some((agent, [uid, _])) = agent_apart() else { return };
    let mut client = Puppet::start_apart(&agent, uid);
    let session = client.register(&json!({"tether": "process"})).session;
    client.acquire(session, "leader", "role", &json!({}));
    let status = status_of(&agent, session);
    assert_eq!((status.pid, status.uid), (None, uid));
    assert_eq!(status.name, format!("uid-{uid}"));
    let holder = agent.http().standing("leader", "role").holders.remove(0);
    assert_eq!((holder.pid, holder.uid), (None, Some(uid)));

    // The other way round its number is the one that it has for the agent.
    let agent = Agent::setup().open_to_all().start();
    let mut client = Puppet::start_apart(&agent, uid);
    let session = client.register(&json!({"tether": "process"})).session;
    assert_eq!(status_of(&agent, session).pid, Some(client.program().pid()));
}

#[test]
fn a_proc_of_another_namespace_is_not_believed() {
    if other_users().is_none() {
        return;
    }
    // With a /proc of its own the agent has a number for its neighbour.
    let agent = Agent::setup().apart().start();
    let mut client = Puppet::start_beside(&agent);
    let session = client.register(&json!({"tether": "process"})).session;
    let pid = status_of(&agent, session).pid;
    assert!(pid.is_some_and(|pid| pid != client.program().pid()), "not the test's: {pid:?}");

    // With another's that number is some other process's there, if it is any.
    let agent = Agent::setup().apart_with_foreign_proc().start();
    let mut client = Puppet::start_beside(&agent);
    let session = client.register(&json!({"tether": "process"})).session;
    assert_eq!(status_of(&agent, session).pid, None);
    client.acquire(session, "leader", "role", &json!({}));
    let next = Heir::wait_for(&agent, "leader", "role");
    client.program().kill();
    next.gets_it();
}

#[test]
fn a_session_follows_whoever_resumes_it() {
    let Some((agent, [uid, _])) = agent_apart() else { return };
    let mut first = Puppet::start_apart(&agent, uid);
    let with = json!({"tether": "connection", "linger_ms": 86_400_000});
    let session = first.register(&with);
    first.open_events(session.session).snapshot();
    first.acquire(session.session, "leader", "role", &json!({}));
    let mut second = Puppet::start_apart(&agent, uid);
    second.resume(&session);
    second.open_events(session.session).snapshot();

    // A session of the first one alone proves that its death was seen.
    let own = first.register(&json!({"tether": "process"})).session;
    first.acquire(own, "leader", "own", &json!({}));
    let (witness, next) =
        (Heir::wait_for(&agent, "leader", "own"), Heir::wait_for(&agent, "leader", "role"));
    first.program().kill();
    witness.gets_it();
    assert!(!next.events.has("granted", next.hold), "the second one is at work");
    second.close_events(session.session);
    second.open_events(session.session).snapshot();
    assert!(!next.events.has("granted", next.hold), "it only reconnected");
    second.program().kill();
    next.gets_it();
}

#[test]
fn a_restart_keeps_what_processes_without_a_number_hold() {
    let Some((mut agent, [uid, _])) = agent_apart() else { return };
    let mut client = Puppet::start_apart(&agent, uid);
    let with = json!({"tether": "connection", "linger_ms": 86_400_000});
    let session = client.register(&with);
    let grant = client.acquire(session.session, "leader", "role", &json!({"ttl_ms": 600_000}));
    agent.kill();
    assert!(agent.page(&session).held(grant.hold), "also while there is no agent");
    agent.start_again();
    // Its socket is a new one.
    client.resume(&session);
    client.open_events(session.session).snapshot();
    let holder = agent.http().standing("leader", "role").holders.remove(0);
    assert_eq!(holder.token, grant.token);
    // To resume is to be watched again.
    let next = Heir::wait_for(&agent, "leader", "role");
    client.program().kill();
    next.gets_it();
}

#[test]
fn nobody_is_advised_to_kill_what_has_that_number_here() {
    let Some((agent, _)) = agent_apart() else { return };
    let mut second = Command::new(binary("tenured"));
    second.arg("--socket").arg(agent.socket());
    second.arg("--state-dir").arg(agent.dir().join("other"));
    second.arg("--runtime-dir").arg(agent.dir().join("another"));
    let output = second.output().expect("it ends");
    assert_eq!(output.status.code(), Some(69));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("another agent serves /"), "{error}");
}

/// As in a sidecar's pod, where it is what the application's container starts.
#[test]
fn tenure_run_may_be_the_first_process_of_a_container() {
    if other_users().is_none() {
        return;
    }
    let agent = Agent::start();
    let done = agent.dir().join("done");
    // The child of the first shell is left to whoever is number 1, and ends before the second one does.
    let script = format!(
        "(sh -c 'exit 3' & echo $! > {0}.orphan); while [ -e /proc/$(cat {0}.orphan) ]; do sleep 0.01; \
         done; echo reaped > {0}; sleep 1000",
        done.display()
    );
    let args = ["--leader", "role"];
    let mut run = TenureRun::start_apart(&agent.socket(), &args, &["sh", "-c", &script]);
    until("the orphan to be reaped", || done.exists());
    assert_eq!(agent.http().standing("leader", "role").holders.len(), 1);
    // A first process takes no signal that it does not ask for.
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait_code(), 128 + 15, "the command's");
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}
