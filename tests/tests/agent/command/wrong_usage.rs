//! Wrong command lines of `tenure`, and the one line that each of them is answered with.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tenure_tests::harness::{Agent, Client, Program, binary, run_to_end};

#[track_caller]
fn tenure(socket: &Path, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", socket).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run_to_end(&mut Program::start(&mut command))
}

/// Checks that `tenure WORDS…` says this line and nothing else.
#[track_caller]
fn check(agent: &Agent, words: &[&str], code: i32, line: &str) {
    let (exit, out, err) = tenure(&agent.socket(), words);
    assert_eq!(
        (exit, out.as_str(), err.as_str()),
        (code, "", &*format!("tenure: {line}\n")),
        "{words:?}"
    );
}

/// The same for `tenure run --leader x OPTIONS… -- true`.
#[track_caller]
fn check_run(agent: &Agent, options: &[&str], line: &str) {
    let words = [&["run", "--leader", "x"], options, &["--", "true"]].concat();
    check(agent, &words, 64, line);
}

const RESOURCES: &str = "<--leader <NAME>|--semaphore <NAME>|--lease <NAME>|--master>";

#[test]
fn a_wrong_command_line_is_answered_with_one_line() {
    let agent = Agent::start();
    let usage = |words: &[&str], line: &str| check(&agent, words, 64, line);
    usage(
        &["run", "--", "true"],
        &format!(
            "the following required arguments were not provided: {RESOURCES}; see `tenure run --help`"
        ),
    );
    usage(
        &["run", "--leader", "x"],
        "the following required arguments were not provided: <CMD>...; see `tenure run --help`",
    );
    usage(
        &["run", "--leader", "x", "true"],
        "unexpected argument 'true' found; write the command after two dashes: -- true; see `tenure run --help`",
    );
    usage(
        &["run", "--leader", "x", "-c", "echo x"],
        "unexpected argument '-c <COMMAND>' found; write a shell's command line after two dashes: \
         -- sh -c 'COMMAND'; see `tenure run --help`",
    );
    usage(
        &["run", "--leader", "", "--", "true"],
        "invalid value '' for '--leader <NAME>': the rule: 1 to 200 bytes of visible UTF-8; this has 0; \
         choose another; see `tenure run --help`",
    );
    usage(
        &["standing", "leader", &"a".repeat(300)],
        &format!(
            "invalid value '{}…' for '[NAME]': the rule: 1 to 200 bytes of visible UTF-8; this has \
             300; choose another; see `tenure standing --help`",
            "a".repeat(60)
        ),
    );
    usage(
        &["standing", "boss", "x"],
        "'boss' is no kind: write master, leader (or lock), lease or semaphore before the name x",
    );
    usage(&["frobnicate"], "unrecognized subcommand 'frobnicate'; see `tenure --help`");
    usage(
        &["events", "--session", "12"],
        "invalid value '12' for '--session <UUID>': a session is a UUID, as `tenure status --verbose` \
         shows it; see `tenure events --help`",
    );
    usage(
        &["revoke", "leader", "x", "--token", "abc"],
        "invalid value 'abc' for '--token <TOKEN>': a token is a number, as `tenure standing` shows \
         it; see `tenure revoke --help`",
    );
    usage(
        &["run", "--lease", "x", "--address", "nonsense", "--", "true"],
        "invalid value 'nonsense' for '--address <HOST:PORT>': write a host and a port from 1 to \
         65535: 10.0.0.7:8982, web-7:80 or [::1]:80; see `tenure run --help`",
    );
    usage(
        &["run", "--semaphore", "x", "--limit", "0", "--", "true"],
        "invalid value '0' for '--limit <N>': 0 is not in 1..=1000000; see `tenure run --help`",
    );
    usage(
        &["--socket", "127.0.0.1:6379", "status"],
        "--socket: \"127.0.0.1:6379\" does not name a socket: the agent speaks no TCP: write the path \
         of its Unix socket",
    );
}

