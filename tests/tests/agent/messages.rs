//! Messages that once led their readers astray: for each the situation, and what is said in its place.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tenure::wire::UpstreamState;
use tenure_tests::harness::{
    Agent, Client, Program, RedisServer, TenureRun, binary, boottime_ns, run_to_end, start_agent,
    until,
};

/// A command, and what becomes of it.
struct Row<'a> {
    /// The message of before.
    was: &'a str,
    words: &'a [&'a str],
    code: i32,
    says: &'a [&'a str],
    never: &'a [&'a str],
}

#[track_caller]
fn tenure(agent: &Agent, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", agent.socket()).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, out, err) = run_to_end(&mut Program::start(&mut command));
    (code, out + &err)
}

impl Row<'_> {
    #[track_caller]
    fn check(&self, agent: &Agent) {
        let Row { was, words, code, says, never } = self;
        let (exit, said) = tenure(agent, words);
        println!("instead of {was:?}\n$ tenure {}\n{said}", words.join(" "));
        assert_eq!(exit, *code, "{words:?}: {said}");
        for part in *says {
            assert!(said.contains(part), "{words:?}: {part:?} is not in {said}");
        }
        for part in never.iter().chain([was]) {
            assert!(!said.contains(part), "{words:?}: {part:?} is in {said}");
        }
    }
}

