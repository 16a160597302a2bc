//! The memory limits that are shipped hold against a user that takes all it is given, and an agent that dies
//! in them starts again.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tenure_tests::harness::{Agent, Attacker, Client, MemoryGroup, Python, other_users, until};

/// Half of the leases that come and go, where there are more: a busy machine takes its time for each.
const CHURN_MAX: u64 = 1000;
const PART: u64 = 500;

fn packaged(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The pod of a manifest.
#[track_caller]
fn pod(manifest: &str, kind: &str) -> Value {
    let path = packaged("packaging/kubernetes").join(manifest).display().to_string();
    let documents = Python::run("manifests.py", &["1.29", &path]);
    let documents = documents.as_array().expect("several documents");
    let found = documents.iter().find(|document| document["kind"] == kind);
    found.unwrap_or_else(|| panic!("{manifest} has no {kind}"))["spec"]["template"]["spec"].clone()
}

#[track_caller]
fn named<'a>(of: &'a Value, name: &str) -> &'a Value {
    let list = of.as_array().expect("a list");
    list.iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("no {name} in {of}"))
}

#[track_caller]
fn mib(quantity: &Value) -> u64 {
    let text = quantity.as_str().expect("a quantity is text");
    let (number, factor) = match (text.strip_suffix("Mi"), text.strip_suffix("Gi")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 1024),
        _ => panic!("{text} is neither Mi nor Gi"),
    };
    number.parse::<u64>().expect("a number") * factor
}

/// Sessions and holds, without a look at each of them.
#[track_caller]
fn counts(agent: &Agent) -> [u64; 2] {
    let status = agent.http().get("/v1/status?limit=1").json(200);
    ["sessions", "holds"].map(|key| status["agent"][key].as_u64().expect("a number"))
}

/// One user fills an agent with that much memory, and does so again after it was killed.
#[track_caller]
fn check_holds(memory_mib: u64, runtime_mib: u64) {
    let Some([victim, attacker]) = other_users() else { return };
    let group = MemoryGroup::of_mib(memory_mib);
    let mut agent = Agent::setup().memory(&group, runtime_mib).open_to_all().start();
    let mut leases = Attacker::start(&agent, attacker, &["leases", "60"]).expect("it fills up");
    let [sessions, holds] = counts(&agent);
    assert!(holds > 1000, "{holds} holds of {sessions} sessions");
    drop(Attacker::start(&agent, victim, &["victim"]).expect("another user is given a hold"));
    until("the victim's session to end", || counts(&agent)[1] == holds);

    agent.kill();
    agent.start_again();
    assert_eq!(counts(&agent)[1], holds, "all are taken up");

    // Leases come and go. With few of them the journal is written anew meanwhile.
    let seen = |attacker: &mut Attacker, what: &str| {
        assert_eq!(group.kills(), 0, "at most {} of {memory_mib} MiB", group.most_mib());
        let seen = attacker.seen().expect("the attacker goes on");
        seen["seen"][what].as_u64().unwrap_or(0)
    };
    leases.begin().expect("the attacker listens");
    let before = seen(&mut leases, "lease 200");
    // A part at a time, each with its own patience.
    for part in 1..=2 * holds.min(CHURN_MAX) / PART {
        let enough = before + part * PART;
        until("leases to come and go", || seen(&mut leases, "lease 200") >= enough);
    }

    // Beside them nobody reads, or says what he wants.
    let deeds: [&[&str]; 3] = [&["openapi", "3000"], &["heads", "3000"], &["bodies", "3000"]];
    let mut others = deeds.map(|deed| {
        let mut other = Attacker::start(&agent, attacker, deed).expect("it gets ready");
        other.begin().expect("it listens");
        until("all of them to connect", || seen(&mut other, "sent") >= 3000);
        other
    });
    drop(Attacker::start(&agent, victim, &["victim"]).expect("another user is given a hold"));
    others.iter_mut().for_each(|other| assert!(seen(other, "sent") >= 3000));
    let most = group.most_mib();
    eprintln!("{holds} holds of {sessions} sessions; at most {most} of {memory_mib} MiB");
    drop((leases, others));
    agent.kill();
    drop(agent);
}

#[test]
fn a_sidecar_lives_within_its_limit() {
    let pod = pod("sidecar.yaml", "Deployment");
    let agent = named(&pod["initContainers"], "tenured");
    let volume = &named(&pod["volumes"], "agent")["emptyDir"];
    check_holds(mib(&agent["resources"]["limits"]["memory"]), mib(&volume["sizeLimit"]));
}

#[test]
fn an_agent_of_a_node_lives_within_its_limit() {
    let pod = pod("agent/daemonset.yaml", "DaemonSet");
    let agent = named(&pod["containers"], "tenured");
    let memory = mib(&agent["resources"]["limits"]["memory"]);
    check_holds(memory, memory);
}

#[test]
fn the_service_lives_within_its_limit_on_a_small_machine() {
    let unit = fs::read_to_string(packaged("systemd/tenured.service")).expect("it is there");
    let limit = unit.lines().find_map(|line| line.strip_prefix("MemoryMax="));
    let percent = limit.and_then(|limit| limit.strip_suffix('%')).expect("a part of the machine");
    let percent: u64 = percent.parse().expect("a number");
    // A machine with half a GiB.
    let memory = 512 * percent / 100;
    check_holds(memory, memory);
}
