//! Agents and the unmodified Python package `asyncio-advanced-semaphores` on the same semaphores.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_tests::harness::{
    Campaigner, Client, Contents, Entry, Fleet, Python, RedisServer, start_agent, until,
};

/// The package's EXPIRE, s, when a client has no ttl.
const PACKAGE_EXPIRY_S: u64 = 2_147_483_647;
/// How much later than another a program may have been asked to do the same, s.
const SLACK_S: f64 = 20.0;

fn one(name: &str) -> Value {
    json!({"name": name, "value": 1})
}

fn key(part: &str, name: &str) -> String {
    format!("adv-sem:semaphore_{part}:{name}")
}

fn holders(redis: &RedisServer, name: &str) -> Vec<String> {
    members(redis, "main", name)
}

fn waiters(redis: &RedisServer, name: &str) -> Vec<String> {
    members(redis, "waiting", name)
}

fn members(redis: &RedisServer, part: &str, name: &str) -> Vec<String> {
    redis.command(&["ZRANGE", &key(part, name), "0", "-1"])
}

/// Clients of two agents and tasks of two package processes take turns until each has had several.
#[track_caller]
fn never_more_than(limit: u64) {
    const TURNS: usize = 10;
    let fleet = Fleet::start();
    let slots = TempDir::new().expect("a temporary directory can be made");
    let slots = slots.path().to_str().expect("its name is UTF-8");
    let mut agent_clients: Vec<Python> = (0..limit as usize + 1)
        .map(|i| {
            let socket = fleet.agents[i % 2].socket();
            let socket = socket.to_str().expect("its name is UTF-8");
            let limit = limit.to_string();
            Python::start(
                "agent_client.py",
                &[socket, "semaphore", "gpu", &limit, slots, "20", "0"],
            )
        })
        .collect();
    let mut packages: Vec<Python> =
        (0..2).map(|_| Python::package(&fleet.redis.python_url())).collect();
    let cycle = json!({"name": "gpu", "value": limit, "slots": slots, "stay_ms": 20});
    let tasks: Vec<_> = packages
        .iter_mut()
        .map(|package| [package.begin("cycle", &cycle), package.begin("cycle", &cycle)])
        .collect();
    for client in agent_clients.iter().chain(&packages) {
        until("everybody to have had several turns", || {
            let events = client.events();
            let too_many: Vec<_> = events.iter().filter(|e| e["event"] == "too_many").collect();
            assert!(too_many.is_empty(), "more than {limit} held at once: {too_many:?}");
            events.iter().filter(|event| event["event"] == "entered").count() >= TURNS
        });
    }
    for (package, tasks) in packages.iter_mut().zip(tasks) {
        package.call("stop", &json!({}));
        for task in tasks {
            package.result(task);
        }
    }
    packages.into_iter().chain(agent_clients.drain(..)).for_each(Python::finish);
    fleet.is_left_empty();
}

#[test]
fn together_never_more_than_one_holds_one_permit() {
    never_more_than(1);
}

#[test]
fn together_never_more_than_three_hold_three_permits() {
    never_more_than(3);
}

#[test]
fn together_never_more_than_ten_hold_ten_permits() {
    never_more_than(10);
}

#[test]
fn programs_of_both_sorts_are_served_in_the_order_of_asking() {
    const EACH: usize = 5;
    let fleet = Fleet::start();
    let mut package = Python::package(&fleet.redis.python_url());
    let mut programs: Vec<Campaigner> =
        (0..2).map(|i| Campaigner::start(&fleet.agents[i], "program")).collect();
    let limit = json!({"limit": 1});
    let held = programs[0].acquire("semaphore", "gpu", &limit);

    enum Waiter {
        Ours(usize, uuid::Uuid),
        Package(tenure_tests::harness::Pending),
    }
    let mut queue = Vec::new();
    for i in 0..EACH * 2 {
        queue.push(match i % 3 {
            // Ours and theirs alternate, with two of theirs in a row now and then.
            0 => Waiter::Ours(i % 2, programs[i % 2].queue("semaphore", "gpu", &limit)),
            _ => Waiter::Package(package.begin("acquire", &one("gpu"))),
        });
        until("the next to stand in line", || waiters(&fleet.redis, "gpu").len() == i + 1);
    }
    let standing = fleet.agents[0].http().standing("semaphore", "gpu");
    assert_eq!(standing.waiters.len(), EACH * 2, "both sorts are seen");

    programs[0].release(held.hold);
    for turn in 0..queue.len() {
        let acquisition = match &queue[turn] {
            Waiter::Ours(program, hold) => {
                programs[*program].events.granted(*hold);
                None
            }
            Waiter::Package(pending) => Some(package.result(*pending)["acquisition"].clone()),
        };
        for later in &queue[turn + 1..] {
            let overtook = match later {
                Waiter::Ours(program, hold) => programs[*program].has(*hold),
                Waiter::Package(pending) => package.answered(*pending).is_some(),
            };
            assert!(!overtook, "somebody overtook number {turn}");
        }
        match &queue[turn] {
            Waiter::Ours(program, hold) => programs[*program].release(*hold),
            Waiter::Package(_) => {
                package.call("release", &json!({"acquisition": acquisition}));
            }
        }
    }
    package.finish();
    drop(programs);
    fleet.is_left_empty();
}

