//! `tenure run` against an agent that does what the test says, with real child processes.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;

use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use fake::{Fake, until_dead};

/// Long enough never to run out in a test.
const LONG: u64 = 600_000;
/// A command that takes no SIGTERM, and says when it is ready.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.02; done";

#[tokio::test]
async fn the_command_gets_its_hold_and_the_session_ends_with_it() {
    let (fake, _listening) = Fake::start(LONG);
    let script = "echo $TENURE_HOLD $TENURE_TOKEN $TENURE_PAGE $TENURE_SOCKET; exit 7";
    let mut run = fake.run(&["--wait", "5s", "--ttl", "30s", "--", "sh", "-c", script]);
    let expected =
        format!("{} 17 {} {}", fake.hold, fake.path("page").display(), fake.socket().display());
    assert_eq!(run.line().await, expected);
    assert_eq!(run.end().await, (7, String::new()));
    fake.seen(|seen| {
        let register = &seen.registered[0];
        assert_eq!(register["tether"], "connection");
        assert_eq!(register["guarded"], true);
        assert_eq!(register["name"], "sh");
        assert_eq!(seen.registered.len(), 1);
        let acquire = &seen.acquired[0];
        assert_eq!((&acquire["kind"], &acquire["name"]), (&json!("leader"), &json!("cleanup")));
        assert_eq!(acquire["wait"], "block");
        assert!(acquire["timeout_ms"].as_u64().is_some_and(|ms| 0 < ms && ms <= 5001));
        assert_eq!(acquire["ttl_ms"], 30_000);
        assert_eq!(seen.released, [json!({"session": fake.session})]);
        assert_eq!(seen.asked, 0);
    });
    fake.until("the stream closes", |seen| seen.streams == 0).await;
}

#[tokio::test]
async fn a_signal_that_ends_the_command_is_in_the_exit_status() {
    let (fake, _listening) = Fake::start(LONG);
    assert_eq!(fake.run(&["--", "sh", "-c", "kill -USR1 $$"]).end().await.0, 128 + 10);
    // A real-time signal has a number but no name.
    assert_eq!(fake.run(&["--", "sh", "-c", "kill -40 $$"]).end().await.0, 128 + 40);
}

#[tokio::test]
async fn what_cannot_be_executed_leaves_no_hold() {
    let (fake, _listening) = Fake::start(LONG);
    let (code, line) = fake.run(&["--", "/nowhere/at-all"]).end().await;
    assert_eq!(code, 127);
    assert!(line.starts_with("tenure: /nowhere/at-all: command not found"), "{line}");
    let file = fake.path("file");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, line) = fake.run(&["--", file.to_str().unwrap()]).end().await;
    assert_eq!((code, line.lines().count()), (126, 1), "{line}");
    assert_eq!(fake.seen(|seen| seen.released.len()), 2);
}

#[tokio::test]
async fn a_taken_resource_is_75_and_names_its_holder() {
    let (fake, _listening) = Fake::start(LONG);
    let holder = json!({"host": "web-2", "name": "nightly", "since_ms": 61_000, "token": 5});
    fake.change(|seen| {
        seen.refusal = Some(json!({"type": "urn:tenure:problem:contended", "title": "taken",
            "status": 409, "code": "contended", "detail": "taken", "holder": holder}));
    });
    let (code, line) = fake.run(&["--no-wait", "--", "true"]).end().await;
    assert_eq!(code, 75);
    let expected = "tenure: leader/cleanup: taken by nightly on web-2 (token 5, for 1m1s); \
                    to wait for it leave out --no-wait\n";
    assert_eq!(line, expected);
    assert_eq!(fake.seen(|seen| seen.acquired[0]["wait"].clone()), "none");
}

#[tokio::test]
async fn without_an_agent_it_is_69() {
    let (fake, listening) = Fake::start(LONG);
    let quiet = ["status", "--quiet"];
    let output = fake.tenure(&quiet).output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), Vec::new()));
    drop(listening);
    std::fs::remove_file(fake.socket()).unwrap();
    let run = ["run", "--leader", "a", "--", "true"];
    for arguments in [&run[..], &["status"], &quiet, &["doctor"]] {
        let output = fake.tenure(arguments).output().await.unwrap();
        assert_eq!(output.status.code(), Some(69), "{output:?}");
    }
}

