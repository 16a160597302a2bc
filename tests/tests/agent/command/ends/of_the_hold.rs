//! The end of the hold while the command runs, and what comes of the command, of the wrapper and of who is next.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use tenure_tests::harness::{
    Agent, Client, Program, TenureRun, boottime_ns, other_users, runs, until,
};

use super::loss::{
    a_command_may_tidy_up_and_the_next_one_here_waits_for_that,
    a_command_that_is_stopped_is_continued_and_may_tidy_up,
    a_command_that_takes_no_sigterm_is_killed_after_that_time,
    a_master_of_higher_priority_takes_over, check_next_host,
    revoked_on_another_host_the_next_one_does_not_wait,
    the_rest_of_the_group_has_time_to_stop_as_well,
    what_left_the_process_group_does_not_outlive_the_hold,
    what_left_the_process_group_is_asked_to_stop_as_well,
    without_the_agent_a_command_is_told_to_end_in_time,
    without_the_agent_a_command_that_takes_no_sigterm_is_killed,
    without_the_agent_it_has_ended_before_another_host_begins,
    without_the_agent_what_left_the_process_group_is_killed,
};
use super::scene::{Scene, UPTIME_STEP};

const STOPPED: &str = "SIGTERM and SIGCONT to all that it started, SIGKILL after `--kill-after` or before valid-until, whichever is first";

lines! {
    "The end of the hold":
    [
        "lost (revoked, taken over, the agent is gone for too long)",
        STOPPED,
        "exits with 74 when all of it has ended. Revoked on this host, nobody else gets the hold before that; \
         revoked on another host, or taken over, the next one has it at once."
    ] is tried by
        a_command_may_tidy_up_and_the_next_one_here_waits_for_that,
        revoked_on_another_host_the_next_one_does_not_wait,
        a_master_of_higher_priority_takes_over,
        a_command_that_is_stopped_is_continued_and_may_tidy_up,
        the_rest_of_the_group_has_time_to_stop_as_well,
        a_command_that_takes_no_sigterm_is_killed_after_that_time,
        what_left_the_process_group_is_asked_to_stop_as_well,
        what_left_the_process_group_does_not_outlive_the_hold,
        without_the_agent_a_command_is_told_to_end_in_time,
        without_the_agent_a_command_that_takes_no_sigterm_is_killed,
        without_the_agent_what_left_the_process_group_is_killed,
        without_the_agent_it_has_ended_before_another_host_begins;
    [
        "`--max-hold` is over",
        STOPPED,
        "exits with 74 when all of it has ended; nobody else gets the hold before that"
    ] is tried by
        a_command_may_use_all_of_its_longest_time_and_is_then_asked_to_stop,
        a_command_that_ignores_sigterm_is_killed_before_the_role_passes_on;
    [
        "with `--on-lost kill`, `ignore`, or a program",
        "SIGKILL at once; nothing; the program first, SIGTERM when it ended or half of the time is over",
        "the same; with `ignore` the command's own end, for which the next one waits until valid-until"
    ] is tried by
        on_lost_kill_asks_nobody,
        on_lost_ignore_lets_the_command_finish,
        on_lost_runs_a_program_first,
        a_program_that_hangs_has_half_of_the_time;
    [
        "the agent is stopped (SIGTERM, `systemctl stop`)",
        "as when it is lost",
        "the hold is given back when all of it has ended; if that takes longer than the agent does, nobody else gets it before \
         valid-until. The agent's restart (SIGUSR2) ends nothing."
    ] is tried by
        a_command_that_ends_at_once_lets_the_next_host_begin,
        a_command_that_takes_3_seconds_to_stop_keeps_its_hold_meanwhile,
        a_command_that_takes_longer_than_its_agent_keeps_its_hold_meanwhile,
        a_command_that_does_not_stop_keeps_its_hold_until_it_is_killed,
        a_restart_of_the_agent_ends_neither_the_command_nor_a_wait;
    [
        "it belongs to another user (`sudo`)",
        "it cannot be signalled from here: it is named with its process id on stderr",
        "waits for its end; after valid-until it leaves it alone and exits with 74"
    ] is tried by
        what_another_user_owns_is_named_and_left_alone_when_its_hold_is_over;
}

