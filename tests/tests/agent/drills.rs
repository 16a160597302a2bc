//! Five nights of whoever is on call: each question is answered on any host by at most two commands, without a log.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure::wire::Problem;
use tenure_tests::harness::{Agent, Client, Fleet, TenureRun, binary, eventually, until};

/// Words that a person types on the host of an agent, and what it prints.
#[track_caller]
fn types(agent: &Agent, words: &[&str]) -> String {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", agent.socket()).env("TZ", "UTC").args(words);
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("it is UTF-8");
    println!("$ tenure {}\n{text}", words.join(" "));
    text
}

/// The same, once it says all of these.
#[track_caller]
fn says(agent: &Agent, words: &[&str], parts: &[&str]) -> String {
    let mut last = String::new();
    let found = eventually(&format!("{words:?} to say {parts:?}"), || {
        last = types(agent, words);
        parts.iter().all(|part| last.contains(part)).then(|| last.clone())
    });
    assert!(found.lines().count() <= 12 || words[0] != "why", "{found}");
    found
}

/// Somebody's job, which runs until it is told to end.
#[track_caller]
fn job(agent: &Agent, args: &[&str], script: &str) -> Child {
    let mut run = TenureRun::new(&agent.socket(), args, &["sh", "-c", script]);
    run.command().spawn().expect("the command starts")
}

fn leads(agent: &Agent) {
    until("somebody to lead", || agent.counts().1 > 0);
}

fn child_of(pid: u32) -> i32 {
    eventually("the command to run", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    })
}

