//! What many agents cost a gateway and its store, and what they keep when one of both stands still. Counts alone: the
//! benchmark has the times.
//!
//! There are as few agents as show it, so that machines with other work beat them all in time. With `TENURE_LOAD=full`
//! there are 50 with 200 holds each.

use std::time::Duration;
use std::{env, thread};

use serde_json::json;
use tenure_core::keeper::Rhythm;
use tenure_tests::harness::{Gateway, Key, RedisServer, nothing_is_left, rss_kib, until};
use tenure_tests::light::LightAgents;
use uuid::Uuid;

/// Agents, and the holds of each.
const SOME: (usize, usize) = (20, 50);
const MANY: (usize, usize) = (50, 200);
/// The variable that has the test of their cost take many.
const SIZE: &str = "TENURE_LOAD";
/// The cadence of the sessions of a gateway.
const SEED: Rhythm = Rhythm { ttl: Duration::from_secs(90), beat: Duration::from_secs(30) };
/// The same in a third of the time.
const FAST: Rhythm = Rhythm { ttl: Duration::from_secs(30), beat: Duration::from_secs(10) };
/// An agent's holds are beaten together, those that were taken within a while of each other: when all of them were
/// beaten once, that was in so many calls of the store at most, however many they are.
const STORE_CALLS_PER_ROUND: f64 = 12.0;
/// What an agent with all its holds may take of a gateway.
const KIB_PER_AGENT: u64 = 1024;
/// Commands of Redis that run a script.
const SCRIPTS: [&str; 4] = ["evalsha", "eval", "fcall", "evalsha_ro"];

const ANNOUNCED: &str = "tenured_gateway_registers_total{outcome=\"done\"}";

struct Load {
    redis: RedisServer,
    gateway: Gateway,
    agents: LightAgents,
    keys: Vec<Key>,
    /// The sessions of the agents, in their order.
    sessions: Vec<Uuid>,
    idle_kib: u64,
}

impl Load {
    fn begin(agents: usize, holds: usize, rhythm: Rhythm) -> Load {
        let redis = RedisServer::start();
        let keys: Vec<Key> = (0..agents)
            .map(|agent| Key::within(&format!("agent-{agent}"), &["--right", "metrics"]))
            .collect();
        let gateway = Gateway::start_with(&redis.url(), &keys.iter().collect::<Vec<_>>());
        let idle_kib = rss_kib(gateway.pid());
        let agents = LightAgents::start(&gateway, &keys, rhythm);
        let sessions = agents.take_all(holds);
        Load { redis, gateway, agents, keys, sessions, idle_kib }
    }

    fn scripts(&self) -> u64 {
        let stats = self.redis.commandstats();
        SCRIPTS.iter().filter_map(|name| stats.get(*name)).sum()
    }

    /// Waits until so many more beats were answered.
    fn beaten(&self, more: u64) {
        let enough = self.agents.beats() + more;
        until("the beats to be answered", || self.agents.beats() >= enough);
    }

    /// Sessions of the project.
    fn members(&self) -> u64 {
        let keys = self.redis.keys();
        keys.iter().filter(|key| key.starts_with("prism:session:")).count() as u64
    }

    /// Announcements of sessions that were answered.
    fn announced(&self) -> u64 {
        let header = self.keys[0].header();
        let (_, text) = self.gateway.call_with(&header, "GET /metrics", "").expect("it serves");
        let found = text.lines().find_map(|line| line.strip_prefix(ANNOUNCED)?.trim().parse().ok());
        found.unwrap_or_else(|| panic!("{ANNOUNCED} is missing in:\n{text}"))
    }

    fn inspect(&self) -> (u16, String) {
        let body = json!({"resource": {"tenant": "t", "kind": "leader", "name": "n"}}).to_string();
        let head = "POST /v1/upstream/inspect";
        self.gateway.call_with(&self.keys[0].header(), head, &body).expect("it serves")
    }

    /// Something stood still and goes on: so does everybody, and nobody has lost anything.
    fn goes_on(self) {
        let (session, wait) = (self.sessions[0], "block");
        let more = json!({"session": session, "kind": "leader", "name": "more", "wait": wait});
        self.agents.take(0, more);
        // Everything is beaten again.
        self.beaten(self.agents.held());
        assert_eq!(self.agents.tally().lost, 0);
        for (agent, session) in self.sessions.iter().enumerate() {
            self.agents.end(agent, *session);
        }
        nothing_is_left(&self.redis);
    }