fn a_command_may_use_all_of_its_longest_time_and_is_then_asked_to_stop() {
    let scene = Scene::start();
    for (longest_s, kill_after) in [(1, "10s"), (3, "3s"), (4, "3s"), (1, "1h")] {
        // Its dying word: it must not be killed before it was asked.
        let script = "trap 'cat /proc/uptime >FILE; exit' TERM; while :; do sleep 0.02; done";
        let longest = format!("{longest_s}s");
        let times = ["--max-hold", &longest, "--kill-after", kill_after];
        let before = boottime_ns();
        let (code, _, err) = scene.prepare(&times, script).finish();
        assert_eq!(code, 74, "{times:?}: {err}");
        let said = format!("leader/role: --max-hold {longest} is over: the command is stopped");
        assert!(err.contains(&said), "{times:?}: {err}");
        let (begun, asked) = (Duration::from_nanos(before), scene.said_uptime() + UPTIME_STEP);
        assert!(
            asked >= begun + Duration::from_secs(longest_s),
            "{times:?}: {begun:?} to {asked:?}"
        );
    }
    let (code, out, err) = scene.prepare(&["--max-hold", "5s"], "sleep 0.1; echo done").finish();
    assert_eq!((code, out.trim()), (0, "done"), "{err}");
    scene.nothing_is_left();
}

fn a_command_that_ignores_sigterm_is_killed_before_the_role_passes_on() {
    let scene = Scene::start();
    let times = ["--ttl", "10m", "--max-hold", "1s", "--kill-after", "1s"];
    let mut run = scene.run(&times, "trap '' TERM; echo $$ >FILE; while :; do sleep 0.02; done");
    let child = scene.said_pid();
    let next = scene.heir();
    next.gets_it();
    assert!(!runs(child), "stopped comes before released");
    assert_eq!(run.wait_code(), 74);
}

fn on_lost_kill_asks_nobody() {
    let scene = Scene::start();
    let script = "trap 'echo asked >FILE' TERM; echo $$ >FILE; while :; do sleep 0.02; done";
    let mut run = scene.run(&["--on-lost", "kill", "--kill-after", "1h"], script);
    let pid = scene.said_pid();
    let next = scene.heir();
    scene.revoke();
    assert_eq!((run.wait_code(), runs(pid)), (74, false));
    scene.is_passed_on(next);
    assert!(!scene.has_said());
}

fn on_lost_ignore_lets_the_command_finish() {
    let scene = Scene::start();
    let script = "trap 'echo asked >FILE' TERM; echo $$ >FILE; GO; exit 5";
    let mut run = scene.run(&["--ttl", "3s", "--on-lost", "ignore"], script);
    let pid = scene.said_pid();
    let next = scene.heir();
    let kept = scene.hold().expect("it holds").valid_until_boottime_ns;
    scene.revoke();
    next.gets_it();
    assert!(boottime_ns() >= kept);
    assert!(runs(pid));
    scene.go();
    assert_eq!(run.wait_code(), 5);
    scene.is_passed_on(next);
    assert!(!scene.has_said());
}

fn on_lost_runs_a_program_first() {
    let scene = Scene::start();
    let (program, mark) = (scene.agent.dir().join("program"), scene.agent.dir().join("mark"));
    let text =
        format!("#!/bin/sh\necho $1 $TENURE_LOST_REASON $TENURE_TOKEN > {}\n", mark.display());
    fs::write(&program, text).expect("the directory is ours");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let on_lost = format!("{} word", program.display());
    let script = format!(
        "trap 'cat {} >FILE; exit' TERM; echo $TENURE_TOKEN >FILE; while :; do sleep 0.02; done",
        mark.display()
    );
    let mut run = scene.run(&["--on-lost", &on_lost, "--kill-after", "1h"], &script);
    let token = scene.said();
    let next = scene.heir();
    scene.revoke();
    assert_eq!(run.wait_code(), 74);
    assert_eq!(scene.said(), format!("word revoked {token}"));
    scene.is_passed_on(next);
}

