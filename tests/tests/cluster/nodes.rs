//! Gateways that keep everything themselves: real processes, on one host.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::wire::UpstreamState;
use tenure_harness::Authority;
use tenure_tests::harness::{
    Campaigner, Client as _, Gateway, binary, eventually, free_port, start_agent, until,
};

const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];

/// Nodes, and the folder with their configurations.
pub(super) struct Nodes {
    pub(super) gateways: Vec<Gateway>,
    /// `HOST:PORT`, where the others find it.
    pub(super) addresses: Vec<String>,
    configs: Vec<PathBuf>,
    pub(super) folder: TempDir,
}

impl Nodes {
    /// Starts so many, which belong to no cluster yet.
    pub(super) fn start(count: usize) -> Nodes {
        let (gateways, addresses, configs) = (Vec::new(), Vec::new(), Vec::new());
        let folder = TempDir::new().unwrap();
        let mut nodes = Nodes { gateways, addresses, configs, folder };
        for _ in 0..count {
            nodes.start_one();
        }
        nodes
    }

    fn start_one(&mut self) {
        let address = format!("127.0.0.1:{}", free_port());
        let config = self.folder.path().join(format!("{}.toml", self.configs.len()));
        fs::write(&config, format!("[cluster]\nlisten = \"{address}\"\n")).unwrap();
        let named = format!("--config={}", config.display());
        self.gateways.push(Gateway::start_by("cluster:", &[], &[named]));
        self.addresses.push(address);
        self.configs.push(config);
    }

    /// Three that are one cluster.
    fn three() -> Nodes {
        let nodes = Nodes::start(3);
        nodes.run(0, &["init"]);
        // Any member takes one in.
        nodes.run(0, &["add", &nodes.addresses[1]]);
        nodes.run(1, &["add", &nodes.addresses[2]]);
        nodes
    }

    pub(super) fn try_run(&self, node: usize, arguments: &[&str]) -> Output {
        self.command(node, arguments).output().unwrap()
    }

    pub(super) fn command(&self, node: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary("tenured-gateway"));
        command.arg("cluster").args(arguments).arg("--config").arg(&self.configs[node]);
        command
    }

    #[track_caller]
    pub(super) fn run(&self, node: usize, arguments: &[&str]) -> String {
        let output = self.try_run(node, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self, node: usize) -> Value {
        // The command fails where no node leads, and prints the rest all the same.
        serde_json::from_slice(&self.try_run(node, &["status", "--json"]).stdout).unwrap()
    }

    /// The number of the node that leads, as another one knows.
    fn leader(&self, asked: usize) -> usize {
        eventually("a leader", || {
            let status = self.status(asked);
            let leads =
                |member: &&Value| member["role"] == "leader" && !member["applied"].is_null();
            let address = status["members"].as_array()?.iter().find(leads)?["address"].clone();
            self.addresses.iter().position(|other| *other == address)
        })
    }
}

#[test]
fn a_killed_leader_loses_no_hold_and_later_grants_have_greater_tokens() {
    let mut nodes = Nodes::three();
    let agents = [0, 1].map(|host| start_agent(host, &Gateway::urls(&nodes.gateways), ""));
    let mut first = Campaigner::start(&agents[0], "first");
    let mut second = Campaigner::start(&agents[1], "second");
    let terms = |kind| if kind == "semaphore" { json!({"limit": 1}) } else { json!({}) };
    for kind in KINDS {
        let held = first.acquire(kind, "role", &terms(kind));
        let waiting = second.queue(kind, "role", &terms(kind));
        let (leader, other) = (nodes.leader(0), |leader: usize| (leader + 1) % 3);
        nodes.gateways[leader].kill();
        let next = nodes.leader(other(leader));
        assert_ne!(next, leader);
        first.release(held.hold);
        let granted = second.events.granted(waiting);
        assert!(granted.token > held.token, "{kind}");
        nodes.gateways[leader].start_again();
        until("the node to catch up", || {
            let status = nodes.status(leader);
            let members = status["members"].as_array().unwrap();
            members.len() == 3 && members.iter().all(|member| member["behind"] == 0)
        });
        second.release(waiting);
    }
}

