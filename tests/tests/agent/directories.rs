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

/// Removes all that is there; the agent may make a part of it again meanwhile.
fn remove(folder: &Path) {
    until("it to be removed", || fs::remove_dir_all(folder).is_ok());
}

/// What the last logout does to the runtime directory of a user, and what people do who tidy up.
#[test]
fn a_runtime_directory_that_was_removed_is_made_again() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"tether": "keepalive", "keepalive_ms": 600_000}));
    let grant = http.acquire(session.session, "leader", "role", &json!({"ttl_ms": 600_000}));
    let mapped = agent.page(&session);
    let runtime_dir = agent.runtime_dir();
    let pages = runtime_dir.join("pages");
    for removed in [&runtime_dir, &pages, &runtime_dir] {
        remove(removed);
        until("the journal and the page to be there again", || {
            let is_served =
                agent.http().try_call("GET", "/healthz", b"").is_ok_and(|it| it.status == 200);
            is_served && agent.journal().exists() && Path::new(&session.page).exists()
        });
        assert!(agent.page(&session).held(grant.hold), "{}", removed.display());
        until("the log to say so", || agent.log().contains("had been removed: the agent makes"));
        let other = agent.http().register(&json!({"tether": "keepalive", "keepalive_ms": 600_000}));
        let hold = agent.http().acquire(other.session, "lease", "of-today", &json!({}));
        assert!(agent.page(&other).held(hold.hold));
        agent.http().release(other.session, hold.hold);
    }
    let output = second(&agent, &runtime_dir, &agent.dir().join("s"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another agent (pid "));
    // A program that has had it open since before reads on, and a killed agent has lost nothing.
    assert!(mapped.held(grant.hold));
    agent.kill();
    agent.start_again();
    assert_eq!(agent.http().standing("leader", "role").holders[0].token, grant.token);
    assert!(agent.page(&session).held(grant.hold));
    // Also one that somebody makes anew at once.
    remove(&pages);
    // Unless the agent was faster.
    let _ = fs::create_dir(&pages);
    until("the page to be there again", || Path::new(&session.page).exists());
    // A restart before the next look leaves a journal, too.
    remove(&runtime_dir);
    agent.signal(Signal::SIGUSR2);
    assert!(agent.start_next().success());
    assert_eq!(agent.http().standing("leader", "role").holders[0].token, grant.token);
    let mut http = agent.http();
    http.release(session.session, grant.hold);
    assert!(!agent.page(&session).held(grant.hold));
}

#[test]
fn an_emptied_runtime_directory_is_filled_again() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"tether": "keepalive", "keepalive_ms": 600_000}));
    let grant = http.acquire(session.session, "leader", "role", &json!({"ttl_ms": 600_000}));
    for name in ["journal.log", "lock"] {
        fs::remove_file(agent.runtime_dir().join(name)).expect("it is there");
    }
    remove(&agent.runtime_dir().join("pages"));
    until("all of it to be there again", || {
        let lock = agent.runtime_dir().join("lock");
        agent.journal().exists() && lock.exists() && Path::new(&session.page).exists()
    });
    let output = second(&agent, &agent.runtime_dir(), &agent.dir().join("s"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another agent (pid "));
    agent.kill();
    agent.start_again();
    assert_eq!(agent.http().standing("leader", "role").holders[0].token, grant.token);
    assert!(agent.page(&session).held(grant.hold));
}

/// As where another file system is mounted over it, and unmounted again.
#[test]
fn a_runtime_directory_that_comes_back_has_an_overtaken_journal() {
    let mut agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"tether": "keepalive", "keepalive_ms": 600_000}));
    let mut acquire =
        |name| http.acquire(session.session, "leader", name, &json!({"ttl_ms": 600_000}));
    let early = acquire("early");
    let (runtime_dir, aside) = (agent.runtime_dir(), agent.dir().join("aside"));
    fs::rename(&runtime_dir, &aside).expect("the folder is ours");
    until("another to be made", || agent.journal().exists());
    let late = acquire("late");
    agent.http().release(session.session, early.hold);
    until("the old one to be back", || {
        remove(&runtime_dir);
        fs::rename(&aside, &runtime_dir).is_ok()
    });
    until("the old one to be used again", || {
        agent.log().matches("had been removed: the agent makes").count() == 2
    });
    // What is written then survives a kill, and nothing of what was there before does.
    let last = agent.http().acquire(session.session, "leader", "last", &json!({"ttl_ms": 600_000}));
    until("the journal to be written anew", || {
        let journal = fs::read(agent.journal()).unwrap_or_default();
        journal.windows(4).any(|part| part == b"late")
    });
    agent.kill();
    agent.start_again();
    let mut http = agent.http();
    assert_eq!(http.standing("leader", "late").holders[0].token, late.token);
    assert_eq!(http.standing("leader", "last").holders[0].token, last.token);
    assert!(http.standing("leader", "early").holders.is_empty());
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