fn end(mut job: Child) {
    kill(Pid::from_raw(job.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    job.wait().expect("it ends");
}

const NIGHTLY: [&str; 4] = ["--leader", "nightly", "--name", "backup"];

fn user() -> String {
    let uid = nix::unistd::getuid();
    nix::unistd::User::from_uid(uid).ok().flatten().map_or(uid.to_string(), |user| user.name)
}

#[test]
fn who_holds_it_and_is_its_command_stopped() {
    let fleet = Fleet::start();
    let [alpha, beta] = &fleet.agents[..] else { panic!("there are two") };
    let holder = job(alpha, &NIGHTLY, "exec sleep 600");
    leads(alpha);
    let stopped = child_of(holder.id());
    kill(Pid::from_raw(stopped), Signal::SIGSTOP).expect("it runs");
    let waiter = job(beta, &NIGHTLY[..2], "true");
    until("the other to wait", || beta.counts().2 > 0);
    let (pid, user) = (format!("pid {} of {} on alpha", holder.id(), user()), user());
    // On another host: who, where, since when, and where to go.
    let elsewhere = says(
        beta,
        &["why", "leader", "nightly"],
        &[
            "held     by backup on alpha since 20",
            &pid,
            "sh -c exec sleep 600",
            "granted to backup on alpha",
        ],
    );
    assert!(elsewhere.contains("waiting  1. sh on beta for"), "{elsewhere}");
    assert!(elsewhere.contains("next     ssh alpha tenure why leader nightly"), "{elsewhere}");
    assert!(elsewhere.contains("next     sudo tenure --socket "), "{elsewhere}");
    assert!(elsewhere.contains(" revoke leader nightly"), "{elsewhere}");
    // There: what it does.
    let state = format!("pid {stopped} is T (stopped)");
    let next = format!("next     kill -CONT {stopped}");
    says(alpha, &["why", "leader", "nightly"], &[&state, &next]);
    // Everything at a glance.
    let all = says(beta, &["ls", "night*"], &["leader/nightly", "held", "alpha", "backup", &user]);
    assert_eq!(all.lines().count(), 2, "{all}");
    kill(Pid::from_raw(stopped), Signal::SIGCONT).expect("it runs");
    end(holder);
    let mut waiter = waiter;
    waiter.wait().expect("it ends");
}

#[test]
fn why_did_it_move() {
    let fleet = Fleet::start();
    let [alpha, beta] = &fleet.agents[..] else { panic!("there are two") };
    let mut holder = job(alpha, &NIGHTLY, "exec sleep 600");
    leads(alpha);
    let next = job(beta, &NIGHTLY[..2], "exec sleep 600");
    until("the other to wait", || beta.counts().2 > 0);
    kill(Pid::from_raw(child_of(holder.id())), Signal::SIGKILL).expect("it runs");
    assert_eq!(holder.wait().expect("it ends").signal(), Some(9));
    leads(beta);
    let parts = [
        "released by backup on alpha: its command ended (killed by SIGKILL), after",
        "granted to sh on beta",
    ];
    for asked in [alpha, beta] {
        says(asked, &["why", "leader", "nightly"], &parts);
    }
    let history = ["killed by SIGKILL", "backup", &holder.id().to_string(), "sh -c exec sleep 600"];
    says(beta, &["history", "leader", "nightly"], &history);
    end(next);
}

#[test]
fn a_job_that_flaps_shows_its_exit_status() {
    let fleet = Fleet::start();
    let [alpha, beta] = &fleet.agents[..] else { panic!("there are two") };
    for _ in 0..3 {
        job(alpha, &NIGHTLY, "exit 7").wait().expect("it ends");
    }
    let why = says(
        beta,
        &["why", "leader", "nightly"],
        &["leader/nightly is free", "(exit status 7), after"],
    );
    assert!(why.contains("next     tenure run --leader nightly -- COMMAND"), "{why}");
    eventually("all three ends to be told", || {
        let told = types(beta, &["history", "leader", "nightly"]);
        (told.matches("exit status 7").count() == 3).then_some(())
    });
}

#[test]
fn a_host_that_fell_silent_is_named() {
    let mut fleet = Fleet::start_with(
        tenure_tests::harness::RedisServer::start(),
        2,
        "[leader]\nttl = \"1s\"\nbeat = \"300ms\"\n",
    );
    let mut agents = fleet.agents.drain(..);
    let (Some(mut alpha), Some(beta)) = (agents.next(), agents.next()) else {
        panic!("there are two")
    };
    let mut holder = job(&alpha, &NIGHTLY, "exec sleep 600");
    leads(&alpha);
    let host = holder.id().to_string();
    says(&beta, &["why", "leader", "nightly"], &[&host]);
    alpha.kill();
    let next = job(&beta, &NIGHTLY[..2], "exec sleep 600");
    leads(&beta);
    // Nobody could tell of its end.
    let told = [
        "granted to sh on beta",
        "granted to backup on alpha (its end was not told: its host or agent fell silent)",
    ];
    says(&beta, &["why", "leader", "nightly"], &told);
    end(next);
    holder.wait().expect("the command was stopped at the end of its hold");
}

#[test]
fn a_program_without_tenure_is_called_so() {
    let fleet = Fleet::start();
    let [alpha, _] = &fleet.agents[..] else { panic!("there are two") };
    let mut set = redis::cmd("SET");
    set.arg("leader:nightly").arg("a510b8bc").arg("PX").arg(600_000);
    let () = set.query(&mut fleet.redis.connect()).expect("Redis answers");
    let by = "a program without Tenure (lock value a510b8bc)";
    // What is no lock hides none.
    let mut push = redis::cmd("LPUSH");
    push.arg("leader:other").arg("a");
    let () = push.query(&mut fleet.redis.connect()).expect("Redis answers");
    for words in [&["why", "leader", "nightly"][..], &["ls"], &["standing", "leader", "nightly"]] {
        says(alpha, words, &[by]);
    }
    let refused = TenureRun::new(&alpha.socket(), &["--leader", "nightly", "--no-wait"], &["true"]);
    let () = redis::cmd("SET")
        .arg("leader:nightly")
        .arg("own\x1b[31med")
        .query(&mut fleet.redis.connect())
        .expect("Redis answers");
    let (code, _, said) = refused.finish();
    assert_eq!(code, 75);
    assert!(said.contains("own\u{fffd}[31med") && !said.contains('\x1b'), "{said}");
}

#[test]
fn a_lock_that_outlives_its_job_says_so() {
    let fleet = Fleet::start();
    let [alpha, beta] = &fleet.agents[..] else { panic!("there are two") };
    let args = [&NIGHTLY[..], &["--at-least", "10m"]].concat();
    job(alpha, &args, "exit 0").wait().expect("it ends");
    let kept =
        ["leader/nightly is kept", "held     by backup on alpha", "kept     ", "kept until "];
    says(alpha, &["why", "leader", "nightly"], &kept);
    // Another host knows, since the end of the command was told.
    let ended = ["ended ", " ago, kept until ", "(--at-least 10m)"];
    let told = ["leader/nightly is kept", "its command ended (exit status 0)"];
    says(beta, &["why", "leader", "nightly"], &[&told[..], &ended].concat());
    for words in [&["ls"][..], &["standing", "leader", "nightly"]] {
        says(beta, words, &[&["kept  alpha  backup"][..], &ended].concat());
    }
    for wait in [&["--no-wait"][..], &["--wait", "100ms"]] {
        let args = [&NIGHTLY[..], wait].concat();
        // A holder that was renewed within half a second is not asked about.
        until("the refusal to tell of the end", || {
            let (code, _, said) = TenureRun::new(&beta.socket(), &args, &["true"]).finish();
            assert_eq!(code, 75, "{said}");
            ended.iter().all(|part| said.contains(part))
        });
    }
    let mut http = beta.http();
    let session = http.register(&json!({})).session;
    let problem: Problem = http.ask(session, "leader", "nightly", &json!({})).expect(409);
    let holder = problem.holder.as_ref().expect("it is known");
    assert!(holder.kept_ms.is_some_and(|ms| ms > 500_000) && holder.ended_ms.is_some());
    assert!(problem.detail.contains(" ago, kept for another 9m"), "{problem}");
}

#[test]
fn what_is_held_or_waited_for_for_too_long_is_found_by_its_name() {
    let fleet = Fleet::start();
    let [alpha, beta] = &fleet.agents[..] else { panic!("there are two") };
    let ls = |words: &[&str]| {
        let mut command = Command::new(binary("tenure"));
        command.env("TENURE_SOCKET", beta.socket()).arg("ls").args(words);
        let output = command.output().expect("the command runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("it is UTF-8"))
    };
    let nothing = (Some(0), String::new());
    assert_eq!(ls(&["night*", "--held-longer-than", "0"]), nothing);
    let holder = job(alpha, &NIGHTLY, "exec sleep 600");
    leads(alpha);
    let waiter = job(beta, &NIGHTLY[..2], "true");
    until("one to wait", || beta.counts().2 == 1);
    for option in ["--held-longer-than", "--waits-longer-than"] {
        let (code, out) = ls(&["night*", option, "1ms"]);
        assert!(code == Some(1) && out.contains("leader/nightly"), "{option}: {out}");
        assert_eq!(ls(&["night*", option, "1h"]), nothing, "{option}");
        assert_eq!(ls(&["other", option, "1ms"]), nothing, "{option}");
    }
    end(holder);
    end(waiter);
}
