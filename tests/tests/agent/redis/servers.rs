//! Two agents on a server, and on worse ways to one: a server that refuses to tell of changed keys, a user
//! with no right too many, proxies that know little. Everything goes on, if slower, and the agent says so.
//! `tests/servers` runs this on every Redis and Valkey that it can get.

use serde_json::{Value, json};
use tenure::wire::{Check, Diagnosis, LostReason, Verdict};
use tenure_stores::redis::examine::acl_rules;
use tenure_stores::redis::layout::Layout;
use tenure_tests::harness::{
    Agent, Campaigner, Client, Proxy, RedisServer, boottime_ns, nothing_is_left, other_users,
    start_agent, until,
};

const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];
/// In the log of an agent that does not hear at once what others change.
const SAID: &str = "not all that others change is heard at once";

fn terms(kind: &str) -> Value {
    match kind {
        "semaphore" => json!({"limit": 1}),
        _ => json!({}),
    }
}

/// As where a name is moved to a new server while the old one stays up.
#[test]
fn the_name_of_a_server_that_leads_elsewhere_is_followed() {
    if other_users().is_none() {
        return;
    }
    let redis = RedisServer::setup().tcp().start();
    let _: () = redis.command(&["CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2"]);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let hosts = folder.path().join("hosts");
    let lead_to = |address: &str| std::fs::write(&hosts, format!("{address} store.test\n"));
    lead_to("127.0.0.1").expect("the folder is ours");
    let port = redis.port();
    let agent =
        Agent::setup().upstream(&format!("redis://store.test:{port}")).hosts(&hosts).start();
    let mut holder = Campaigner::start(&agent, "holder");
    let held = holder.acquire("leader", "role", &json!({}));
    let connections = |address: &str| {
        let clients: String = redis.command(&["CLIENT", "LIST"]);
        let at = format!(" laddr={address}:{port} ");
        clients.lines().filter(|line| line.contains(&at)).count()
    };
    until("the agent to be there", || connections("127.0.0.1") >= 3);
    lead_to("127.0.0.2").expect("the folder is ours");
    until("the agent to have followed", || {
        connections("127.0.0.2") >= 3 && connections("127.0.0.1") == 0
    });
    until("the log to say so", || agent.log().contains("its name leads to 127.0.0.2 now"));
    // Which was the same server, this time.
    assert_eq!(holder.puppet.standing("leader", "role").holders[0].token, held.token);
}

/// As where a name has an address of each family, and the server listens on one.
#[test]
fn a_name_whose_first_address_is_dead_is_connected_to_by_its_second() {
    if other_users().is_none() {
        return;
    }
    let redis = RedisServer::setup().tcp().start();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let hosts = folder.path().join("hosts");
    let url = format!("redis://store.test:{}", redis.port());
    // The server listens at 127.0.0.1 alone; the resolver gives the addresses in either order.
    for both in [["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "127.0.0.2"]] {
        let lines = both.map(|address| format!("{address} store.test\n")).concat();
        std::fs::write(&hosts, lines).expect("the folder is ours");
        let agent = Agent::setup().upstream(&url).hosts(&hosts).start();
        let mut holder = Campaigner::start(&agent, "holder");
        let held = holder.acquire("leader", "role", &json!({}));
        holder.release(held.hold);
    }
}

/// Agents of two hosts on the same server, each by that way.
fn agents(url: &str) -> [Agent; 2] {
    [0, 1].map(|host| start_agent(host, url, ""))
}

/// Whatever two hosts do with each other: holds pass on from either to the other, with the holder's leave and
/// without, and a hold that another program takes is lost.
#[track_caller]
fn serves(redis: &RedisServer, agents: [Agent; 2], way: &str, rounds: usize) {
    let mut sides = [0, 1].map(|host| Campaigner::start(&agents[host], "side"));
    let mut took = Vec::new();
    for kind in KINDS {
        let mut held = sides[0].acquire(kind, "role", &terms(kind));
        for round in 0..rounds {
            let (holder, next) = (round % 2, (round + 1) % 2);
            let waiting = sides[next].queue(kind, "role", &terms(kind));
            let before = boottime_ns();
            sides[holder].release(held.hold);
            let (seen, granted) = sides[next].events.granted_seen(waiting);
            assert!(granted.token > held.token, "{kind}");
            if kind == "leader" {
                took.push((seen.at_ns - before) / 1000);
            }
            (held.hold, held.token) = (waiting, granted.token);
        }
        let mut doomed = Campaigner::start(&agents[1], "doomed");
        let last = doomed.queue(kind, "role", &terms(kind));
        sides[rounds % 2].release(held.hold);
        doomed.events.granted(last);
        let waiting = sides[0].queue(kind, "role", &terms(kind));
        doomed.kill();
        sides[0].events.granted(waiting);
        sides[0].release(waiting);
    }
    let held = sides[0].acquire("leader", "role", &json!({"ttl_ms": 6000}));
    let _: () = redis.command(&["SET", "leader:role", "someone else", "EX", "60"]);
    assert_eq!(sides[0].events.lost(held.hold).reason, LostReason::Conflict);
    let _: () = redis.command(&["DEL", "leader:role"]);

    took.sort_unstable();
    println!("hand-over {way}: p50 {} µs", took[took.len() / 2]);
    drop(sides);
    for agent in &agents {
        until("every session and hold to end", || agent.counts() == (0, 0, 0));
    }
    nothing_is_left(redis);
}

/// What the agent's examination says of this.
#[track_caller]
fn examined(agent: &Agent, name: &str) -> Check {
    let found: Diagnosis = agent.http().get("/v1/doctor").expect(200);
    let check = found.checks.iter().find(|check| check.name == name);
    check.unwrap_or_else(|| panic!("no {name} in {found:#?}")).clone()
}

/// Waits until the agents hear at once what others change.
#[track_caller]
fn hear_everything(agents: &[Agent]) {
    for agent in agents {
        until("the agent to listen", || examined(agent, "redis.feed").verdict == Verdict::Ok);
        assert!(!agent.log().contains(SAID));
    }
}

/// The agent warns of what it does not hear, for this reason.
#[track_caller]
fn says_that_it_is_slower(agent: &Agent, because: &str) {
    until("the agent to listen", || agent.log().contains(SAID));
    let feed = examined(agent, "redis.feed");
    assert_eq!(feed.verdict, Verdict::Warning, "{feed:#?}");
    assert!(feed.detail.contains(because), "{feed:#?}");
    until(&format!("the log to say {because:?}"), || agent.log().contains(because));
}

#[test]
fn as_it_is() {
    let redis = RedisServer::start();
    let agents = agents(&redis.url());
    hear_everything(&agents);
    serves(&redis, agents, "as is", 40);
}

/// A user with these rules, and the URL by which an agent is that user.
fn as_user<'a>(redis: &RedisServer, rules: impl Iterator<Item = &'a str>) -> String {
    let mut words = vec!["ACL", "SETUSER", "tenure", "on", ">secret"];
    words.extend(rules);
    let _: () = redis.command(&words);
    redis.url().replace("redis+unix://", "redis+unix://tenure:secret@")
}

