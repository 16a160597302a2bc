//! The runtime and state directories belong to one agent, and are safe from other users.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::Signal;
use serde_json::json;
use tenure_tests::harness::{Agent, Client, binary, until};

/// Tries to start an agent beside another one.
fn second(agent: &Agent, runtime_dir: &Path, state_dir: &Path) -> Output {
    Command::new(binary("tenured"))
        .arg("--socket")
        .arg(agent.dir().join("other.sock"))
        .arg("--runtime-dir")
        .arg(runtime_dir)
        .arg("--state-dir")
        .arg(state_dir)
        .output()
        .expect("it ends")
}

#[test]
fn a_second_agent_with_a_socket_of_its_own_is_refused() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({}));
    let grant = http.acquire(session.session, "leader", "role", &json!({"ttl_ms": 600_000}));
    let own = |name: &str| -> PathBuf { agent.dir().join(name) };
    let (run, state) = (agent.runtime_dir(), own("state"));
    let cases = [(&run, &state, &run), (&run, &own("s"), &run), (&own("r"), &state, &state)];
    for (runtime_dir, state_dir, taken) in cases {
        let output = second(&agent, runtime_dir, state_dir);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{error}");
        let pid = agent.pid();
        let expected = format!(
            "another agent (pid {pid}) uses {}; give this one --runtime-dir and --state-dir of its \
             own, or stop that one (kill {pid})",
            taken.display()
        );
        assert!(error.contains(&expected), "{error}");
    }
    assert!(!own("other.sock").exists());
    assert!(agent.page(&session).held(grant.hold), "nothing of the first one's was touched");
    assert_eq!(http.standing("leader", "role").holders[0].token, grant.token);
}

/// Neither while the earlier one drains nor after its death is there a moment in which the next one
/// fails.
#[test]
fn the_next_agent_waits_for_the_end_of_the_one_before() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"tether": "keepalive", "keepalive_ms": 600_000}));
    let grant = http.acquire(session.session, "leader", "role", &json!({"ttl_ms": 600_000}));
    agent.signal(Signal::SIGUSR2);
    until("the agent to be on its way out", || agent.log().contains("restarting: "));
    assert!(agent.start_next().success());
    agent.signal(Signal::SIGKILL);
    agent.start_next();
    let holder = agent.http().standing("leader", "role").holders.remove(0);
    assert_eq!(holder.token, grant.token);
    assert!(agent.page(&session).held(grant.hold));
}

#[test]
fn a_socket_that_vanished_is_made_again() {
    let agent = Agent::start();
    let mut before = agent.http();
    let session = before.register(&json!({}));
    fs::remove_file(agent.socket()).expect("it is there");
    until("the socket to be there again", || {
        agent.http().try_call("GET", "/healthz", b"").is_ok_and(|answer| answer.status == 200)
    });
    until("it to be said", || agent.log().contains("had vanished: it is made again"));
    // Connections of the old one go on, in the same agent.
    let grant = before.acquire(session.session, "leader", "role", &json!({}));
    assert_eq!(agent.http().standing("leader", "role").holders[0].token, grant.token);
}

/// A file that is shorter than its mapping faults, as one on a file system that turned read-only does.
#[test]
fn a_page_that_cannot_be_written_does_not_end_the_agent() {
    let agent = Agent::start();
    let mut http = agent.http();
    let [broken, whole] = [0, 1].map(|_| http.register(&json!({})));
    let page = agent.page(&whole);
    fs::set_permissions(&broken.page, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let file = File::options().write(true).open(&broken.page).expect("it can be written");
    file.set_len(0).expect("it can be cut");
    http.acquire(broken.session, "leader", "one", &json!({}));
    let grant = http.acquire(whole.session, "leader", "two", &json!({}));
    assert!(page.held(grant.hold));
    until("it to be said", || agent.log().contains("a page cannot be written"));
}