#[track_caller]
fn check(agent: &Agent, rows: &[Row<'_>]) {
    rows.iter().for_each(|row| row.check(agent));
}

fn is(agent: &Agent, state: UpstreamState) {
    until("the agent to notice", || agent.http().status().upstream.state == state);
}

#[test]
fn a_redis_that_is_stopped_is_no_holder_and_its_error_has_a_time() {
    let mut redis = RedisServer::start();
    let agent = start_agent(0, &redis.url(), "");
    is(&agent, UpstreamState::Up);
    redis.process().pause();
    check(
        &agent,
        &[Row {
            was: "was not free within",
            words: &["run", "--leader", "foo", "--wait", "2s", "--", "true"],
            code: 69,
            says: &["leader/foo: the upstream is not available"],
            never: &["wait longer", "leader/foo: leader/foo"],
        }],
    );
    is(&agent, UpstreamState::Down);
    check(
        &agent,
        &[
            Row {
                was: "redis up",
                words: &["status"],
                code: 1,
                says: &["redis down for ", "last error: ", "the upstream is down for "],
                never: &[],
            },
            Row {
                was: "leader/foo: the upstream does not answer\n",
                words: &["why", "leader", "foo"],
                code: 69,
                says: &[
                    "leader/foo: nobody can tell who holds it",
                    "store    the upstream is down for ",
                    "here     you neither hold it nor wait for it through this agent",
                    "next     tenure doctor",
                ],
                never: &["is free"],
            },
        ],
    );
    redis.process().resume();
    is(&agent, UpstreamState::Up);
    let (code, said) = tenure(&agent, &["status"]);
    assert!(code == 0 && said.contains("(was down "), "{said}");
    let error = said.lines().find(|line| line.contains("last error"));
    assert!(error.is_none_or(|line| line.contains(" ago: ")), "an error of before: {said}");
}

#[test]
fn a_redis_that_refuses_is_not_said_to_be_silent() {
    let redis = RedisServer::start();
    let agent = start_agent(0, &redis.url(), "");
    is(&agent, UpstreamState::Up);
    redis.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    check(
        &agent,
        &[Row {
            was: "the upstream does not answer (Redis refused: OOM",
            words: &["run", "--leader", "foo", "-n", "--", "true"],
            code: 69,
            says: &["leader/foo: the upstream refuses (Redis: OOM"],
            never: &["does not answer"],
        }],
    );
}

#[test]
fn a_key_of_another_program_is_named_with_its_type_and_the_way_out() {
    let redis = RedisServer::start();
    let agent = start_agent(0, &redis.url(), "");
    is(&agent, UpstreamState::Up);
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let held = http.acquire(session, "leader", "other", &json!({}));
    redis.command::<()>(&["HSET", "leader:board", "points", "7"]);
    redis.command::<()>(&["SET", "adv-sem:semaphore_waiting:gpu", "a text"]);
    let leader = "(Redis: the key 'leader:board' is a hash where a string belongs (WRONGTYPE): another \
                  program uses it; rename it there, take another name here, or set another \
                  redis.leader_prefix for all agents and gateways)";
    let semaphore =
        "(Redis: the key 'adv-sem:semaphore_waiting:gpu' is a string where a sorted set belongs";
    check(
        &agent,
        &[
            Row {
                was: "on @user_script",
                words: &["run", "--leader", "board", "-n", "--", "true"],
                code: 69,
                says: &["leader/board: the upstream refuses ", leader],
                never: &["tenure doctor", "does not answer"],
            },
            Row {
                was: "the upstream does not answer",
                words: &["why", "leader", "board"],
                code: 69,
                says: &[
                    "leader/board: nobody can tell who holds it",
                    "store    the upstream refuses ",
                    leader,
                ],
                never: &["is free", "on @user_script"],
            },
            Row {
                was: "on @user_script",
                words: &["run", "--semaphore", "gpu", "--limit", "2", "-n", "--", "true"],
                code: 69,
                says: &[semaphore, "redis.semaphore_namespace"],
                never: &["does not answer"],
            },
            Row {
                was: "the upstream does not answer",
                words: &["why", "semaphore", "gpu"],
                code: 69,
                says: &[semaphore],
                never: &["is free"],
            },
            Row {
                was: "refuses",
                words: &["run", "--semaphore", "board", "--limit", "1", "-n", "--", "true"],
                code: 0,
                says: &[],
                never: &[],
            },
        ],
    );
    let standing = agent.http().standing("leader", "other");
    assert_eq!(standing.holders[0].token, held.token, "other holds go on");
    redis.command::<()>(&["RENAME", "leader:board", "scores:board"]);
    Row {
        was: "refuses",
        words: &["run", "--leader", "board", "-n", "--", "true"],
        code: 0,
        says: &[],
        never: &[],
    }
    .check(&agent);
    let points: String = redis.command(&["HGET", "scores:board", "points"]);
    assert_eq!(points, "7");
}

#[test]
fn a_lock_of_another_program_has_no_host_of_its_own() {
    let redis = RedisServer::start();
    let agent = start_agent(0, &redis.url(), "");
    redis.command::<()>(&["SET", "leader:nightly", "a510b8bc", "PX", "600000"]);
    check(
        &agent,
        &[
            Row {
                was: "on unknown (token 0, for 0ms)",
                words: &["run", "--leader", "nightly", "-n", "--", "true"],
                code: 75,
                says: &["taken by a program without Tenure (no token; lock value a510b8bc)"],
                never: &["unknown"],
            },
            Row {
                was: "on unknown",
                words: &["why", "leader", "nightly"],
                code: 0,
                says: &["held     by a program without Tenure (lock value a510b8bc)"],
                never: &["token 0"],
            },
        ],
    );
}

#[test]
fn the_end_of_max_hold_is_called_so() {
    let agent = Agent::start();
    check(
        &agent,
        &[Row {
            was: "the hold is not renewed",
            words: &[
                "run",
                "--leader",
                "x",
                "--max-hold",
                "1s",
                "--kill-after",
                "500ms",
                "--",
                "sleep",
                "600",
            ],
            code: 74,
            says: &["leader/x: --max-hold 1s is over: the command is stopped"],
            never: &["tenure doctor"],
        }],
    );
}

#[test]
fn an_agent_that_is_stopped_is_said_to_be_so_at_once() {
    let mut agent = Agent::start();
    agent.pause();
    let pid = agent.pid();
    let (stopped, cont) = (format!("pid {pid}, is stopped"), format!("kill -CONT {pid}"));
    let was = "gave no answer within 5s";
    for words in [&["status"][..], &["why", "leader", "x"], &["ls"], &["doctor"]] {
        let says = &[stopped.as_str(), &cont];
        Row { was, words, code: 69, says, never: &["see `tenure doctor`"] }.check(&agent);
    }
    agent.resume();
}

#[test]
fn a_standstill_is_not_taken_for_a_lack_of_cpu() {
    let config = "[leader]\nttl = \"1s\"\nbeat = \"100ms\"\n";
    let mut agent = Agent::setup().config(config).start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "x", &json!({}));
    until("some beats", || agent.http().status().upstream.beat_lateness.beats > 3);
    agent.pause();
    let since = boottime_ns();
    until("it to stand still for long enough", || {
        Duration::from_nanos(boottime_ns() - since) > Duration::from_secs(2)
    });
    agent.resume();
    until("a late beat, or the loss", || agent.log().contains("stood still for "));
    let (_, said) = tenure(&agent, &["doctor"]);
    println!("{said}");
    assert!(!said.contains("give it a higher weight"), "{said}");
    assert!(!said.contains("999 of 1000"), "{said}");
}