#[tokio::test]
async fn the_doctor_prints_what_the_agent_found_and_fails_on_a_failure() {
    let (fake, _listening) = Fake::start(LONG);
    let found = json!({"name": "redis.eviction", "verdict": "warning", "detail": "volatile-lru",
        "remedy": "CONFIG SET maxmemory-policy noeviction"});
    fake.change(|seen| seen.checks = vec![found.clone()]);
    let output = fake.tenure(&["doctor", "--json"]).output().await.unwrap();
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = diagnosis["checks"].as_array().unwrap();
    assert!(checks.contains(&found), "{diagnosis}");
    assert_eq!(output.status.code(), Some(0), "{diagnosis}");

    fake.change(|seen| seen.checks[0]["verdict"] = json!("failure"));
    let output = fake.tenure(&["doctor"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("redis.eviction")).unwrap();
    assert!(lines[at].starts_with("failure  redis.eviction  volatile-lru"), "{text}");
    assert_eq!(lines[at + 1].trim_start(), "→ CONFIG SET maxmemory-policy noeviction");
}

#[tokio::test]
async fn a_wrong_command_line_is_64() {
    let (fake, _listening) = Fake::start(LONG);
    for arguments in [&["run", "--", "true"][..], &["no-such"], &[]] {
        let output = fake.tenure(arguments).output().await.unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
    }
    let output = fake.tenure(&["run", "--help"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[tokio::test]
async fn a_signal_ends_the_wait_and_leaves_no_waiter() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let (fake, _listening) = Fake::start(LONG);
        fake.change(|seen| seen.grant = false);
        let run = fake.run(&["--", "true"]);
        fake.until("it waits", |seen| !seen.acquired.is_empty() && seen.streams == 1).await;
        run.signal(signal);
        assert_eq!(run.end().await, (128 + signal as i32, String::new()));
        assert_eq!(fake.seen(|seen| seen.released.clone()), [json!({"session": fake.session})]);
        fake.until("the stream closes", |seen| seen.streams == 0).await;
    }
}

#[tokio::test]
async fn a_restart_of_the_agent_does_not_end_the_wait() {
    let (fake, listening) = Fake::start(LONG);
    fake.change(|seen| seen.grant = false);
    let run = fake.run(&["--", "true"]);
    fake.until("it waits", |seen| !seen.acquired.is_empty() && seen.streams == 1).await;
    drop(listening);
    fake.until("the stream closes", |seen| seen.streams == 0).await;
    let asked = fake.seen(|seen| seen.acquired.len());
    let _listening = fake.listen();
    fake.until("it asks again", |seen| seen.acquired.len() > asked && seen.streams == 1).await;
    fake.change(|seen| seen.grant = true);
    assert_eq!(run.end().await, (0, String::new()));
    fake.seen(|seen| {
        assert_eq!(seen.registered[1]["resume"]["session"], json!(fake.session));
        assert!(seen.acquired.iter().all(|a| a["request"] == seen.acquired[0]["request"]));
        assert!(seen.acquired[0]["request"].is_string());
    });
}

#[tokio::test]
async fn signals_are_passed_on_to_the_command() {
    let (fake, _listening) = Fake::start(LONG);
    let script = "trap 'exit 9' TERM; trap 'echo usr1' USR1; echo ready; \
                  while :; do sleep 0.02; done";
    let mut run = fake.run(&["--", "sh", "-c", script]);
    assert_eq!(run.line().await, "ready");
    run.signal(Signal::SIGUSR1);
    assert_eq!(run.line().await, "usr1");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().await.0, 9);
}

#[tokio::test]
async fn what_was_ignored_stays_ignored_and_nothing_is_blocked() {
    let (fake, _listening) = Fake::start(LONG);
    let script = format!(
        "trap '' HUP; exec {} --socket {} run --leader a -- grep Sig /proc/self/status",
        env!("CARGO_BIN_EXE_tenure"),
        fake.socket().display()
    );
    let output = tokio::process::Command::new("sh").args(["-c", &script]).output().await.unwrap();
    let status = String::from_utf8(output.stdout).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    // Without those of the C library's own.
    let ignored = field("SigIgn:") & ((1 << 31) - 1);
    assert_eq!(ignored, 1 << (Signal::SIGHUP as u32 - 1), "{status}");
    assert_eq!(field("SigBlk:"), 0, "{status}");
}

#[tokio::test]
async fn a_lost_hold_stops_the_command() {
    let (fake, _listening) = Fake::start(LONG);
    let script = "trap 'echo stopping; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let mut run = fake.run(&["--", "sh", "-c", script]);
    assert_eq!(run.line().await, "ready");
    fake.lose("revoked");
    assert_eq!(run.line().await, "stopping");
    let (code, line) = run.end().await;
    assert_eq!(code, 74);
    let expected = "tenure: leader/cleanup: the hold was lost (revoked): the command is stopped\n";
    // The shell may have more to say about its own children.
    assert!(line.starts_with(expected), "{line}");
    assert_eq!(fake.seen(|seen| seen.released.len()), 1, "told that the work has stopped");
}

#[tokio::test]
async fn a_command_that_takes_no_sigterm_is_killed() {
    let (fake, _listening) = Fake::start(LONG);
    let mut run = fake.run(&["--kill-after", "100ms", "--", "sh", "-c", STUBBORN]);
    let pid = run.line().await.parse().unwrap();
    fake.lose("preempted");
    assert_eq!(run.end().await.0, 74);
    until_dead(pid).await;
}

#[tokio::test]
async fn the_rest_of_the_group_has_time_to_stop_as_well() {
    let (fake, _listening) = Fake::start(LONG);
    let mark = fake.path("mark");
    let worker = format!("trap 'sleep 0.2; echo done > {}; exit' TERM", mark.display());
    let script = format!("sh -c \"{worker}; echo ready; while :; do sleep 0.02; done\"; true");
    let mut run = fake.run(&["--", "sh", "-c", &script]);
    assert_eq!(run.line().await, "ready");
    fake.lose("max_hold");
    assert_eq!(run.end().await.0, 74);
    assert_eq!(std::fs::read_to_string(mark).expect("the worker cleaned up"), "done\n");
}

#[tokio::test]
async fn an_agent_that_sleeps_does_not_keep_the_command_alive() {
    let (fake, _listening) = Fake::start(900);
    let mut run = fake.run(&["--", "sh", "-c", STUBBORN]);
    let pid = run.line().await.parse().unwrap();
    fake.change(|seen| seen.renew = false);
    let (code, line) = run.end().await;
    assert_eq!(code, 74);
    assert!(line.contains("the hold is not renewed and ends in"), "{line}");
    until_dead(pid).await;
}

#[tokio::test]
async fn a_healthy_short_hold_is_left_alone() {
    let (fake, _listening) = Fake::start(900);
    let script = "echo ready; read line; exit 3";
    let mut command = fake.tenure(&["run", "--leader", "a", "--", "sh", "-c", script]);
    let mut run = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    fake.until("it was renewed", |seen| seen.renewals > 7).await;
    drop(run.stdin.take());
    assert_eq!(run.wait().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn without_a_page_the_agent_is_asked() {
    let (fake, _listening) = Fake::start_with(900, false);
    let mut run = fake.run(&["--", "sh", "-c", STUBBORN]);
    let pid = run.line().await.parse().unwrap();
    fake.until("it was asked", |seen| seen.asked > 5 && seen.renewals > 5).await;
    fake.change(|seen| seen.renew = false);
    assert_eq!(run.end().await.0, 74);
    until_dead(pid).await;
}

#[tokio::test]
async fn on_lost_kill_gives_no_time() {
    let (fake, _listening) = Fake::start(LONG);
    let mut run =
        fake.run(&["--on-lost", "kill", "--kill-after", "1h", "--", "sh", "-c", STUBBORN]);
    let pid = run.line().await.parse().unwrap();
    fake.lose("conflict");
    assert_eq!(run.end().await.0, 74);
    until_dead(pid).await;
}

#[tokio::test]
async fn on_lost_ignore_lets_it_run() {
    let (fake, _listening) = Fake::start(900);
    let script = "echo ready; read line; exit 3";
    let mut command =
        fake.tenure(&["run", "--leader", "a", "--on-lost", "ignore", "--", "sh", "-c", script]);
    let mut run = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    fake.until("it runs", |seen| seen.renewals > 1).await;
    fake.lose("expired");
    fake.until("valid-until is over", |seen| seen.valid_until > 0).await;
    let over = fake.seen(|seen| seen.valid_until);
    while tenure::page::boottime_ns() < over {
        tokio::task::yield_now().await;
    }
    drop(run.stdin.take());
    assert_eq!(run.wait().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn on_lost_runs_a_program_first() {
    let (fake, _listening) = Fake::start(LONG);
    let (program, mark) = (fake.path("program"), fake.path("mark"));
    let text =
        format!("#!/bin/sh\necho $1 $TENURE_LOST_REASON $TENURE_TOKEN > {}\n", mark.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let on_lost = format!("{} word", program.display());
    let script = format!(
        "trap 'cat {}; exit' TERM; echo ready; while :; do sleep 0.02; done",
        mark.display()
    );
    let mut run = fake.run(&["--on-lost", &on_lost, "--", "sh", "-c", &script]);
    assert_eq!(run.line().await, "ready");
    fake.lose("stalled");
    assert_eq!(run.line().await, "word stalled 17");
    assert_eq!(run.end().await.0, 74);
}

#[tokio::test]
async fn a_restart_of_the_agent_does_not_disturb_the_command() {
    let (fake, listening) = Fake::start(LONG);
    let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done";
    let mut run = fake.run(&["--", "sh", "-c", script]);
    assert_eq!(run.line().await, "ready");
    drop(listening);
    fake.until("the stream closes", |seen| seen.streams == 0).await;
    let _listening = fake.listen();
    fake.until("it is back", |seen| seen.streams == 1 && seen.registered.len() == 2).await;
    fake.tell("jeopardy", json!({"cause": "timeout", "valid_ms": 590_000}));
    fake.lose("upstream_reset");
    assert_eq!(run.end().await.0, 74);
}

#[tokio::test]
async fn the_tree_keeps_the_tether_when_the_wrapper_is_killed() {
    let (fake, _listening) = Fake::start(LONG);
    let mut run = fake.run(&["--", "sh", "-c", "echo $$; exec sleep 600 >/dev/null 2>&1"]);
    let pid: i32 = run.line().await.parse().unwrap();
    fake.until("the stream is open", |seen| seen.streams == 1).await;
    run.signal(Signal::SIGKILL);
    assert_eq!(run.end().await.0, -9);
    assert_eq!(fake.seen(|seen| (seen.streams, seen.released.len())), (1, 0));
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    fake.until("the stream closes", |seen| seen.streams == 0).await;
}

#[tokio::test]
async fn what_the_command_leaves_behind_keeps_the_tether() {
    let (fake, _listening) = Fake::start(LONG);
    let mut run = fake.run(&["--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]);
    let pid: i32 = run.line().await.parse().unwrap();
    assert_eq!(run.end().await, (0, String::new()));
    assert_eq!(fake.seen(|seen| (seen.streams, seen.released.len())), (1, 0));
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    fake.until("the stream closes", |seen| seen.streams == 0).await;
}

#[tokio::test]
async fn with_tether_child_it_dies_with_the_wrapper_and_leaves_nothing() {
    let (fake, _listening) = Fake::start(LONG);
    let mut run = fake.run(&[
        "--tether",
        "child",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 600 >/dev/null 2>&1",
    ]);
    let pid = run.line().await.parse().unwrap();
    run.signal(Signal::SIGKILL);
    assert_eq!(run.end().await.0, -9);
    until_dead(pid).await;
    fake.until("the stream closes", |seen| seen.streams == 0).await;

    let script = "sleep 600 >/dev/null 2>&1 & echo $!";
    let mut run = fake.run(&["--tether", "child", "--", "sh", "-c", script]);
    let pid: i32 = run.line().await.parse().unwrap();
    assert_eq!(run.end().await.0, 0);
    assert_eq!(fake.seen(|seen| seen.released.len()), 1);
    fake.until("the stream closes", |seen| seen.streams == 0).await;
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
}

#[tokio::test]
async fn status_is_a_table_or_json() {
    let (fake, _listening) = Fake::start(LONG);
    let output = fake.tenure(&["status"]).output().await.unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("upstream  fake up, none") && !table.contains('\x1b'), "{table}");
    let output = fake.tenure(&["status", "--json"]).output().await.unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["upstream"]["state"], "up");
}