#[test]
fn as_a_user_with_no_right_too_many() {
    let redis = RedisServer::start();
    let rules = acl_rules(&Layout::default());
    let agents = agents(&as_user(&redis, rules.split(' ')));
    hear_everything(&agents);
    let rights = examined(&agents[0], "redis.rights");
    assert_eq!(rights.verdict, Verdict::Ok, "{rights:#?}");
    serves(&redis, agents, "with the documented rights", 20);
}

#[test]
fn tracking_is_refused() {
    let redis = RedisServer::start();
    let rules = acl_rules(&Layout::default());
    let agents = agents(&as_user(&redis, rules.split(' ').filter(|it| *it != "+client|tracking")));
    says_that_it_is_slower(&agents[0], "permission");
    let tracking = examined(&agents[0], "redis.tracking");
    assert_eq!(tracking.verdict, Verdict::Warning, "{tracking:#?}");
    serves(&redis, agents, "without tracking", 10);
}

/// Agents beside whose server stands a proxy that does not know these commands.
fn behind_a_proxy(redis: &RedisServer, unknown: &[&'static str]) -> (Proxy, [Agent; 2]) {
    let proxy = Proxy::before(redis);
    proxy.does_not_know(unknown);
    let agents = agents(&proxy.url());
    (proxy, agents)
}

#[test]
fn a_proxy_speaks_resp2_only() {
    let redis = RedisServer::start();
    let (_proxy, agents) = behind_a_proxy(&redis, &["HELLO"]);
    says_that_it_is_slower(&agents[0], "speaks RESP2 only");
    let tracking = examined(&agents[0], "redis.tracking");
    assert_eq!(tracking.verdict, Verdict::Warning, "{tracking:#?}");
    serves(&redis, agents, "with RESP2", 10);
}

#[test]
fn a_proxy_passes_on_scripts_and_little_else() {
    let redis = RedisServer::start();
    let few = ["HELLO", "CLIENT", "INFO", "SUBSCRIBE", "PSUBSCRIBE", "SCAN", "ACL", "CONFIG"];
    let (_proxy, agents) = behind_a_proxy(&redis, &few);
    says_that_it_is_slower(&agents[0], "speaks RESP2 only");
    serves(&redis, agents, "with scripts alone", 2);
}

#[test]
fn idle_connections_that_a_server_closes_are_kept_up() {
    let redis = RedisServer::setup().arguments(&["--timeout", "2"]).start();
    let agent = start_agent(0, &redis.url(), "");
    let ages = || -> Vec<u64> {
        let all: String = redis.command(&["CLIENT", "LIST"]);
        let of_agent = all.lines().filter(|line| line.contains(" name=tenured"));
        let age = |line: &str| line.split(' ').find_map(|it| it.strip_prefix("age=")?.parse().ok());
        of_agent.filter_map(age).collect()
    };
    until("its connections to last", || {
        let ages = ages();
        ages.len() >= 3 && ages.iter().all(|age| *age >= 6)
    });
    let connected = agent.log().matches("upstream connected").count();
    assert!(connected <= 2 * 4, "{connected} times: {}", agent.log());
}