#[test]
fn permits_go_from_either_sort_to_the_other() {
    let fleet = Fleet::start();
    let mut package = Python::package(&fleet.redis.python_url());
    let mut ours = Campaigner::start(&fleet.agents[0], "ours");
    for _ in 0..5 {
        let held = package.call("acquire", &one("gpu"));
        let waiting = ours.queue("semaphore", "gpu", &json!({"limit": 1}));
        assert!(!ours.has(waiting));
        package.call("release", &held);
        ours.events.granted(waiting);

        let pending = package.begin("acquire", &one("gpu"));
        until("the package to stand in line", || waiters(&fleet.redis, "gpu").len() == 1);
        assert!(package.answered(pending).is_none());
        ours.release(waiting);
        let held = package.result(pending);
        package.call("release", &held);
    }
    package.finish();
    drop(ours);
    fleet.is_left_empty();
}

/// The median time in which a permit passes between two clients of the package, ns.
#[track_caller]
fn package_handover_ns(redis: &RedisServer, rounds: usize) -> u64 {
    let mut package = Python::package(&redis.python_url());
    let mut held = package.call("acquire", &one("gpu"));
    let mut took: Vec<u64> = (0..rounds)
        .map(|_| {
            let pending = package.begin("acquire", &one("gpu"));
            until("the other to stand in line", || waiters(redis, "gpu").len() == 1);
            let release = package.begin("release", &held);
            let released = package.answer(release);
            let granted = package.answer(pending);
            held = granted["result"].clone();
            let ns = |answer: &Value| answer["at_ns"].as_u64().expect("answers are timed");
            ns(&granted).saturating_sub(ns(&released))
        })
        .collect();
    package.call("release", &held);
    package.finish();
    took.sort_unstable();
    took[rounds / 2]
}

#[test]
fn unmodified_clients_hand_over_sooner_with_an_agent_beside_them() {
    let alone = RedisServer::start();
    let without = package_handover_ns(&alone, 9);
    let fleet = Fleet::start_with(RedisServer::start(), 1, "");
    let with = package_handover_ns(&fleet.redis, 9);
    // A ratio of two figures of the same run, not a measure of speed: what is compared are
    // milliseconds with the half second after which the package looks again.
    assert!(with < without / 4, "{with} ns with an agent, {without} ns without");
    fleet.is_left_empty();
}

#[test]
fn a_limit_that_was_left_behind_while_no_agent_looked_is_taken_away() {
    let redis = RedisServer::start();
    let mut package = Python::package(&redis.python_url());
    for name in ["gpu", "used"] {
        let held = package.call("acquire", &one(name));
        if name == "gpu" {
            package.call("release", &json!({"acquisition": held["acquisition"]}));
        }
    }
    let limits = |redis: &RedisServer| -> Vec<String> {
        redis.command(&["KEYS", "adv-sem:semaphore_max:*"])
    };
    assert_eq!(limits(&redis).len(), 2);
    let fleet = Fleet::start_with(redis, 1, "");
    until("the limit to go", || limits(&fleet.redis) == [key("max", "used")]);
}

/// The keys that the package, or the agent, has in Redis with one holder and one waiter.
fn one_holder_one_waiter(redis: &RedisServer) -> BTreeMap<String, Entry> {
    until("one to hold and one to wait", || {
        holders(redis, "gpu").len() == 1 && waiters(redis, "gpu").len() == 1
    });
    let mut dump = redis.dump();
    // Keys that only Tenure's agents have, none of the package's concern: those by which they know each other, too.
    dump.retain(|key, _| ["tenure:", "prism:"].iter().all(|start| !key.starts_with(start)));
    dump
}

