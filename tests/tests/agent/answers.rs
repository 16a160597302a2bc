//! Answers to people who ask: when a hold was renewed last, why a command was stopped, how the store answered
//! lately, and all that is held.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::{Diagnosis, List, Verdict};
use tenure_tests::harness::{
    Agent, Campaigner, Client, Fleet, Gateway, Proxy, RedisServer, TenureRun, binary, eventually,
    start_agent, until,
};

const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];

/// The output of the command, whatever its exit status.
fn says(agent: &Agent, words: &[&str]) -> String {
    let mut command = Command::new(binary("tenure"));
    let output = command.env("TENURE_SOCKET", agent.socket()).args(words).output();
    String::from_utf8(output.expect("the command runs").stdout).expect("it is UTF-8")
}

/// Holds every kind on one host, also one that is kept for an hour, and waits until the other host is told of their
/// renewals.
#[track_caller]
fn renewals_are_told(holds: &Agent, asks: &Agent) {
    let mut holder = Campaigner::start(holds, "holder");
    let terms = json!({"ttl_ms": 1000});
    for kind in KINDS {
        holder.acquire(kind, if kind == "master" { "" } else { "role" }, &terms);
    }
    holder.acquire("leader", "kept", &json!({"ttl_ms": 1000, "hold_at_least_ms": 3_600_000}));
    let names = [("leader", "role"), ("master", "p"), ("lease", "role"), ("semaphore", "role")];
    for (kind, name) in names.into_iter().chain([("leader", "kept")]) {
        eventually(&format!("{kind}/{name} to be renewed"), || {
            let holder = asks.http().standing(kind, name).holders.into_iter().next()?;
            let last_beat_ms = holder.last_beat_ms.expect("the store knows");
            (last_beat_ms + 500 < holder.since_ms).then_some(())
        });
        let told = says(asks, &["why", kind, name]);
        assert!(
            told.lines().any(|it| it.contains("held ") && it.contains(", last beat ")),
            "{told}"
        );
        let told: Value =
            serde_json::from_str(&says(asks, &["why", kind, name, "--json"])).expect("it is JSON");
        assert!(told["standing"]["holders"][0]["last_beat_ms"].is_u64(), "{told}");
    }
}

#[test]
fn a_holder_is_shown_with_its_last_beat() {
    let alone = Agent::start();
    renewals_are_told(&alone, &alone);
    let redis = RedisServer::start();
    let [alpha, beta] = [0, 1].map(|host| start_agent(host, &redis.url(), ""));
    renewals_are_told(&alpha, &beta);
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis.url());
    let [alpha, beta] = [0, 1].map(|host| start_agent(host, &gateway.url(), ""));
    renewals_are_told(&alpha, &beta);
}

/// The last change that is told once there are so many.
#[track_caller]
fn last_of(agent: &Agent, count: usize) -> Value {
    eventually("the changes to be told", || {
        let told: Value =
            serde_json::from_str(&says(agent, &["history", "leader", "nightly", "--json"])).ok()?;
        let changes = told["changes"].as_array()?;
        (changes.len() == count).then(|| changes[0].clone())
    })
}

#[test]
fn a_command_that_was_stopped_is_told_with_the_reason() {
    let mut fleet = Fleet::start_with(RedisServer::start(), 1, "");
    let agent = fleet.agents.remove(0);
    let run = |options: &[&str]| {
        let options = [&["--leader", "nightly"], options].concat();
        TenureRun::new(&agent.socket(), &options, &["sleep", "600"]).start()
    };
    assert_eq!(run(&["--max-hold", "1s"]).wait().code(), Some(74));
    let ended = last_of(&agent, 2);
    assert_eq!(ended["what"], "released", "{ended}");
    assert_eq!(ended["detail"], "its command was stopped, as --max-hold was over", "{ended}");
    assert_eq!(ended["exit_status"], 143, "{ended}");

    // With nearly all of its ttl to stop in, so that a busy machine does not lose the hold before.
    let mut stopped = run(&["--ttl", "12s", "--kill-after", "11s"]);
    assert_eq!(last_of(&agent, 3)["what"], "granted");
    fleet.redis.pause();
    assert_eq!(stopped.wait().code(), Some(74));
    fleet.redis.resume();
    let ended = last_of(&agent, 4);
    assert_eq!(ended["detail"], "its command was stopped, as the hold was not renewed", "{ended}");
    let told = says(&agent, &["why", "leader", "nightly"]);
    assert!(told.contains("as the hold was not renewed (killed by SIGTERM), after "), "{told}");
}

