//! `tenure run`: its usage, its exit codes, and signals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure_tests::harness::{
    Agent, Client, Program, TenureRun, read_when_there, run_to_end, runs, until,
};
use uuid::Uuid;

const LEADER: [&str; 2] = ["--leader", "role"];

#[track_caller]
fn is_held(args: &[&str]) {
    let agent = Agent::start();
    let (code, out, err) = TenureRun::new(&agent.socket(), args, &["true"]).finish();
    assert_eq!(code, 0, "{args:?}: {out}{err}");
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

/// Someone in this process who holds a leader role.
#[track_caller]
fn hold_role(agent: &Agent) -> (Uuid, Uuid) {
    let mut http = agent.http();
    let session = http.register(&json!({"name": "incumbent", "keepalive_ms": 600_000})).session;
    let granted = http.acquire(session, "leader", "role", &json!({}));
    (session, granted.hold)
}

fn file(agent: &Agent, name: &str) -> (PathBuf, String) {
    let path = agent.dir().join(name);
    let text = path.display().to_string();
    (path, text)
}

#[test]
fn every_kind_can_be_held() {
    is_held(&LEADER);
    is_held(&["--semaphore", "gpu", "--limit", "2"]);
    is_held(&["--lease", "mailbox"]);
    is_held(&["--master", "--project", "p"]);
}

#[test]
fn wrong_usage_exits_64() {
    let agent = Agent::start();
    for args in [
        vec!["run"],
        vec!["run", "--leader", "role"],
        vec!["run", "--", "true"],
        vec!["run", "--leader", "a", "--lease", "b", "--", "true"],
        vec!["run", "--leader", "a", "--limit", "2", "--", "true"],
        vec!["run", "--leader", "a", "--wait", "soon", "--", "true"],
        vec!["run", "--leader", "a", "--colour", "--", "true"],
        vec!["no-such-command"],
    ] {
        let mut command = TenureRun::new(&agent.socket(), &[], &["true"]);
        let program = command.command().get_program().to_owned();
        let status = std::process::Command::new(program)
            .env("TENURE_SOCKET", agent.socket())
            .args(&args)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("it starts");
        assert_eq!(status.code(), Some(64), "{args:?}");
    }
}

#[test]
fn without_an_agent_it_exits_69_and_says_where_it_looked() {
    let nowhere = Path::new("/nowhere/api.sock");
    let (code, _, err) = TenureRun::new(nowhere, &LEADER, &["true"]).finish();
    assert_eq!(code, 69, "{err}");
    assert!(err.contains("/nowhere/api.sock"), "{err}");
}

#[test]
fn a_role_that_is_taken_exits_75() {
    let agent = Agent::start();
    hold_role(&agent);
    let run = |wait: &[&str]| {
        let args = [&LEADER[..], wait].concat();
        TenureRun::new(&agent.socket(), &args, &["true"]).finish()
    };
    let (code, _, err) = run(&["--no-wait"]);
    assert_eq!(code, 75, "{err}");
    assert!(err.contains("incumbent"), "names the holder: {err}");
    let (code, _, err) = run(&["--wait", "100ms"]);
    assert_eq!(code, 75, "{err}");
    assert!(err.contains("leader/role"), "names the role: {err}");
    assert_eq!(agent.http().standing("leader", "role").waiters, []);
}

#[test]
fn the_end_of_a_command_is_seen_with_sigchld_blocked() {
    let agent = Agent::start();
    let mut command = std::process::Command::new("env");
    command.arg("--block-signal=CHLD").arg(tenure_tests::harness::binary("tenure"));
    command.args([
        "run",
        "--leader",
        "role",
        "--ttl",
        "10m",
        "--",
        "sh",
        "-c",
        "sleep 0.2; exit 3",
    ]);
    let mut run = Program::start(command.env("TENURE_SOCKET", agent.socket()));
    assert_eq!(run.wait_code(), 3);
}

#[test]
fn a_longest_time_that_leaves_none_for_sigterm_is_refused() {
    let agent = Agent::start();
    let none = ["--max-hold", "5s", "--kill-after", "0s"];
    let run = |more: &[&str]| {
        let args = [&LEADER[..], &none, more].concat();
        TenureRun::new(&agent.socket(), &args, &["true"]).finish()
    };
    let (code, _, err) = run(&[]);
    assert_eq!(code, 64, "{err}");
    assert!(err.contains("no time between SIGTERM and SIGKILL"), "{err}");
    assert_eq!(run(&["--on-lost", "kill"]).0, 0);
}

#[test]
fn the_command_is_told_what_it_holds() {
    let agent = Agent::start();
    let script =
        "echo $TENURE_HOLD $TENURE_TOKEN $TENURE_PAGE $TENURE_SOCKET; test -r $TENURE_PAGE";
    let run = TenureRun::new(&agent.socket(), &LEADER, &["sh", "-c", script]);
    let (code, out, err) = run.finish();
    assert_eq!(code, 0, "{err}");
    let words: Vec<&str> = out.split_whitespace().collect();
    let [hold, token, page, socket] = words[..] else { panic!("four words: {out}") };
    hold.parse::<Uuid>().expect("a hold is a uuid");
    assert!(token.parse::<u64>().expect("a token is a number") > 0);
    assert!(page.starts_with(&agent.runtime_dir().display().to_string()), "{page}");
    assert_eq!(Path::new(socket), agent.socket());
}

#[test]
fn signals_are_forwarded_while_the_command_runs() {
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGUSR1, "USR1"),
    ] {
        let agent = Agent::start();
        let (ready, text) = file(&agent, "ready");
        let script = format!("trap 'exit 7' {name}; echo x > {text}; while :; do sleep 0.02; done");
        let mut run = TenureRun::new(&agent.socket(), &LEADER, &["sh", "-c", &script]).start();
        read_when_there(&ready);
        run.signal(signal);
        assert_eq!(run.wait_code(), 7, "{signal}");
        until("the role to be free", || agent.counts() == (0, 0, 0));
    }
}

