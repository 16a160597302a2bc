//! `tenure run`: exit codes, signals, and that the guarded work never outlives its hold.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure_tests::harness::{
    Agent, Client, Program, TenureRun, boottime_ns, read_pid, read_when_there, run_to_end, runs,
    until,
};
use uuid::Uuid;

const LEADER: [&str; 2] = ["--leader", "role"];

#[track_caller]
fn check_code(args: &[&str], guarded: &[&str], expected: i32) {
    let agent = Agent::start();
    let (code, out, err) = TenureRun::new(&agent.socket(), args, guarded).finish();
    assert_eq!(code, expected, "{args:?} -- {guarded:?}: {out}{err}");
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
fn the_exit_code_is_the_commands() {
    check_code(&LEADER, &["true"], 0);
    check_code(&LEADER, &["false"], 1);
    check_code(&LEADER, &["sh", "-c", "exit 42"], 42);
    check_code(&["--semaphore", "gpu", "--limit", "2"], &["true"], 0);
    check_code(&["--lease", "mailbox"], &["true"], 0);
    check_code(&["--master", "--project", "p"], &["true"], 0);
}

#[test]
fn a_signalled_command_exits_with_128_and_the_signal() {
    check_code(&LEADER, &["sh", "-c", "kill -KILL $$"], 128 + 9);
    check_code(&LEADER, &["sh", "-c", "kill -TERM $$"], 128 + 15);
    // A real-time signal has a number but no name.
    check_code(&LEADER, &["sh", "-c", "kill -40 $$"], 128 + 40);
}

#[test]
fn a_command_that_cannot_run_is_told_why_with_the_exit_code_of_shells() {
    let agent = Agent::start();
    let script = |name: &str, text: &str| {
        let (path, name) = file(&agent, name);
        fs::write(&path, text).expect("the folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        name
    };
    let lacks = script("lacks", "#!/nowhere/interpreter -x\nexit 0\n");
    let ends = script("ends", "#!/bin/sh\r\nexit 0\r\n");
    let folder = agent.dir().display().to_string();
    for (program, expected, words) in [
        ("/nowhere/no-such-command", 127, "command not found"),
        ("no-such-command", 127, "command not found"),
        ("", 127, "command not found"),
        (&lacks, 127, "its first line names /nowhere/interpreter, which is not there"),
        (&ends, 127, "its first line ends with a carriage return"),
        ("/etc/passwd", 126, "check its mode"),
        (&folder, 126, "it is a directory"),
    ] {
        let (code, _, err) = TenureRun::new(&agent.socket(), &LEADER, &[program]).finish();
        assert_eq!(code, expected, "{program}: {err}");
        assert!(err.contains(words), "{program}: {err}");
    }
    until("nothing to be left", || agent.counts() == (0, 0, 0));
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
fn a_lost_hold_stops_the_command_and_exits_74() {
    let agent = Agent::start();
    let (path, text) = file(&agent, "pid");
    let script = format!("echo $$ > {text}; exec sleep 1000");
    let mut run = TenureRun::new(&agent.socket(), &LEADER, &["sh", "-c", &script]).start();
    let child = read_pid(&path);
    let revoke = json!({"kind": "leader", "name": "role"});
    assert_eq!(agent.http().post("/v1/revoke", &revoke).json(200)["revoked"], 1);
    let (code, _, err) = run_to_end(&mut run);
    assert_eq!(code, 74, "{err}");
    assert!(!runs(child));
    until("the role to be free", || agent.counts() == (0, 0, 0));
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_before_the_role_passes_on() {
    let agent = Agent::start();
    let (path, text) = file(&agent, "pid");
    let script = format!("trap '' TERM; echo $$ > {text}; while :; do sleep 0.02; done");
    let times = ["--ttl", "10m", "--max-hold", "1s", "--kill-after", "1s"];
    let args = [&LEADER[..], &times].concat();
    let mut run = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]).start();
    let child = read_pid(&path);

    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let events = agent.events(session);
    let next = http.queue(session, "leader", "role", &json!({}));
    events.granted(next.hold);
    assert!(!runs(child), "stopped comes before released");
    assert_eq!(run.wait_code(), 74);
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
fn a_command_may_use_all_of_its_longest_time_and_is_then_asked_to_stop() {
    let agent = Agent::start();
    for (longest_s, kill_after) in [(1, "10s"), (3, "3s"), (4, "3s"), (1, "1h")] {
        let (path, text) = file(&agent, "asked");
        // Its dying word: it must not be killed before it was asked.
        let script =
            format!("trap 'cat /proc/uptime > {text}; exit' TERM; while :; do sleep 0.02; done");
        let longest = format!("{longest_s}s");
        let times = ["--max-hold", &longest, "--kill-after", kill_after];
        let args = [&LEADER[..], &times].concat();
        let before = boottime_ns();
        let run = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]);
        let (code, _, err) = run.finish();
        assert_eq!(code, 74, "{times:?}: {err}");
        let said = format!("leader/role: --max-hold {longest} is over: the command is stopped");
        assert!(err.contains(&said), "{times:?}: {err}");
        let asked = read_when_there(&path);
        let asked: f64 = asked.split(' ').next().and_then(|text| text.parse().ok()).expect("s");
        // That file has two digits.
        let begun = Duration::from_nanos(before).as_secs_f64() - 0.01;
        assert!(asked >= begun + f64::from(longest_s), "{times:?}: {begun} to {asked}");
        fs::remove_file(path).expect("it is ours");
    }
    let (code, out, err) = TenureRun::new(
        &agent.socket(),
        &[&LEADER[..], &["--max-hold", "5s"]].concat(),
        &["sh", "-c", "sleep 0.1; echo done"],
    )
    .finish();
    assert_eq!((code, out.trim()), (0, "done"), "{err}");
    until("nothing to be left", || agent.counts() == (0, 0, 0));
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
fn on_lost_ignore_lets_the_command_finish() {
    let agent = Agent::start();
    let (path, text) = file(&agent, "ready");
    let (go, go_text) = file(&agent, "go");
    let script = format!("echo x > {text}; while [ ! -e {go_text} ]; do sleep 0.02; done; exit 5");
    let args = [&LEADER[..], &["--on-lost", "ignore"]].concat();
    let mut run = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]).start();
    read_when_there(&path);
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "role"})).json(200);
    fs::write(go, "").expect("the directory is ours");
    assert_eq!(run.wait_code(), 5);
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
fn with_tether_child_the_hold_ends_with_the_wrapper_and_its_command() {
    let agent = Agent::start();
    let (path, text) = file(&agent, "pid");
    let script = format!("sleep 1000 & echo $! > {text}");
    let args = [&LEADER[..], &["--tether", "child"]].concat();
    let mut command = TenureRun::new(&agent.socket(), &args, &["sh", "-c", &script]);
    command.command().stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = command.start();
    let left_behind = read_pid(&path);
    assert_eq!(run.wait_code(), 0);
    until("the role to be free", || agent.counts() == (0, 0, 0));
    assert!(runs(left_behind));
    kill(left_behind, Signal::SIGKILL).expect("it is running");
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
