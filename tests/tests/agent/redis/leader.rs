//! Agents and candidates of ADR-0004 for the same role, with both prefixes that are in use.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::wire::{Code, LostReason};
use tenure_tests::harness::{
    Campaigner, Client, Contents, Fleet, Python, RedisServer, boottime_ns, until,
};

/// The protocol of the document, as its authors' program follows it.
const PREFIXES: [&str; 2] = ["leader:", "titan:leader:"];

fn fleet(prefix: &str) -> Fleet {
    let config = format!("[redis]\nleader_prefix = \"{prefix}\"\n");
    Fleet::start_with(RedisServer::start(), 2, &config)
}

fn candidacy(prefix: &str, lease_ttl: u64) -> Value {
    json!({"role": "cleanup", "prefix": prefix, "lease_ttl": lease_ttl, "interval": 0.1})
}

/// Candidates and clients of both agents take turns until each has had several.
#[track_caller]
fn never_two(prefix: &str) {
    const TURNS: usize = 8;
    let fleet = fleet(prefix);
    let slots = TempDir::new().expect("a temporary directory can be made");
    let slots = slots.path().to_str().expect("its name is UTF-8");
    let mut candidacy = candidacy(prefix, 30);
    candidacy["slots"] = json!(slots);
    let ours: Vec<Python> = fleet
        .agents
        .iter()
        .map(|agent| {
            let socket = agent.socket();
            let socket = socket.to_str().expect("its name is UTF-8");
            // A candidate looks ten times a second: if agents handed over to each other all the time,
            // it would not find the role free.
            let with = [socket, "leader", "cleanup", "1", slots, "100", "400"];
            Python::start("agent_client.py", &with)
        })
        .collect();
    let mut candidates: Vec<Python> =
        (0..2).map(|_| Python::candidate(&fleet.redis.python_url())).collect();
    for candidate in &mut candidates {
        candidate.call("start", &candidacy);
    }
    let turns = |client: &Python, name: &str| {
        let events = client.events();
        let two: Vec<_> = events.iter().filter(|event| event["event"] == "too_many").collect();
        assert!(two.is_empty(), "two led at once: {two:?}");
        events.iter().filter(|event| event["event"] == name).count()
    };
    // A candidate that leads goes on for ever: it has to be told to stop, and to stand again.
    let mut stood = [0; 2];
    until("everybody to have led several times", || {
        for (candidate, stood) in candidates.iter_mut().zip(&mut stood) {
            if turns(candidate, "leader") > *stood {
                candidate.call("stop", &candidacy);
                candidate.call("start", &candidacy);
                *stood += 1;
            }
        }
        stood.iter().all(|stood| *stood >= TURNS)
            && ours.iter().all(|client| turns(client, "entered") >= TURNS)
    });
    for candidate in &mut candidates {
        candidate.call("stop", &candidacy);
    }
    candidates.into_iter().chain(ours).for_each(Python::finish);
    fleet.is_left_empty();
}

#[test]
fn who_polls_gets_a_turn_while_agents_queue_without_a_pause() {
    let fleet = Fleet::start();
    let slots = TempDir::new().expect("a temporary directory can be made");
    let slots = slots.path().to_str().expect("its name is UTF-8");
    // Another program holds it when the agents come.
    let mut set = redis::cmd("SET");
    set.arg("leader:cleanup").arg("somebody").arg("PX").arg(3_000);
    let () = set.query(&mut fleet.redis.connect()).expect("Redis answers");
    // So many that there is always one that waits.
    let ours: Vec<Python> = fleet
        .agents
        .iter()
        .flat_map(|agent| std::iter::repeat_n(agent, 4))
        .map(|agent| {
            let socket = agent.socket();
            let socket = socket.to_str().expect("its name is UTF-8");
            Python::start("agent_client.py", &[socket, "leader", "cleanup", "1", slots, "5", "0"])
        })
        .collect();
    let entered = |client: &Python| {
        let events = client.events();
        events.iter().filter(|event| event["event"] == "entered").count()
    };
    let url = fleet.redis.python_url();
    let lock = Python::start("lock_client.py", &[&url, "leader:cleanup", "6", slots, "5", "400"]);
    until("a turn of each", || entered(&lock) > 0 && ours.iter().all(|it| entered(it) > 0));
    let had = entered(&lock);
    until("further turns of the one that polls", || entered(&lock) > had + 1);
    let agents_had: Vec<usize> = ours.iter().map(entered).collect();
    until("the agents to go on", || {
        ours.iter().zip(&agents_had).all(|(client, had)| entered(client) > *had)
    });
    for client in ours.iter().chain([&lock]) {
        let events = client.events();
        assert!(events.iter().all(|event| event["event"] != "too_many"), "two led at once");
    }
    ours.into_iter().chain([lock]).for_each(Python::finish);
    fleet.is_left_empty();
}

#[test]
fn never_two_under_the_prefix_of_the_document() {
    never_two(PREFIXES[0]);
}

#[test]
fn never_two_under_the_prefix_in_use() {
    never_two(PREFIXES[1]);
}