#[test]
fn every_node_tells_when_a_session_registered() {
    let nodes = Nodes::three();
    let program = json!({"project_id": "atlas", "agent_identity": "donna"}).to_string();
    let ask = |node: usize, head: &str, body: &str| {
        let (status, answer) = nodes.gateways[node].call(head, body).unwrap();
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Value>(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let registered = ask(1, "POST /api/v1/controller/register", &program);
    let master = &registered["controller_status"]["master"];
    assert!(master["registered_at"].as_str().is_some_and(|at| at.ends_with("+00:00")), "{master}");
    for node in 0..3 {
        let status = ask(node, "GET /api/v1/controller/status?project_id=atlas", "");
        assert_eq!(&status["master"], master, "node {node}");
    }
}

#[test]
fn a_hung_leader_loses_no_hold_and_its_agents_move() {
    let mut nodes = Nodes::three();
    let agent = start_agent(0, &Gateway::urls(&nodes.gateways), "");
    let mut program = Campaigner::start(&agent, "program");
    let held = program.acquire("leader", "role", &json!({"ttl_ms": 6000}));
    // The gateway of the agent, and then the leader: each goes on later.
    let used = Gateway::used_by(&nodes.gateways, &agent);
    for hung in [used, nodes.leader((used + 1) % 3)] {
        nodes.gateways[hung].pause();
        let next = nodes.leader((hung + 1) % 3);
        assert_ne!(next, hung);
        until("the agent to use one that answers", || {
            Gateway::used_by(&nodes.gateways, &agent) != hung
                && agent.http().status().upstream.state == UpstreamState::Up
        });
        assert!(!program.events.has("lost", held.hold), "{}", agent.log());
        nodes.gateways[hung].resume();
    }
    program.release(held.hold);
    assert!(program.acquire("leader", "role", &json!({})).token > held.token);
}

#[test]
fn a_node_that_is_gone_is_replaced_and_without_a_majority_nothing_changes() {
    let mut nodes = Nodes::three();
    nodes.start_one();
    nodes.gateways[1].kill();
    nodes.run(0, &["remove", &nodes.addresses[1]]);
    nodes.run(0, &["add", &nodes.addresses[3]]);
    until("all to keep up", || {
        let status = nodes.status(2);
        let members = status["members"].as_array().unwrap();
        let keeps_up = |member: &Value| member["behind"] == 0 && member["role"] != "joining";
        members.len() == 3 && members.iter().all(keeps_up)
    });
    nodes.gateways[0].kill();
    nodes.gateways[2].kill();
    until("the last one to notice", || nodes.status(3)["leader"].is_null());
    let refused = nodes.try_run(3, &["remove", &nodes.addresses[0]]);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(
        words.contains("no node of the cluster leads: 2 of its 3 must reach each other"),
        "{words}"
    );
}

#[test]
fn a_restored_backup_rests_and_then_grants_greater_tokens() {
    let mut nodes = Nodes::start(1);
    nodes.run(0, &["init"]);
    let backup = nodes.folder.path().join("backup");
    let backup = backup.to_str().unwrap();
    let agent = start_agent(0, &nodes.gateways[0].url(), "");
    let mut before = Campaigner::start(&agent, "before");
    let held = before.acquire("leader", "role", &json!({}));
    nodes.run(0, &["backup", backup]);
    before.release(held.hold);
    // Nobody who restores the backup knows of this one.
    let later = before.acquire("leader", "other", &json!({}));
    drop(before);
    drop(agent);
    nodes.gateways[0].kill();

    nodes.start_one();
    nodes.run(1, &["restore", backup, "--quarantine", "3s"]);
    let agent = start_agent(1, &nodes.gateways[1].url(), "");
    let mut after = Campaigner::start(&agent, "after");
    let rests = after.puppet.ask(after.session, "leader", "other", &json!({"wait": "none"}));
    assert!(
        rests.status != 200 && rests.text().contains("nothing is granted for another"),
        "{}",
        rests.text()
    );
    let waiting = after.queue("leader", "other", &json!({}));
    assert!(after.events.granted(waiting).token > later.token);
    let again = nodes.try_run(1, &["restore", backup]);
    assert!(String::from_utf8(again.stderr).unwrap().contains("there is a cluster already"));
}

#[test]
fn operators_are_told_which_node_is_away() {
    let mut nodes = Nodes::three();
    let leader = nodes.leader(0);
    let lost = (leader + 1) % 3;
    let agent = start_agent(0, &nodes.gateways[leader].url(), "");
    let status = nodes.status(leader);
    let members = status["members"].as_array().unwrap();
    let gone = members.iter().find(|it| it["address"] == nodes.addresses[lost].as_str()).unwrap();
    let id = gone["id"].as_str().unwrap();
    nodes.gateways[lost].kill();
    let get = |path: &str| nodes.gateways[leader].call(&format!("GET {path}"), "").unwrap().1;
    until("the numbers to tell of it", || {
        let numbers = get("/metrics");
        ["leads 1", "voters 3", "silent 1"]
            .iter()
            .all(|number| numbers.contains(&format!("\ntenured_gateway_cluster_{number}\n")))
    });
    for (path, pointer) in
        [("/healthz", "/store/nodes/silent"), ("/v1/overview", "/gateway/store/nodes/silent")]
    {
        let answer = get(path);
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let told: Value = serde_json::from_str(body).unwrap();
        assert_eq!(told.pointer(pointer), Some(&json!(1)), "{told}");
    }
    let line = format!("node {id} at {} does not answer", nodes.addresses[lost]);
    until("the log to tell of it", || nodes.gateways[leader].log().contains(&line));
    let diagnosis = agent.http().get("/v1/doctor").expect::<Value>(200);
    let checks = diagnosis["checks"].as_array().unwrap();
    let nodes_check = checks.iter().find(|check| check["name"] == "cluster.nodes").unwrap();
    let words = nodes_check.to_string();
    for told in
        [&format!("node {id} at {}", nodes.addresses[lost]), "does not answer", "take it out"]
    {
        assert!(words.contains(told), "{words}");
    }
}

#[test]
fn a_node_is_ready_when_it_votes_and_has_caught_up() {
    let mut nodes = Nodes::start(2);
    let ask = |nodes: &Nodes, path: &str| {
        nodes.gateways[0].call(&format!("GET {path}"), "").expect("the gateway answers")
    };
    let (status, answer) = ask(&nodes, "/readyz");
    assert_eq!(status, 503);
    assert!(answer.contains("this node has no cluster yet"), "{answer}");
    // The node is alive all the same.
    assert_eq!(ask(&nodes, "/healthz").0, 200);
    nodes.run(0, &["init"]);
    nodes.run(0, &["add", &nodes.addresses[1]]);
    until("the node to be ready", || ask(&nodes, "/readyz").0 == 200);

    // A majority that is lost later shows in refusals.
    nodes.gateways[1].kill();
    until("the node to notice", || nodes.status(0)["leader"].is_null());
    assert_eq!(ask(&nodes, "/readyz").0, 200);
    // A node that starts cannot know what it lacks.
    nodes.gateways[0].kill();
    nodes.gateways[0].start_again();
    until("it to say so, once it has read its folder", || {
        let (status, answer) = ask(&nodes, "/readyz");
        assert_eq!(status, 503);
        answer.contains("this node has not caught up with its cluster")
    });
    nodes.gateways[1].start_again();
    until("the node to be ready again", || ask(&nodes, "/readyz").0 == 200);
}

#[test]
fn a_node_shows_new_certificates_and_keeps_them_while_files_are_wrong() {
    let [first, second] = [Authority::new(), Authority::new()];
    for authority in [&first, &second] {
        authority.issue("node", "IP:127.0.0.1");
    }
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let put = |authority: &Authority| {
        for name in ["ca.pem", "node.pem", "node.key"] {
            fs::copy(authority.path(name), path(name)).unwrap();
        }
    };
    put(&first);
    let address = format!("127.0.0.1:{}", free_port());
    let text = format!(
        "[cluster]\nlisten = \"{address}\"\ntls_ca_file = {:?}\ntls_cert_file = {:?}\ntls_key_file = {:?}\n",
        path("ca.pem"),
        path("node.pem"),
        path("node.key")
    );
    let config = path("node.toml");
    fs::write(&config, text).unwrap();
    let gateway = Gateway::start_by("cluster:", &[], &[format!("--config={}", config.display())]);
    // The command shows what the files have now.
    let command = |what: &str| {
        let mut command = Command::new(binary("tenured-gateway"));
        command.args(["cluster", what, "--config"]).arg(&config).output().unwrap()
    };
    assert!(command("init").status.success());
    put(&second);
    // No reload is needed.
    until("the node to show the new ones", || command("status").status.success());
    fs::write(path("node.pem"), "nonsense").unwrap();
    gateway.reload();
    until("the log to say what is wrong", || {
        let log = gateway.log();
        log.contains("not reloaded") && log.contains("cluster.tls_cert_file")
    });
    put(&second);
    until("the node to show them again", || command("status").status.success());
}

#[test]
fn a_folder_that_its_node_must_not_use_ends_the_process_for_good() {
    let mut nodes = Nodes::start(1);
    nodes.run(0, &["init"]);
    let folder = nodes.gateways[0].state_dir().join("cluster");
    let other = nodes.folder.path().join("other.toml");
    let text = format!(
        "upstream = \"cluster:\"\nlisten = \"127.0.0.1:{}\"\nruntime_dir = {:?}\nstate_dir = {:?}\n[cluster]\n\
         listen = \"127.0.0.1:{}\"\nfolder = {folder:?}\n",
        free_port(),
        nodes.folder.path().join("run"),
        nodes.folder.path().join("state"),
        free_port(),
    );
    fs::write(&other, text).unwrap();
    let ended = |cause: &str| {
        let mut command = Command::new(binary("tenured-gateway"));
        let output = command.arg("--config").arg(&other).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(cause), "{said}");
        output.status.code()
    };
    // Its process is about to end, perhaps.
    assert_eq!(ended("another process"), Some(69));
    assert!(nodes.gateways[0].stop().success());
    for (file, content, cause) in [
        ("condemned", "this node differs from the others", "this node differs"),
        ("machine", "elsewhere", "ran on another machine"),
    ] {
        let file = folder.join(file);
        let before = fs::read(&file).ok();
        fs::write(&file, content).unwrap();
        assert_eq!(ended(cause), Some(78));
        match before {
            Some(before) => fs::write(&file, before).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
    }
    nodes.gateways[0].start_again();
}

#[test]
fn nodes_begin_a_cluster_when_all_are_there_and_one_that_lost_its_folder_begins_none() {
    let mut addresses = [0, 1, 2].map(|_| format!("127.0.0.1:{}", free_port()));
    // The first of them begins.
    addresses.sort();
    let folder = TempDir::new().unwrap();
    let kept = |node: usize| folder.path().join(format!("{node}"));
    let start = |node: usize| {
        let config = folder.path().join(format!("{node}.toml"));
        let text = format!(
            "[cluster]\nlisten = \"{}\"\njoin = \"{}\"\nbegin = true\nfolder = {:?}\n",
            addresses[node],
            addresses.join(","),
            kept(node)
        );
        fs::write(&config, text).unwrap();
        Gateway::start_by("cluster:", &[], &[format!("--config={}", config.display())])
    };
    let status = |node: usize| -> Value {
        let mut command = Command::new(binary("tenured-gateway"));
        command.args(["cluster", "status", "--json", "--node", &addresses[node]]);
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    };
    let votes = |node: usize| status(node)["members"].as_array().unwrap().len();
    let mut first = start(0);
    let _second = start(1);
    // Somebody is missing.
    let silent = format!("the node at {} cannot be reached", addresses[2]);
    until("it to say who is missing", || first.log().contains(&silent));
    assert_eq!(status(0)["cluster"], Value::Null);
    let _third = start(2);
    until("all to vote", || (0..3).all(|node| votes(node) == 3));
    let cluster = status(0)["cluster"].clone();
    assert!((1..3).all(|node| status(node)["cluster"] == cluster));

    first.kill();
    fs::remove_dir_all(kept(0)).unwrap();
    let again = start(0);
    until("it to say what is in the way", || {
        again.log().contains("votes still: take it out first")
    });
    assert_eq!(status(0)["cluster"], Value::Null);
}

#[test]
fn nodes_join_by_themselves_and_a_place_is_given_to_one_node_at_a_time() {
    let nodes = Nodes::start(1);
    let first = &nodes.addresses[0];
    let start = |address: &str| {
        let flags =
            [format!("--cluster-listen={address}"), format!("--cluster-join={address},{first}")];
        Gateway::start_by("cluster:", &[], &flags)
    };
    let addresses = [0, 1].map(|_| format!("127.0.0.1:{}", free_port()));
    let mut joining = addresses.each_ref().map(|address| start(address));
    let why = format!("the node at {first} belongs to no cluster");
    until("it to say why", || joining[0].log().contains(&why));
    nodes.run(0, &["init"]);
    let votes = |count: usize| {
        let status = nodes.status(0);
        let members = status["members"].as_array().unwrap();
        members.len() == count && members.iter().all(|member| member["behind"] == 0)
    };
    until("all to vote", || votes(3));
    // A new folder at the same place is another node.
    joining[1].kill();
    let again = start(&addresses[1]);
    until("it to say what is in the way", || {
        again.log().contains("votes still: take it out first")
    });
    nodes.run(0, &["remove", &addresses[1]]);
    until("it to vote", || votes(3));
}