#[test]
fn the_store_is_judged_by_its_answers_of_the_last_minutes() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let agent = start_agent(0, &proxy.url(), "");
    let mut http = agent.http();
    let session = http.register(&json!({"tether": "process"})).session;
    let check = |name: &str| {
        let found: Diagnosis =
            serde_json::from_str(&says(&agent, &["doctor", "--json"])).expect("it is JSON");
        found.checks.into_iter().find(|check| check.name == name)
    };
    http.acquire(session, "leader", "role", &json!({}));
    let before = check("latency").expect("the store was asked");
    assert!(
        before.detail.contains("answers of the upstream in the last 10 min: p50 "),
        "{before:?}"
    );
    proxy.delay(Duration::from_millis(250));
    until("slow answers to be noticed", || {
        assert_eq!(http.get("/v1/standing?kind=leader&name=role").status, 200);
        check("latency").is_some_and(|it| it.verdict == Verdict::Warning)
    });
    proxy.heal();
    // A spike that is over is told all the same.
    let after = check("latency").expect("it was there before");
    assert_eq!(after.verdict, Verdict::Warning, "{after:?}");
    let (_, worst) = after.detail.split_once(", worst ").expect("the worst");
    assert!(worst.contains(" at ") && !worst.starts_with("0 "), "{after:?}");
    // A look of the moment judges nothing.
    until("a quick look", || check("redis.latency").is_some_and(|it| it.verdict == Verdict::Ok));
}

#[test]
fn all_that_is_held_takes_few_answers() {
    let redis = RedisServer::start();
    let [alpha, beta] = [0, 1].map(|host| start_agent(host, &redis.url(), ""));
    let mut http = alpha.http();
    let names = 250_usize;
    let session = http.register(&json!({"holds": names, "tether": "process"})).session;
    for number in 0..names {
        http.acquire(session, "leader", &format!("role-{number}"), &json!({}));
    }
    // The processes are told a moment later, the last one last.
    until("the grants to be told", || {
        let last = beta.http().standing("leader", &format!("role-{}", names - 1));
        last.holders[0].pid.is_some()
    });
    let mut found = 0;
    let (mut cursor, mut answers) = (String::new(), 0);
    loop {
        let page: List = beta.http().get(&format!("/v1/list?limit=1000{cursor}")).expect(200);
        answers += 1;
        found += page.resources.len();
        for standing in &page.resources {
            let holder = &standing.holders[0];
            assert!(holder.host == "alpha" && holder.pid.is_some(), "{standing:?}");
        }
        match page.cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert!(found >= names, "{found}");
    assert!(answers <= 2, "{answers} answers for {names} names");
    let listed = says(&beta, &["ls", "role-*"]);
    assert_eq!(listed.lines().count(), names + 1, "{listed}");
}

#[test]
fn a_typing_error_in_the_upstream_is_seen() {
    let check = |url: &str, shown: &str| {
        let mut command = Command::new(binary("tenured"));
        let output = command.args(["check-config", "--upstream", url]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{said}");
        assert!(said.contains(&format!("upstream = {shown}: ")), "{shown}: {said}");
    };
    check("localhost:6379", "\"localhost:6379\"");
    check("redis://app:hunter2@db-1:63x9/0", "\"redis://app:***@db-1:63x9/0\"");
    check("redsi://:hunter2@db-1/0", "\"redsi://:***@db-1/0\"");
}

#[test]
fn every_line_of_an_agent_without_a_terminal_is_json() {
    let agent = Agent::start();
    agent.http().register(&json!({"tether": "process"}));
    let registered = eventually("the log to say so", || {
        let log = agent.log();
        // The last line may be written just now.
        let (log, _) = log.rsplit_once('\n')?;
        let lines = log.lines().map(|line| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("no JSON: {line}"))
        });
        let lines: Vec<_> = lines.collect();
        let ready = lines
            .iter()
            .filter(|it| it["message"].as_str().is_some_and(|it| it.contains(" ready in ")));
        assert_eq!(ready.count(), 1, "{log}");
        lines.into_iter().find(|line| line["message"] == "registered")
    });
    assert_eq!(registered["tether"], "process", "{registered}");
    assert_eq!(registered.get("target"), None, "{registered}");
}