    fn store_stands_still(mut self, time: Duration) {
        self.redis.pause();
        thread::scope(|scope| {
            let stands_still = scope.spawn(|| thread::sleep(time));
            while !stands_still.is_finished() {
                let (status, answer) = self.inspect();
                assert_eq!(status, 503, "{answer}");
                assert!(answer.contains("retry-after: "), "{answer}");
            }
        });
        assert_eq!(self.agents.tally().lost, 0);
        self.redis.resume();
        self.goes_on();
    }

    fn gateway_stands_still(mut self, time: Duration) {
        self.gateway.pause();
        thread::sleep(time);
        assert_eq!(self.agents.tally().lost, 0);
        self.gateway.resume();
        self.goes_on();
    }
}

#[test]
fn many_agents_beat_with_few_calls_in_little_memory_and_lose_nothing() {
    let full = env::var(SIZE).is_ok_and(|size| size == "full");
    let (agents, holds) = if full { MANY } else { SOME };
    let load = Load::begin(agents, holds, FAST);
    let all = load.agents.held();
    load.beaten(all);
    let (scripts, before) = (load.scripts(), load.agents.tally());
    load.beaten(2 * all);
    let (scripts, after) = (load.scripts() - scripts, load.agents.tally());
    let beats = after.beats - before.beats;
    let kib = rss_kib(load.gateway.pid()).saturating_sub(load.idle_kib);
    eprintln!(
        "{beats} beats in {} calls of agents and {scripts} scripts; {} failed; {kib} KiB for {agents} agents",
        after.beat_calls - before.beat_calls,
        after.failures
    );
    assert_eq!(after.lost, 0);
    let rounds = beats as f64 / holds as f64;
    assert!(scripts as f64 <= rounds * STORE_CALLS_PER_ROUND, "{scripts} for {beats} beats");
    assert!(kib <= KIB_PER_AGENT * agents as u64, "{kib} KiB");
}

#[test]
fn a_store_that_stands_still_costs_nobody_a_hold() {
    Load::begin(10, 50, SEED).store_stands_still(Duration::from_secs(15));
}

#[test]
fn a_gateway_that_stands_still_costs_nobody_a_hold() {
    Load::begin(10, 50, SEED).gateway_stands_still(Duration::from_secs(15));
}

#[test]
#[ignore = "takes three minutes"]
fn a_store_that_stands_still_for_a_minute_costs_nobody_a_hold() {
    Load::begin(MANY.0, MANY.1, SEED).store_stands_still(Duration::from_secs(60));
}

#[test]
#[ignore = "takes three minutes"]
fn a_gateway_that_stands_still_for_a_minute_costs_nobody_a_hold() {
    Load::begin(MANY.0, MANY.1, SEED).gateway_stands_still(Duration::from_secs(60));
}

#[test]
fn a_storm_of_registrations_of_one_identity_settles() {
    const ROUNDS: usize = 20;
    const ONE_NAME: usize = 10;
    let load = Load::begin(ONE_NAME, 0, SEED);
    let identity = json!({"project": "p", "name": "donna", "surface": "cli"});
    let before = load.scripts();
    thread::scope(|scope| {
        for agent in 0..ONE_NAME {
            let (load, identity) = (&load, &identity);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let session = load.agents.register(agent, identity);
                    load.agents.end(agent, session);
                }
            });
        }
    });
    let registers = (ROUNDS * ONE_NAME) as u64;
    let of_agents = ONE_NAME as u64;
    let settled = || {
        let before = load.scripts();
        // Long enough for what goes on by itself to show.
        thread::sleep(Duration::from_secs(1));
        load.scripts() - before <= of_agents && load.members() == of_agents
    };
    until("the storm to settle", settled);
    let (done, scripts) = (load.announced(), load.scripts() - before);
    eprintln!("{registers} registrations: {done} announcements, {scripts} scripts");
    assert!(done <= registers + of_agents, "{done} announcements of {registers} sessions");
    assert!(scripts <= 4 * registers, "{scripts} scripts for {registers} registrations");
    assert_eq!(load.agents.tally().lost, 0);
}
