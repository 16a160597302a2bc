//! Hosts whose clock on the wall is decades off. Nothing but what people are told goes by it.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tenure_host::clock;
use tenure_tests::harness::{
    Agent, Client, DEADLINE, Heir, Program, RedisServer, binary, eventually, run_to_end, skew,
    until,
};

/// A minute after the beginning of 1970, and of 2099: what the log has of it, and seconds.
const CLOCKS: [(&str, f64); 2] =
    [("\"timestamp\":\"1970-01-01T", 60.0), ("\"timestamp\":\"2099-01-01T", 4_070_908_860.0)];

/// Longer than several agents on a busy machine take for a beat.
const TTL_S: u64 = 6;

/// `tenure`, by the same clock.
fn tenure(agent: &Agent, ahead_s: f64, args: &[&str]) -> Program {
    let mut command = Command::new(binary("tenure"));
    command.args(args).env("TENURE_SOCKET", agent.socket()).stdin(Stdio::null());
    skew(&mut command, ahead_s);
    Program::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Somebody holds by one agent, and the next one waits by the other.
#[track_caller]
fn check(agent: &Agent, other: &Agent, ahead_s: f64) {
    let told = |args: &[&str]| {
        let (code, out, err) = run_to_end(&mut tenure(agent, ahead_s, args));
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}: {out}");
        out
    };
    let go = agent.dir().join("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done; exit 3", go.display());
    let ttl = format!("{TTL_S}s");
    let args = ["lock", "role", "--ttl", &ttl, "--", "sh", "-c", &script];
    let mut run = tenure(agent, ahead_s, &args);
    let hold = || {
        let sessions = agent.http().status().sessions;
        let mut holds = sessions.into_iter().flat_map(|session| session.holds);
        holds.find(|hold| hold.token.is_some())
    };
    let first = eventually("it to hold", hold);
    let next = Heir::wait_for(other, "leader", "role");
    until("beats for longer than the ttl", || {
        let valid_until = hold().expect("it holds").valid_until_boottime_ns;
        valid_until > first.valid_until_boottime_ns + TTL_S * 1_000_000_000
    });
    assert!(told(&["status"]).contains("leader/role"));
    let holders = agent.http().standing("leader", "role").holders;
    let tokens: Vec<_> = holders.iter().map(|holder| Some(holder.token)).collect();
    assert_eq!(tokens, [first.token]);
    fs::write(&go, "").expect("the directory is ours");
    assert_eq!(run.wait_code(), 3);
    assert!(Some(next.gets_it().token) > first.token);
    let changes = eventually("the past to be told", || {
        let told = told(&["history", "leader", "role", "--json"]);
        let history: Value = serde_json::from_str(&told).expect("it is JSON");
        let changes = history["changes"].as_array().expect("there is a list").clone();
        changes.iter().any(|change| change["exit_status"] == 3).then_some(changes)
    });
    for change in changes {
        let ago_ms = change["ago_ms"].as_u64().expect("a time");
        assert!(ago_ms <= u64::try_from(DEADLINE.as_millis()).expect("it is short"), "{change}");
    }
    other.http().end(next.session);
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn in_1970_and_in_2099_holds_beat_and_pass_on_and_are_told_of() {
    let now = Duration::from_micros(clock::wall_us()).as_secs_f64();
    let ahead_s = CLOCKS.map(|(_, second)| (second - now).round());
    let start = |url: &str, at: usize| {
        let agent = Agent::setup().upstream(url).skewed(ahead_s[at]).start();
        until("its log to show that clock", || agent.log().contains(CLOCKS[at].0));
        agent
    };
    let (start, ahead_s) = (&start, &ahead_s);
    thread::scope(|scope| {
        for (at, other) in [(0, 1), (1, 0)] {
            scope.spawn(move || {
                let alone = start("embedded:", at);
                check(&alone, &alone, ahead_s[at]);
            });
            scope.spawn(move || {
                let redis = RedisServer::start();
                let [agent, other] = [at, other].map(|at| start(&redis.url(), at));
                check(&agent, &other, ahead_s[at]);
            });
        }
    });
}