#[test]
fn a_wrong_option_is_answered_with_its_rule() {
    let agent = Agent::start();
    let run = |options: &[&str], line: &str| check_run(&agent, options, line);
    run(
        &["--on-lost", "trem"],
        "invalid value 'trem' for '--on-lost <term|kill|ignore|CMD>': write term, kill, ignore, or a \
         program that can be executed; see `tenure run --help`",
    );
    run(
        &["--wait", "soon"],
        "invalid value 'soon' for '--wait <DURATION>': expected number at 0; write seconds, or a number and a \
         unit: 500ms, 10s, 2m, 1h30m; see `tenure run --help`",
    );
    run(
        &["--wait", "2years"],
        "invalid value '2years' for '--wait <DURATION>': that is longer than a year; leave the option \
         out for its default; see `tenure run --help`",
    );
    run(
        &["-n", "-w", "3s"],
        "the argument '--no-wait' cannot be used with '--wait <DURATION>'; see `tenure run --help`",
    );
    run(
        &["-E", "300"],
        "invalid value '300' for '--conflict-exit-code <CODE>': 300 is not in 0..=255; see `tenure \
         run --help`",
    );
    run(
        &["--tether", "rope"],
        "invalid value 'rope' for '--tether <TETHER>' [possible values: tree, child]; see `tenure run \
         --help`",
    );
    run(
        &["--ttl", "10d"],
        "leader/x: --ttl is 10d; the rule: ttl > 2 × beat with beat ≥ 100ms, so 300ms to 1d here; \
         choose a time in between, or leave it out for the default",
    );
    run(
        &["--progress", "1ms"],
        "leader/x: --progress is 1ms; the rule: 100ms to 1d; choose a time in between, or leave it \
         out for the default",
    );
    run(
        &["--max-hold", "5s", "--kill-after", "0s"],
        "--max-hold with --kill-after 0s leaves no time between SIGTERM and SIGKILL; give --kill-after \
         a duration, or write --on-lost kill",
    );
    run(
        &["--limit", "2"],
        "the argument '--leader <NAME>' cannot be used with '--limit <N>'; see `tenure run --help`",
    );
}

#[test]
fn what_is_not_there_is_said_with_the_way_out() {
    let agent = Agent::start();
    let none = "0192f6c8-4c1e-7d0a-9b1f-0a8f4f1f7c11";
    let line = format!(
        "session {none}: you have no such session here; `tenure status --verbose` lists yours"
    );
    check(&agent, &["events", "--session", none], 1, &line);
    check(
        &agent,
        &["--socket", "/etc/passwd", "status"],
        69,
        "status: /etc/passwd is not a socket: name the agent's own, such as /run/tenured/api.sock; \
         `tenure socket` finds it",
    );
    check(
        &agent,
        &["--socket", "/etc/passwd", "agents"],
        69,
        "agents: /etc/passwd is not a socket: name the agent's own, such as /run/tenured/api.sock; \
         `tenure socket` finds it",
    );
    check(
        &agent,
        &["agents", "alpha"],
        64,
        "unexpected argument 'alpha' found; see `tenure agents --help`",
    );
    check(
        &agent,
        &["man", "/nowhere/man"],
        1,
        "/nowhere/man/tenure.1: No such file or directory (os error 2); name a directory that there is",
    );
}

#[test]
fn with_json_an_error_is_a_problem_on_one_line() {
    let agent = Agent::start();
    let problem = |socket: &Path, words: &[&str]| -> Value {
        let (exit, out, err) = tenure(socket, words);
        assert_eq!((out.as_str(), err.lines().count()), ("", 1), "{words:?}: {err}");
        let problem: Value = serde_json::from_str(&err).expect("JSON");
        assert_eq!(problem["exit_status"], exit, "{words:?}");
        problem
    };
    let socket = agent.socket();
    let wrong = problem(&socket, &["standing", "leader", "--json"]);
    assert_eq!(wrong["code"], "invalid");
    let away = problem(Path::new("/nowhere/a.sock"), &["status", "--json"]);
    assert_eq!((&away["code"], &away["exit_status"]), (&json!("agent_unavailable"), &json!(69)));
    assert_eq!(away["type"], "urn:tenure:problem:agent_unavailable");
    let none = "0192f6c8-4c1e-7d0a-9b1f-0a8f4f1f7c11";
    let refused = problem(&socket, &["events", "--json", "--session", none]);
    assert_eq!((&refused["code"], &refused["status"]), (&json!("session_unknown"), &json!(404)));
    // That of a guarded command is its own.
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "x", &json!({}));
    let (_, _, err) = tenure(&socket, &["run", "--leader", "x", "-n", "--", "echo", "--json"]);
    assert!(err.starts_with("tenure: leader/x: taken by "), "{err}");
}