#[test]
fn an_agent_writes_what_the_package_writes() {
    let of_package = RedisServer::start();
    let mut package = Python::package(&of_package.python_url());
    package.call("acquire", &one("gpu"));
    package.begin("acquire", &one("gpu"));
    let theirs = one_holder_one_waiter(&of_package);

    let fleet = Fleet::start();
    let mut program = Campaigner::start_with(&fleet.agents[0], "p", &json!({"project": null}));
    program.acquire("semaphore", "gpu", &json!({"limit": 1}));
    program.queue("semaphore", "gpu", &json!({"limit": 1}));
    let ours = one_holder_one_waiter(&fleet.redis);

    let names = |dump: &BTreeMap<String, Entry>| dump.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    let now: Vec<f64> = fleet.redis.command(&["TIME"]);
    let now = now[0] + now[1] / 1e6;
    for (key, theirs) in &theirs {
        let ours = &ours[key];
        assert!(
            ours.expires_in_ms.map(|ms| ms / 1000 / 60) == Some(PACKAGE_EXPIRY_S / 60)
                && theirs.expires_in_ms.map(|ms| ms / 1000 / 60) == Some(PACKAGE_EXPIRY_S / 60),
            "{key}: {ours:?} and {theirs:?}"
        );
        match (&ours.contents, &theirs.contents) {
            (Contents::Scores(ours), Contents::Scores(theirs)) => {
                assert_eq!(ours.len(), theirs.len(), "{key}");
                for (member, _) in ours {
                    assert_eq!(member.len(), theirs[0].0.len(), "{key}");
                    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
                    assert!(member.chars().all(hex), "{key}: {member}");
                }
                let (score, their_score) = (ours[0].1, theirs[0].1);
                if key.contains("_waiting:") || key.contains("_ttl:") {
                    assert!((score - their_score).abs() < SLACK_S, "{key}: {score} {their_score}");
                } else {
                    // When it ends without a beat: 180 s by the package's default, 30 s by ours.
                    assert!(now < score && score < now + 31.0, "{key}: {score} at {now}");
                }
            }
            (ours, theirs) => assert_eq!(ours, theirs, "{key}"),
        }
    }
}

#[test]
fn the_package_sees_what_agents_hold() {
    let fleet = Fleet::start();
    let mut package = Python::package(&fleet.redis.python_url());
    let mut program = Campaigner::start(&fleet.agents[0], "program");
    let three = json!({"name": "gpu", "value": 3});
    assert_eq!(package.call("locked", &three), json!(false));
    let held: Vec<_> =
        (0..2).map(|_| program.acquire("semaphore", "gpu", &json!({"limit": 3}))).collect();
    assert_eq!(package.call("locked", &three), json!(false));
    assert_eq!(package.call("stats", &json!({})), json!({"gpu": [2, 3]}));
    let theirs = package.call("acquire", &three);
    assert_eq!(package.call("locked", &three), json!(true));
    assert_eq!(package.call("stats", &json!({"names": ["gpu"]})), json!({"gpu": [3, 3]}));

    // And the agent what the package holds.
    let standing = fleet.agents[1].http().standing("semaphore", "gpu");
    let mut tokens: Vec<u64> = standing.holders.iter().map(|holder| holder.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [0, held[0].token, held[1].token], "what is not ours has no token");
    let foreign = standing.holders.iter().find(|holder| holder.token == 0).expect("it is listed");
    assert_eq!(json!(foreign.name), theirs["acquisition"]);

    program.release(held[0].hold);
    assert_eq!(package.call("locked", &three), json!(false));
    assert_eq!(package.call("stats", &json!({})), json!({"gpu": [2, 3]}));
}