#[test]
fn a_candidate_that_stops_hands_over_to_an_agent() {
    for prefix in PREFIXES {
        let fleet = fleet(prefix);
        let mut candidate = Python::candidate(&fleet.redis.python_url());
        let id = candidate.call("start", &candidacy(prefix, 30));
        candidate.event(0, "leader");
        let mut next = Campaigner::start(&fleet.agents[0], "next");
        let refused = next.puppet.ask(next.session, "leader", "cleanup", &json!({}));
        let holder = refused.problem(Code::Contended).holder.expect("the holder is known");
        assert_eq!(json!(holder.name), id, "whoever is not ours is called by its value");
        assert_eq!(holder.token, 0);
        let waiting = next.queue("leader", "cleanup", &json!({}));
        assert!(!next.has(waiting));
        candidate.call("stop", &candidacy(prefix, 30));
        next.events.granted(waiting);

        // And back.
        let led = candidate.events().len();
        candidate.call("start", &candidacy(prefix, 30));
        next.release(waiting);
        candidate.event(led, "leader");
        candidate.call("stop", &candidacy(prefix, 30));
        candidate.finish();
        drop(next);
        fleet.is_left_empty();
    }
}

#[test]
fn a_candidate_that_is_killed_is_followed_when_its_lease_has_run_out() {
    for prefix in PREFIXES {
        let fleet = fleet(prefix);
        let mut candidate = Python::candidate(&fleet.redis.python_url());
        candidate.call("start", &candidacy(prefix, 3));
        candidate.event(0, "leader");
        let mut next = Campaigner::start(&fleet.agents[1], "next");
        let waiting = next.queue("leader", "cleanup", &json!({}));
        candidate.program().kill();
        let (before, left): (u64, u64) =
            (boottime_ns(), fleet.redis.command(&["PTTL", &format!("{prefix}cleanup")]));
        let expires = before + left * 1_000_000;
        let (seen, _) = next.events.granted_seen(waiting);
        assert!(seen.at_ns >= expires, "{} ns too early", expires - seen.at_ns);
        eprintln!("granted {} us after expiry", (seen.at_ns - expires) / 1000);
    }
}

#[test]
fn a_candidate_follows_an_agent_that_is_gone() {
    let mut fleet = fleet(PREFIXES[0]);
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    let held = holder.acquire("leader", "cleanup", &json!({"ttl_ms": 2000}));
    let mut candidate = Python::candidate(&fleet.redis.python_url());
    candidate.call("start", &candidacy(PREFIXES[0], 30));
    let page = fleet.agents[0].page(&holder.registered);
    fleet.agents[0].pause();
    let valid_until = page.slot(held.slot).valid_until_ns;
    let led = candidate.event(0, "leader");
    assert!(led["at_ns"].as_u64() > Some(valid_until), "it led while the holder was valid");
    fleet.agents[0].resume();
    let reason = holder.events.lost(held.hold).reason;
    assert!(matches!(reason, LostReason::Expired | LostReason::Conflict), "{reason}");
}

#[test]
fn an_agent_writes_what_a_candidate_writes() {
    for prefix in PREFIXES {
        let fleet = fleet(prefix);
        let key = format!("{prefix}cleanup");
        let mut candidate = Python::candidate(&fleet.redis.python_url());
        candidate.call("start", &candidacy(prefix, 30));
        candidate.event(0, "leader");
        let theirs = fleet.redis.dump()[&key].clone();
        candidate.call("stop", &candidacy(prefix, 30));
        let mut program = Campaigner::start(&fleet.agents[0], "program");
        let held = program.acquire("leader", "cleanup", &json!({"wait": "block"}));
        let ours = fleet.redis.dump()[&key].clone();
        let (Contents::Text(theirs_value), Contents::Text(value)) =
            (&theirs.contents, &ours.contents)
        else {
            panic!("a leader's key is a STRING: {theirs:?} and {ours:?}")
        };
        assert_eq!(*value, held.hold.to_string());
        assert_eq!(value.len(), theirs_value.len(), "a uuid as theirs");
        let lease = Duration::from_secs(30).as_millis() as u64;
        for entry in [theirs, ours] {
            let left = entry.expires_in_ms.expect("a leader's key expires");
            assert!(left <= lease && left > lease / 2, "{left} ms");
        }
    }
}

#[test]
fn a_key_taken_by_force_is_a_conflict() {
    let fleet = fleet(PREFIXES[0]);
    let mut holder = Campaigner::start(&fleet.agents[0], "holder");
    let held = holder.acquire("leader", "cleanup", &json!({"ttl_ms": 6000}));
    // Somebody with no manners; the agent hears of it, or finds it at its next beat.
    let _: () = fleet.redis.command(&["SET", "leader:cleanup", "someone else", "EX", "60"]);
    assert_eq!(holder.events.lost(held.hold).reason, LostReason::Conflict);
    let left: String = fleet.redis.command(&["GET", "leader:cleanup"]);
    assert_eq!(left, "someone else", "what is not ours stays");
}
