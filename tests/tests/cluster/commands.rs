//! The words and the exit status of commands about a cluster.

use std::fs;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use tenure_tests::harness::{Program, until};

use super::nodes::Nodes;

/// The exit status of commands while the cluster does not serve.
const UNAVAILABLE: Option<i32> = Some(69);

#[test]
fn a_status_fails_where_no_node_leads_and_numbers_and_health_say_so() {
    let mut nodes = Nodes::start(2);
    let status = |nodes: &Nodes| {
        let output = nodes.try_run(0, &["status"]);
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, words) = status(&nodes);
    assert!(code == UNAVAILABLE && words.contains("belongs to no cluster"), "{words}");
    nodes.run(0, &["init"]);
    let (code, words) = status(&nodes);
    assert!(code == Some(0) && words.contains(": 1 node votes\n"), "{words}");
    let added = nodes.run(0, &["add", &nodes.addresses[1]]);
    assert!(added.contains("2 are no safer than 1: add a node, to have 3"), "{added}");
    let says = |nodes: &Nodes, path: &str, words: &str| {
        nodes.gateways[0].call(&format!("GET {path}"), "").unwrap().1.contains(words)
    };
    let metric = |leads: u8| format!("\ntenured_gateway_cluster_leads {leads}\n");
    until("it to lead", || says(&nodes, "/metrics", &metric(1)));
    nodes.gateways[1].kill();
    until("the status to fail", || status(&nodes).0 == UNAVAILABLE);
    let (_, words) = status(&nodes);
    assert!(words.contains("NONE LEADS") && words.contains("cluster recover"), "{words}");
    until("the number to be none", || says(&nodes, "/metrics", &metric(0)));
    assert!(says(&nodes, "/healthz", r#""leads":false"#));
}

#[test]
fn a_wrong_port_and_half_an_address_are_told() {
    let nodes = Nodes::start(1);
    nodes.run(0, &["init"]);
    let refused =
        |arguments: &[&str]| String::from_utf8(nodes.try_run(0, arguments).stderr).unwrap();
    let own = format!("127.0.0.1:{}", nodes.gateways[0].port());
    let own = own.as_str();
    for arguments in [&["status", "--node", own][..], &["add", own]] {
        let words = refused(arguments);
        assert!(words.contains("not the gateway's own (listen)"), "{words}");
    }
    for arguments in [&["add", "127.0.0.1"][..], &["status", "--node", "127.0.0.1"]] {
        let words = refused(arguments);
        assert!(words.contains("must be a host with a port"), "{words}");
    }
}

#[test]
fn backups_are_written_again_and_again_and_from_a_folder_without_a_majority() {
    let mut nodes = Nodes::start(2);
    nodes.run(0, &["init"]);
    nodes.run(0, &["add", &nodes.addresses[1]]);
    let path = |name: &str| nodes.folder.path().join(name).display().to_string();
    let (file, alone) = (path("backup"), path("alone"));
    let (file, alone) = (file.as_str(), alone.as_str());
    let every = ["backup", file, "--every", "1s", "--keep", "2"];
    let mut writing = Program::start(&mut nodes.command(0, &every));
    until("two backups", || fs::exists(format!("{file}.1")).unwrap());
    assert!(fs::read_to_string(file).unwrap().starts_with("{\"tenure_backup\":1,"));
    nodes.gateways[1].kill();
    fs::remove_file(file).unwrap();
    let folder = nodes.gateways[0].state_dir().join("cluster").display().to_string();
    let folder = folder.as_str();
    let from_folder = ["backup", alone, "--from-folder", folder];
    let refused = nodes.try_run(0, &from_folder);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(words.contains("another process"), "{words}");
    // The backup is tried again until a majority answers.
    nodes.gateways[1].start_again();
    until("a backup again", || fs::exists(file).unwrap());
    writing.kill();
    nodes.gateways[1].kill();
    assert!(nodes.gateways[0].stop().success());
    let said = nodes.run(0, &from_folder);
    assert!(said.contains(", what node ") && said.contains(" had up to entry "), "{said}");
    assert!(fs::read_to_string(alone).unwrap().starts_with("{\"tenure_backup\":1,"));
    // A node of the old cluster that runs is in the way of a new one.
    nodes.gateways[1].start_again();
    let refused = nodes.try_run(1, &["recover", "--from-folder", folder]);
    let words = String::from_utf8(refused.stderr).unwrap();
    let running = format!("the node at {} runs and is of cluster", nodes.addresses[1]);
    assert!(words.contains(&running), "{words}");
    // Nor is anything done while another program answers where a node was, or while the new node does not answer.
    nodes.gateways[1].kill();
    let (host, port) = nodes.addresses[1].rsplit_once(':').expect("an address has a port");
    let mut other = Command::new("python3");
    other.args(["-m", "http.server", port, "--bind", host]).stderr(Stdio::null());
    let mut other = Program::start(other.stdout(Stdio::null()));
    until("it to listen", || TcpStream::connect(&nodes.addresses[1]).is_ok());
    for (may_answer, refusal) in [(true, "a node may still run at"), (false, "cannot be reached")] {
        if !may_answer {
            other.kill();
        }
        let refused = nodes.try_run(1, &["recover", "--from-folder", folder]);
        let words = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && words.contains(refusal), "{words}");
    }
    // The folder is as it was: its node can be started.
    nodes.gateways[1].start_again();
    nodes.gateways[0].start_again();
}