#[test]
fn a_client_with_a_short_ttl_takes_nothing_from_others() {
    let fleet = Fleet::start();
    let redis = &fleet.redis;
    let mut package = Python::package(&redis.python_url());
    let mut program = Campaigner::start(&fleet.agents[0], "program");
    let ours = program.acquire("semaphore", "gpu", &json!({"limit": 2}));
    let theirs = package.call("acquire", &json!({"name": "gpu", "value": 2}));
    let waiting = program.queue("semaphore", "gpu", &json!({"limit": 2}));
    package.begin("acquire", &json!({"name": "gpu", "value": 2}));
    until("two to stand in line", || waiters(redis, "gpu").len() == 2);

    // It makes every key that it touches expire 11 s later, under everybody.
    let mut short = Python::package(&redis.python_url());
    let pending = short.begin(
        "acquire",
        &json!({"name": "gpu", "value": 2, "ttl": 1, "heartbeat_max_interval": 1, "max_acquire_time": 12}),
    );
    until("the short one to stand in line", || waiters(redis, "gpu").len() == 3);
    // Its own wait goes on for longer than that.
    assert!(short.answer(pending)["error"].is_string(), "there was no permit for it");
    let names =
        [ours.hold.simple().to_string(), theirs["acquisition"].as_str().expect("an id").to_owned()];
    let mut held = holders(redis, "gpu");
    held.sort();
    let mut expected = names.to_vec();
    expected.sort();
    assert_eq!(held, expected, "both holders are still there");
    assert_eq!(waiters(redis, "gpu").len(), 2, "and both waiters");
    assert!(!program.events.has("lost", ours.hold));
    until("the keys to live on", || {
        ["main", "ttl", "max", "waiting", "waiting_heartbeat"].iter().all(|part| {
            let ttl: i64 = redis.command(&["TTL", &key(part, "gpu")]);
            ttl > 3600
        })
    });
    package.call("release", &theirs);
    program.events.granted(waiting);
}

#[test]
fn names_with_colons_and_of_any_script_are_the_same_on_both_sides() {
    let fleet = Fleet::start();
    let mut package = Python::package(&fleet.redis.python_url());
    let mut program = Campaigner::start(&fleet.agents[0], "program");
    for name in ["jobs:eu:west", "größe", "ジョブ:キュー", "a b%c@@@", ":"] {
        let held = program.acquire("semaphore", name, &json!({"limit": 1}));
        assert_eq!(package.call("locked", &one(name)), json!(true), "{name}");
        let pending = package.begin("acquire", &one(name));
        until("the package to stand in line", || waiters(&fleet.redis, name).len() == 1);
        program.release(held.hold);
        let theirs = package.result(pending);
        let waiting = program.queue("semaphore", name, &json!({"limit": 1}));
        package.call("release", &theirs);
        program.events.granted(waiting);
        program.release(waiting);
    }
    package.finish();
    drop(program);
    fleet.is_left_empty();
}

#[test]
fn a_cancelled_wait_of_either_sort_leaves_nothing_behind() {
    let fleet = Fleet::start();
    let mut package = Python::package(&fleet.redis.python_url());
    let mut program = Campaigner::start(&fleet.agents[0], "program");
    let held = program.acquire("semaphore", "gpu", &json!({"limit": 1}));
    let pending = package.begin("acquire", &one("gpu"));
    until("the package to stand in line", || waiters(&fleet.redis, "gpu").len() == 1);
    let waiting = program.queue("semaphore", "gpu", &json!({"limit": 1}));
    package.cancel(pending);
    assert!(package.answer(pending)["error"].is_string());
    program.release(waiting);
    until("nobody to stand in line", || waiters(&fleet.redis, "gpu").is_empty());
    program.release(held.hold);
    package.finish();
    drop(program);
    fleet.is_left_empty();
}

#[test]
fn the_namespace_is_configurable() {
    let redis = RedisServer::start();
    let agent = start_agent(0, &redis.url(), "[redis]\nsemaphore_namespace = \"jobs\"\n");
    let mut package = Python::package(&redis.python_url());
    let mut program = Campaigner::start(&agent, "program");
    let held = program.acquire("semaphore", "gpu", &json!({"limit": 1}));
    let theirs = json!({"name": "gpu", "value": 1, "namespace": "jobs"});
    assert_eq!(package.call("locked", &theirs), json!(true));
    assert_eq!(package.call("locked", &one("gpu")), json!(false));
    let pending = package.begin("acquire", &theirs);
    until("the package to stand in line", || {
        redis.command::<u64>(&["ZCARD", "jobs:semaphore_waiting:gpu"]) == 1
    });
    program.release(held.hold);
    package.result(pending);
    package.finish();
    drop(program);
    until("every hold to end", || agent.counts() == (0, 0, 0));
    let keys = redis.keys();
    assert!(!keys.iter().any(|key| key.starts_with("adv-sem:")), "{keys:?}");
}
