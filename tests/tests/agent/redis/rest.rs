//! The commands of idle agents: few, and each of use to a client.

use serde_json::json;
use tenure::wire::LostReason;
use tenure_tests::harness::{
    Agent, Campaigner, Client, Fleet, RedisServer, eventually, start_agent, until,
};

/// A holder and a waiter of a semaphore with one permit, as a program that is no agent leaves them.
struct Foreign<'a> {
    redis: &'a RedisServer,
    name: String,
}

impl<'a> Foreign<'a> {
    fn start(redis: &'a RedisServer, name: &str) -> Foreign<'a> {
        let foreign = Foreign { redis, name: name.to_owned() };
        let now: Vec<u64> = redis.command(&["TIME"]);
        let (now, later) = (now[0].to_string(), (now[0] + 3600).to_string());
        redis.command::<()>(&["SET", &foreign.key("max"), "1"]);
        for (part, score, member) in [
            ("ttl", &later, "holder"),
            ("main", &later, "holder"),
            ("waiting_heartbeat", &later, "waiter"),
            ("waiting", &now, "waiter"),
        ] {
            let key = foreign.key(part);
            redis.command::<()>(&["ZADD", &key, score, &foreign.member(member)]);
        }
        foreign
    }

    fn key(&self, part: &str) -> String {
        format!("adv-sem:semaphore_{part}:{}", self.name)
    }

    fn member(&self, which: &str) -> String {
        format!("{which:0<16}{:0<16}", self.name)
    }

    /// The holder goes as the package lets it go, which wakes nobody. Waits until somebody else has
    /// granted the waiter its permit.
    #[track_caller]
    fn is_handed_over(&self) {
        self.redis.command::<()>(&["ZREM", &self.key("ttl"), &self.member("holder")]);
        self.redis.command::<()>(&["ZREM", &self.key("main"), &self.member("holder")]);
        let told = format!("adv-sem:acquisition_notification:{}", self.member("waiter"));
        until("the waiter to be told", || self.redis.command::<u64>(&["LLEN", &told]) == 1);
    }
}

fn calls(redis: &RedisServer, command: &str) -> u64 {
    redis.commandstats().get(command).copied().unwrap_or(0)
}

/// How many calls to Redis of these agents had no answer in time.
fn failed_calls(agents: &[Agent]) -> u64 {
    let of = |agent: &Agent| -> u64 {
        let metrics = agent.http().get("/metrics").text();
        let counts = metrics.lines().filter_map(|line| {
            let (_, count) =
                line.strip_prefix("tenured_upstream_errors_total{")?.split_once(' ')?;
            Some(count.parse::<u64>().expect("a number"))
        });
        counts.sum()
    };
    agents.iter().map(of).sum()
}

/// When the time of each of these permits is up: keys and members as Redis has them.
fn ends(connection: &mut redis::Connection, permits: &[(String, String)]) -> Vec<f64> {
    let mut scores = redis::pipe();
    for (key, member) in permits {
        scores.cmd("ZSCORE").arg(key).arg(member);
    }
    scores.query(connection).expect("all are held")
}

#[test]
fn permits_that_are_merely_held_make_nobody_look_after_them() {
    const EACH: u64 = 40;
    let fleet = Fleet::start_with(RedisServer::start(), 3, "");
    let mut programs: Vec<Campaigner> =
        fleet.agents.iter().map(|agent| Campaigner::start(agent, "program")).collect();
    let mut permits = Vec::new();
    for (host, program) in programs.iter_mut().enumerate() {
        for i in 0..EACH {
            let name = format!("s{host}-{i}");
            let with = json!({"limit": 2, "ttl_ms": 6000});
            let hold = program.acquire("semaphore", &name, &with).hold;
            permits.push((format!("adv-sem:semaphore_main:{name}"), hold.simple().to_string()));
        }
    }
    let mut connection = fleet.redis.connect();
    let mut all_are_beaten = || {
        let before = ends(&mut connection, &permits);
        until("all to be beaten", || {
            let now = ends(&mut connection, &permits);
            now.iter().zip(&before).all(|(now, before)| now > before)
        });
    };
    // The first beat of a permit looks after its semaphore, and so may one that is tried again.
    let stats = eventually("a time without a failed call", || {
        let failed = failed_calls(&fleet.agents);
        // Every one is beaten, and with that every agent told, before anything is counted.
        all_are_beaten();
        fleet.redis.command::<()>(&["CONFIG", "RESETSTAT"]);
        (0..2).for_each(|_| all_are_beaten());
        let stats = fleet.redis.commandstats();
        (failed_calls(&fleet.agents) == failed).then_some(stats)
    });
    // Only the upkeep of a semaphore calls these here.
    for command in ["zrangebyscore", "zrange", "zrevrange"] {
        assert_eq!(stats.get(command), None, "{stats:?}");
    }
    // With this a watched key is read anew, by its holder alone.
    let (reads, beats) = (stats.get("zcard").copied().unwrap_or(0), stats["zadd"]);
    assert!(reads <= 2 * beats, "{stats:?}");
    drop(programs);
    fleet.is_left_empty();
}

fn bytes_told(redis: &RedisServer) -> u64 {
    let info: String = redis.command(&["INFO", "stats"]);
    let line = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    line.and_then(|bytes| bytes.parse().ok()).expect("every server counts them")
}

#[test]
fn a_change_is_told_to_nobody_who_did_not_ask() {
    const CHANGES: u64 = 2000;
    let fleet = Fleet::start_with(RedisServer::start(), 3, "");
    let mut programs: Vec<Campaigner> =
        fleet.agents.iter().map(|agent| Campaigner::start(agent, "program")).collect();
    for (host, program) in programs.iter_mut().enumerate() {
        program.acquire("leader", &format!("own {host}"), &json!({}));
    }
    let mut connection = fleet.redis.connect();
    let before = bytes_told(&fleet.redis);
    for i in 0..CHANGES {
        let key = ["leader", "tenure:lease", "prism:master:default"][i as usize % 3];
        redis::cmd("SET").arg(format!("{key}:other")).arg(i).exec(&mut connection).expect("OK");
    }
    let told = bytes_told(&fleet.redis) - before;
    // Each of them is answered with five bytes; a push would have some fifty.
    assert!(told < CHANGES * 20, "{told} bytes");
    redis::cmd("DEL").arg("leader:other").exec(&mut connection).expect("a number");
}

#[test]
fn what_is_held_is_heard_of_however_often_others_have_changed_it() {
    let redis = RedisServer::start();
    let agent = start_agent(0, &redis.url(), "");
    let mut program = Campaigner::start(&agent, "program");
    // Its next beat comes too late to be what finds out.
    let with = json!({"ttl_ms": 600_000});
    for (kind, key) in [("leader", "leader:x"), ("lease", "tenure:lease:x")] {
        let held = program.acquire(kind, "x", &with);
        let looks = |redis: &RedisServer| calls(redis, "pttl");
        for _ in 0..3 {
            let before = looks(&redis);
            redis.command::<()>(&["PEXPIRE", key, "600000"]);
            until("the agent to look", || looks(&redis) > before);
        }
        redis.command::<()>(&["DEL", key]);
        assert_eq!(program.events.lost(held.hold).reason, LostReason::Conflict);
    }
}

#[test]
fn waiters_of_other_programs_are_served_by_whichever_agent_is_left() {
    let mut fleet = Fleet::start_with(RedisServer::start(), 3, "");
    let caretaker = || fleet_caretaker(&fleet.redis);
    until("one of the agents to be the caretaker", || caretaker().is_some());
    Foreign::start(&fleet.redis, "first").is_handed_over();
    for name in ["second", "third"] {
        fleet.agents[0].kill();
        fleet.agents.remove(0);
        Foreign::start(&fleet.redis, name).is_handed_over();
    }
}

fn fleet_caretaker(redis: &RedisServer) -> Option<String> {
    redis.command(&["GET", "tenure:caretaker:adv-sem"])
}

#[test]
fn sets_of_the_dead_are_gone_within_a_minute() {
    const DEAD: &str = "
        local function add(set, member)
            redis.call('SADD', set, member)
            redis.call('ZADD', 'tenure:sets', 1, set)
        end
        for i = 1, 10000 do add('prism:project:default:p' .. i .. ':sessions', 's' .. i) end
        for i = 1, 2000 do add('tenure:leases', 'l' .. i) end";
    let redis = RedisServer::start();
    redis.command::<()>(&["EVAL", DEAD, "0"]);
    let fleet = Fleet::start_with(redis, 3, "");
    // The agents are sessions of a project, too.
    let listed = || fleet.redis.command::<u64>(&["ZCARD", "tenure:sets"]);
    until("no other set to be listed", || listed() == 1);
    fleet.is_left_empty();
}

#[test]
fn one_agent_of_a_fleet_looks_for_what_was_there_before() {
    const KEYS: u64 = 20_000;
    let redis = RedisServer::start();
    let fill = format!("for i = 1, {KEYS} do redis.call('SET', 'k' .. i, '') end");
    redis.command::<()>(&["EVAL", &fill, "0"]);
    let foreign = Foreign::start(&redis, "early");
    let agents: Vec<_> = (0..3).map(|host| start_agent(host, &redis.url(), "")).collect();
    foreign.is_handed_over();
    // Each has a session announced: all of them have done what they do first.
    let _programs: Vec<_> =
        agents.iter().map(|agent| Campaigner::start(agent, "program")).collect();
    let walks = calls(&redis, "scan") as f64 / (KEYS as f64 / 1000.0);
    assert!(walks < 2.0, "all keys were walked through {walks} times");
}