#[test]
fn a_command_that_crashed_is_not_said_to_have_been_released() {
    let agent = Agent::start();
    let args = ["--leader", "nightly", "--name", "backup"];
    let (code, ..) = TenureRun::new(&agent.socket(), &args, &["sh", "-c", "kill -9 $$"]).finish();
    assert_eq!(code, 137);
    until("its end to be told", || {
        tenure(&agent, &["history", "leader", "nightly"]).1.contains("killed by SIGKILL")
    });
    check(
        &agent,
        &[Row {
            was: "it was released",
            words: &["why", "leader", "nightly"],
            code: 0,
            says: &["released by backup on ", "its command ended (killed by SIGKILL), after "],
            never: &[],
        }],
    );
    let log = agent.log();
    let ended = log.lines().find(|line| line.contains("session ended")).expect("a line");
    assert!(!ended.contains("reason=\"it was released\"") || ended.contains("137"), "{ended}");
}

#[test]
fn a_table_of_holds_has_the_words_of_people() {
    let agent = Agent::start();
    let mut http = agent.http();
    let first = http.register(&json!({"name": "first", "keepalive_ms": 600_000})).session;
    http.acquire(first, "leader", "role", &json!({"ttl_ms": 600_000}));
    check(
        &agent,
        &[Row {
            was: "1 sessions, 1 holds",
            words: &["status"],
            code: 0,
            says: &["all users 1 session, 1 hold, 0 waiting", "late by p50 "],
            never: &["(half)", "999 of 1000", "HELD BY"],
        }],
    );
    let second = http.register(&json!({"name": "second", "keepalive_ms": 600_000})).session;
    let queue = json!({"session": second, "kind": "leader", "name": "role", "wait": "queue"});
    assert_eq!(http.post("/v1/acquire", &queue).status, 202);
    check(
        &agent,
        &[
            Row {
                was: "waiting, 1.",
                words: &["status"],
                code: 0,
                says: &["leader/role  waiting, 1st", "2 sessions, 1 hold, 1 waiting"],
                never: &["HELD BY"],
            },
            Row {
                was: "leader/role: leader/role",
                words: &["run", "--leader", "role", "-w", "100ms", "--", "true"],
                code: 75,
                says: &["leader/role: not free within --wait 100ms", "first on "],
                never: &["ms;"],
            },
        ],
    );
}

#[test]
fn every_alert_has_a_page_that_says_what_to_do() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus");
    let mut alerts = 0;
    for file in folder.read_dir().expect("it is there").flatten() {
        if !file.file_name().to_string_lossy().ends_with(".rules.yml") {
            continue;
        }
        let text = std::fs::read_to_string(file.path()).expect("it can be read");
        let count =
            |what: &str| text.lines().filter(|line| line.trim_start().starts_with(what)).count();
        assert_eq!(count("- alert:"), count("runbook:"), "{:?}", file.path());
        alerts += count("- alert:");
    }
    assert!(alerts > 0);
}