fn a_program_that_hangs_has_half_of_the_time() {
    let scene = Scene::start();
    let script =
        "trap 'cat /proc/uptime >FILE; exit' TERM; echo $$ >FILE; while :; do sleep 0.02; done";
    // The wrapper leaves this program alone, so it ends with the test.
    let hangs = format!("tail -f /dev/null --pid={}", std::process::id());
    // With a longer ttl than that, all of the six seconds are left.
    let args = ["--ttl", "10m", "--on-lost", &hangs, "--kill-after", "6s"];
    let mut run = scene.run(&args, script);
    scene.said();
    let lost = Duration::from_nanos(boottime_ns());
    scene.revoke();
    assert_eq!(run.wait_code(), 74);
    let asked = scene.said_uptime() + UPTIME_STEP;
    assert!(asked >= lost + Duration::from_secs(3), "{lost:?} to {asked:?}");
}

#[track_caller]
fn check_stop(to_end: &str) {
    let mut fleet = check_next_host("8s", to_end, |agent| agent.signal(Signal::SIGTERM));
    assert!(fleet.agents[0].wait_exit().success());
}

fn a_command_that_ends_at_once_lets_the_next_host_begin() {
    check_stop("exit");
}

fn a_command_that_takes_3_seconds_to_stop_keeps_its_hold_meanwhile() {
    check_stop("sleep 3; exit");
}

fn a_command_that_takes_longer_than_its_agent_keeps_its_hold_meanwhile() {
    check_stop("sleep 6; exit");
}

fn a_command_that_does_not_stop_keeps_its_hold_until_it_is_killed() {
    check_stop("");
}

fn a_restart_of_the_agent_ends_neither_the_command_nor_a_wait() {
    for end in [Signal::SIGUSR2, Signal::SIGKILL] {
        let mut scene = Scene::start();
        let mut run = scene.run(&["--ttl", "10m"], "echo $$ >FILE; exec sleep 1000");
        let pid = scene.said_pid();
        let mut next = scene.run(&[], "echo next >FILE");
        until("it to wait", || scene.agent.counts().2 == 1);
        scene.agent.signal(end);
        scene.agent.wait_exit();
        scene.agent.start_again();
        until("both to be back", || {
            let sessions = scene.agent.http().status().sessions;
            sessions.len() == 2 && sessions.iter().all(|session| session.streams == 1)
        });
        assert!(runs(pid), "{end}");
        assert_eq!(scene.agent.counts(), (2, 1, 1), "{end}");
        scene.revoke();
        assert_eq!((run.wait_code(), next.wait_code()), (74, 0), "{end}");
        assert_eq!(scene.said(), "next");
        scene.nothing_is_left();
    }
}

/// Root that may not signal other users, as a user whose command went through sudo.
fn start_as_user(agent: &Agent, guarded: &[&str]) -> Program {
    let args = ["--leader", "role", "--ttl", "6s", "--kill-after", "100ms"];
    let run = TenureRun::new(&agent.socket(), &args, guarded).into_command();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-kill"]).arg(run.get_program()).args(run.get_args());
    command.env("TENURE_SOCKET", agent.socket());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Program::start(&mut command)
}

fn what_another_user_owns_is_named_and_left_alone_when_its_hold_is_over() {
    if other_users().is_none() {
        return;
    }
    let scene = Scene::start();
    let agent = &scene.agent;
    fs::set_permissions(agent.dir(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let script = scene.script("trap '' TERM; echo $$ >FILE; while :; do sleep 0.05; done");
    let other = ["setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c", &script];
    // The second one's first process is its own, and can be ended.
    let below = ["sh", "-c", r#""$@"; true"#, "sh"];
    for guarded in [other.to_vec(), [&below[..], &other[..]].concat()] {
        let mut run = start_as_user(agent, &guarded);
        let child = scene.said_pid();
        let next = scene.heir();
        scene.revoke();
        // The wrapper knows of the beats up to the one with which it began, a moment ago.
        let kept_until = boottime_ns() + 1_000_000_000;
        let status = run.wait_code();
        assert!(boottime_ns() > kept_until, "{guarded:?}: it was given back before its end");
        next.gets_it();
        // The command has the other end of this pipe, too.
        kill(child, Signal::SIGKILL).expect("the command goes on");
        let mut err = String::new();
        let stderr = run.pipes().stderr.as_mut().expect("standard error is piped");
        stderr.read_to_string(&mut err).expect("it is UTF-8");
        assert_eq!(status, 74, "{err}");
        let named = format!("process {child} of the command belongs to another user");
        assert!(err.contains(&named), "{err}");
        assert_eq!(err.matches("belongs to another user").count(), 1, "{err}");
        scene.passes_on(next);
    }
}