#[test]
fn a_signal_while_waiting_ends_it_and_leaves_no_waiter() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        let agent = Agent::start();
        let (session, hold) = hold_role(&agent);
        let (path, text) = file(&agent, "ran");
        let mut run = TenureRun::new(&agent.socket(), &LEADER, &["touch", &text]).start();
        until("it to wait", || agent.http().standing("leader", "role").waiters.len() == 1);
        run.signal(signal);
        assert_eq!(run.wait_code(), 128 + signal as i32);
        until("nothing to be left", || agent.counts() == (1, 1, 0));
        assert!(agent.http().release(session, hold));
        assert!(!path.exists(), "the command never ran");
    }
}

#[test]
fn a_signal_at_the_instant_of_the_grant_leaves_nothing() {
    const ROUNDS: usize = 60;
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"name": "incumbent", "keepalive_ms": 600_000})).session;
    let names: Vec<String> = (0..ROUNDS).map(|round| format!("role-{round}")).collect();
    let mut rounds: Vec<(Uuid, Program)> = names
        .iter()
        .map(|name| {
            let hold = http.acquire(session, "leader", name, &json!({})).hold;
            let args = ["--leader", name];
            (hold, TenureRun::new(&agent.socket(), &args, &["sh", "-c", "exit 7"]).start())
        })
        .collect();
    until("all to wait", || agent.counts().2 == ROUNDS as u64);
    let start = Barrier::new(2);
    for ((hold, run), round) in rounds.iter().zip(0..) {
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                // At once, and up to 20 ms after the release, around the time at which the command begins.
                thread::sleep(Duration::from_micros(round * 20_000 / ROUNDS as u64));
                run.signal(Signal::SIGTERM);
            });
            start.wait();
            assert!(http.release(session, *hold));
        });
    }
    let killed = 128 + Signal::SIGTERM as i32;
    for ((_, run), name) in rounds.iter_mut().zip(&names) {
        let (code, out, err) = run_to_end(run);
        println!("{name}: {code}");
        assert!(code == killed || code == 7, "{name}: {code} {out}{err}");
    }
    until("nothing to be left", || agent.counts() == (1, 0, 0));
    for name in &names {
        http.acquire(session, "leader", name, &json!({}));
    }
}