#[test]
fn a_resource_is_found_by_its_name_alone() {
    let agent = Agent::start();
    let mut holder = Campaigner::start(&agent, "holder");
    for (kind, name) in [("leader", "nightly"), ("lease", "mailbox"), ("semaphore", "team/gpu")] {
        holder.acquire(kind, name, &json!({}));
        for words in [&[name][..], &[&format!("{kind}/{name}")], &[kind, name]] {
            for command in ["why", "standing", "history"] {
                let told = says(&agent, &[&[command], words].concat());
                assert!(told.starts_with(&format!("{kind}/{name}")), "{command} {words:?}: {told}");
            }
        }
    }
    for words in [&["lock", "nightly"][..], &["lock/nightly"]] {
        let told = says(&agent, &[&["why"], words].concat());
        assert!(told.starts_with("leader/nightly is held"), "{told}");
    }
    // A name that several kinds hold needs its kind, and a name without any history is free.
    holder.acquire("lease", "nightly", &json!({}));
    let refused = |words: &[&str]| {
        let mut command = Command::new(binary("tenure"));
        let output = command.env("TENURE_SOCKET", agent.socket()).args(words).output();
        let output = output.expect("the command runs");
        assert_eq!(output.status.code(), Some(64), "{words:?}");
        String::from_utf8(output.stderr).expect("it is UTF-8")
    };
    let told = refused(&["revoke", "nightly"]);
    assert!(told.contains("(leader, lease); write for example leader nightly"), "{told}");
    assert!(refused(&["why", "leader"]).contains("write the name after the kind"));
    assert!(says(&agent, &["standing", "unheard-of"]).starts_with("leader/unheard-of: free"));
    // A hold that is over is found by its history.
    let mailbox = agent.http().standing("lease", "mailbox").holders[0].hold.expect("it is ours");
    holder.release(mailbox);
    let told = eventually("its end to be known", || {
        Some(says(&agent, &["history", "mailbox"])).filter(|told| told.contains("released"))
    });
    assert!(told.starts_with("lease/mailbox"), "{told}");
    holder.acquire("leader", "jobs:nightly", &json!({}));
    for (words, expected) in [
        (["revoke", "team/gpu"], "semaphore/team/gpu: 1 grant revoked"),
        (["why", "jobs:nightly"], "leader/jobs:nightly is held"),
        (["ls", "leader"], "leader/nightly"),
        (["ls", "lock/night*"], "leader/nightly"),
        (["ls", "nope/*"], "nothing that matches nope/* is held or waited for"),
    ] {
        let told = says(&agent, &words);
        assert!(told.contains(expected), "{words:?}: {told}");
    }
    assert_eq!(says(&agent, &["ls", "nope/*", "--json"]), "[]\n");
}

#[test]
fn a_name_alone_is_enough_while_the_store_is_away() {
    let mut redis = RedisServer::start();
    let agent = start_agent(0, &redis.url(), "");
    let mut holder = Campaigner::start(&agent, "holder");
    holder.acquire("lease", "mailbox", &json!({}));
    redis.pause();
    let told = says(&agent, &["why", "mailbox"]);
    assert!(told.starts_with("lease/mailbox: nobody can tell who holds it"), "{told}");
    redis.resume();
}
