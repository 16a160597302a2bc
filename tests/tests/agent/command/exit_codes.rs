//! Every way in which `tenure run` can fail to get what it wants, with every way of waiting: the exit
//! status, the line that says why, and how long it may take at most.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;
use tenure_tests::harness::{
    Agent, Client, Fleet, Program, RedisServer, binary, boottime_ns, eventually,
};

const NS_PER_S: u64 = 1_000_000_000;
/// A busy machine may take so much longer than what was promised, s.
const SLACK_S: u64 = 10;
/// The longest that an agent which does not answer may keep anybody, s.
const HANGS_MAX_S: u64 = 5;

const FOR_EVER: &[&str] = &[];
const ONCE: &[&str] = &["--no-wait"];
const THREE_SECONDS: &[&str] = &["-w", "3s"];

/// The end of a `tenure run`.
enum End {
    /// With this exit status, after so many seconds at most where that is promised.
    Exits(i32, Option<u64>),
    /// It goes on until somebody ends it.
    Waits,
}

use End::{Exits, Waits};

/// A `tenure run` under way, which writes what it says to a file.
struct Running {
    program: Program,
    said: PathBuf,
    since: u64,
}

impl Running {
    fn start(directory: &Path, socket: &Path, options: &[&str], number: usize) -> Running {
        let said = directory.join(format!("said-{number}"));
        let mut command = Command::new(binary("tenure"));
        command.env("TENURE_SOCKET", socket).args(["run", "--leader", "role"]).args(options);
        command.args(["--", "true"]).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&said).expect("the directory is ours"));
        let since = boottime_ns();
        Running { program: Program::start(&mut command), said, since }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).expect("it was made before")
    }

    #[track_caller]
    fn check(mut self, what: &str, end: &End, line: &str) {
        let code = match end {
            Exits(code, _) => *code,
            Waits => {
                eventually(&format!("{what}: it to say what it waits for"), || {
                    (self.said().contains(line) || self.program.ended().is_some()).then_some(())
                });
                self.program.signal(Signal::SIGTERM);
                128 + Signal::SIGTERM as i32
            }
        };
        let exit = self.program.wait_code();
        let (said, took_s) = (self.said(), (boottime_ns() - self.since) / NS_PER_S);
        println!("{what}: {exit} after {took_s} s: {}", said.trim_end());
        assert_eq!(exit, code, "{what}: {said}");
        assert!(said.contains(line) && (said.is_empty() == line.is_empty()), "{what}: {said}");
        if let Exits(_, Some(most_s)) = end {
            assert!(took_s <= most_s + SLACK_S, "{what}: {took_s} s");
        }
    }
}

/// Runs all of them at once.
#[track_caller]
fn check(scene: &str, agent: &Agent, rows: [(&[&str], End, &str); 3]) {
    std::thread::scope(|scope| {
        for (number, (options, end, line)) in rows.iter().enumerate() {
            let running = Running::start(agent.dir(), &agent.socket(), options, number);
            scope.spawn(move || running.check(&format!("{scene}, {options:?}"), end, line));
        }
    });
}

fn fleet() -> Fleet {
    Fleet::start_with(RedisServer::start(), 2, "")
}

#[test]
fn what_is_free_is_had() {
    let fleet = fleet();
    for options in [FOR_EVER, ONCE, THREE_SECONDS] {
        let agent = &fleet.agents[0];
        let running = Running::start(agent.dir(), &agent.socket(), options, 0);
        running.check(&format!("free, {options:?}"), &Exits(0, None), "");
    }
}

#[test]
fn what_somebody_else_has_is_not_had() {
    let fleet = fleet();
    let mut http = fleet.agents[1].http();
    let session = http.register(&json!({"name": "backup.sh", "keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "role", &json!({}));
    check(
        "held elsewhere",
        &fleet.agents[0],
        [
            (FOR_EVER, Waits, "tenure: waiting for leader/role: held by backup.sh on beta for "),
            (ONCE, Exits(75, None), "tenure: leader/role: taken by backup.sh on beta "),
            (THREE_SECONDS, Exits(75, None), "tenure: leader/role: not free within --wait 3s"),
        ],
    );
}

#[test]
fn a_redis_that_does_not_answer_has_given_it_to_nobody() {
    let mut fleet = fleet();
    fleet.redis.pause();
    check(
        "Redis stopped",
        &fleet.agents[0],
        [
            (FOR_EVER, Waits, "tenure: waiting for leader/role: the upstream is not available"),
            (ONCE, Exits(69, None), "tenure: leader/role: the upstream is not available"),
            (
                THREE_SECONDS,
                Exits(69, Some(3)),
                "tenure: leader/role: the upstream is not available",
            ),
        ],
    );
    fleet.redis.resume();
}

#[test]
fn a_redis_that_is_gone_has_given_it_to_nobody() {
    let mut fleet = fleet();
    fleet.redis.kill();
    check(
        "Redis gone",
        &fleet.agents[0],
        [
            (FOR_EVER, Waits, "tenure: waiting for leader/role: the upstream is not available"),
            (ONCE, Exits(69, None), "tenure: leader/role: the upstream is not available"),
            (
                THREE_SECONDS,
                Exits(69, Some(3)),
                "tenure: leader/role: the upstream is not available",
            ),
        ],
    );
}

#[test]
fn without_an_agent_nobody_waits() {
    let mut fleet = fleet();
    let agent = &mut fleet.agents[0];
    agent.stop();
    let line = "tenure: leader/role: there is no agent socket at ";
    check(
        "agent stopped",
        agent,
        [
            (FOR_EVER, Exits(69, Some(HANGS_MAX_S)), line),
            (ONCE, Exits(69, Some(HANGS_MAX_S)), line),
            (THREE_SECONDS, Exits(69, Some(3)), line),
        ],
    );
}

#[test]
fn an_agent_that_hangs_is_given_up() {
    let mut fleet = fleet();
    let agent = &mut fleet.agents[0];
    agent.pause();
    let line = "gave no answer within ";
    check(
        "agent hangs",
        agent,
        [
            (FOR_EVER, Exits(69, Some(HANGS_MAX_S)), line),
            (ONCE, Exits(69, Some(HANGS_MAX_S)), line),
            (THREE_SECONDS, Exits(69, Some(3)), line),
        ],
    );
    agent.resume();
}