#[test]
fn a_killed_wrapper_leaves_the_hold_to_the_last_of_its_children() {
    let agent = Agent::start();
    let (path, text) = file(&agent, "pids");
    let script = format!("sleep 1000 & echo $$ $! > {text}; wait");
    let mut command = TenureRun::new(&agent.socket(), &LEADER, &["sh", "-c", &script]);
    command.command().stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = command.start();
    let pids: Vec<i32> = read_when_there(&path)
        .split_whitespace()
        .map(|pid| pid.parse().expect("a process number"))
        .collect();
    let (child, grandchild) = (Pid::from_raw(pids[0]), Pid::from_raw(pids[1]));
    let token = agent.http().standing("leader", "role").holders[0].token;

    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let events = agent.events(session);
    let next = http.queue(session, "leader", "role", &json!({}));
    // A second guarded program, started before: its end shows that the agent sees deaths.
    let witness =
        TenureRun::new(&agent.socket(), &["--leader", "other"], &["sleep", "1000"]).start();
    until("the witness to hold", || agent.http().standing("leader", "other").holders.len() == 1);

    run.kill();
    kill(child, Signal::SIGKILL).expect("the child is running");
    witness.signal(Signal::SIGTERM);
    until("the witness to be gone", || agent.http().standing("leader", "other").holders.is_empty());
    assert!(runs(grandchild));
    let standing = agent.http().standing("leader", "role");
    assert_eq!(standing.holders[0].token, token, "the grandchild still works under this hold");
    assert!(!events.has("granted", next.hold));

    kill(grandchild, Signal::SIGKILL).expect("the grandchild is running");
    events.granted(next.hold);
}

#[test]
fn eight_at_once_take_turns() {
    let agent = Agent::start();
    let (_, text) = file(&agent, "exclusive");
    let script = format!("mkdir {text} && rmdir {text}");
    let mut all: Vec<Program> = (0..8)
        .map(|_| TenureRun::new(&agent.socket(), &LEADER, &["sh", "-c", &script]).start())
        .collect();
    for run in &mut all {
        let (code, _, err) = run_to_end(run);
        assert_eq!(code, 0, "{err}");
    }
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn a_changed_limit_is_said_on_stderr_and_no_limit_is_the_one_in_force() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "semaphore", "enc", &json!({"limit": 4}));
    let run = |args: &[&str]| {
        let args = [&["--semaphore", "enc"], args].concat();
        let (code, _, err) = TenureRun::new(&agent.socket(), &args, &["true"]).finish();
        (code, err)
    };
    assert_eq!(run(&["--no-wait"]), (0, String::new()));
    assert_eq!(agent.http().standing("semaphore", "enc").limit, Some(4));
    let changed = |from: u32, to: u32| {
        format!("semaphore/enc: limit changed from {from} to {to} for everybody")
    };
    let (code, err) = run(&["--no-wait", "--limit", "5"]);
    assert!(code == 0 && err.contains(&changed(4, 5)), "{code} {err}");
    assert_eq!(agent.http().standing("semaphore", "enc").limit, Some(5));
    // A refused request has changed it all the same.
    let (code, err) = run(&["--no-wait", "--limit", "1"]);
    assert!(code == 75 && err.contains(&changed(5, 1)), "{code} {err}");
    http.acquire(session, "semaphore", "enc", &json!({"limit": 2}));
    let (code, err) = run(&["--wait", "100ms", "--limit", "1"]);
    assert!(code == 75 && err.contains(&changed(2, 1)), "{code} {err}");
}

#[test]
fn a_semaphore_lets_only_so_many_in() {
    let agent = Agent::start();
    let (dir, text) = file(&agent, "inside");
    fs::create_dir(&dir).expect("the directory is ours");
    // Each marks itself and counts the marks: with a limit of 3 nobody may ever see four.
    let script = format!(
        "touch {text}/$$; n=$(ls {text} | wc -l); rm {text}/$$; [ $n -le 3 ] || {{ echo $n >&2; exit 9; }}"
    );
    let args = ["--semaphore", "gpu", "--limit", "3"];
    let mut all: Vec<Program> = (0..12)
        .map(|_| TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]).start())
        .collect();
    for run in &mut all {
        let (code, _, err) = run_to_end(run);
        assert_ne!(code, 9, "more than three at once: {err}");
        assert_eq!(code, 0, "{err}");
    }
}
