//! A cluster that holds all that it may.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_tests::harness::{Gateway, binary, free_port, until};

/// More than one part of an image, or of a backup, has.
const BYTES_MAX: u64 = 2 << 20;

struct Nodes {
    gateways: Vec<Gateway>,
    addresses: Vec<String>,
    folder: TempDir,
}

impl Nodes {
    fn start(&mut self) {
        let address = format!("127.0.0.1:{}", free_port());
        let config = self.config(self.addresses.len());
        let text = format!("[cluster]\nlisten = \"{address}\"\nbytes_max = {BYTES_MAX}\n");
        fs::write(&config, text).unwrap();
        let named = format!("--config={}", config.display());
        self.gateways.push(Gateway::start_by("cluster:", &[], &[named]));
        self.addresses.push(address);
    }

    fn config(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("{node}.toml"))
    }

    fn try_run(&self, node: usize, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary("tenured-gateway"));
        command.arg("cluster").args(arguments).arg("--config").arg(self.config(node));
        command.output().unwrap()
    }

    #[track_caller]
    fn run(&self, node: usize, arguments: &[&str]) -> String {
        let output = self.try_run(node, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self, node: usize) -> Value {
        // The command fails where no node leads, and prints the rest all the same.
        serde_json::from_slice(&self.try_run(node, &["status", "--json"]).stdout).unwrap()
    }

    fn ask(&self, node: usize, what: &str, body: &Value) -> (u16, String) {
        let head = format!("POST /v1/upstream/{what}");
        let headers = "Content-Type: application/json\r\n";
        self.gateways[node].call_with(headers, &head, &body.to_string()).unwrap()
    }

    fn claim(&self, node: usize, number: usize) -> (u16, String) {
        let ttl = json!({"secs": 3600, "nanos": 0});
        let claim = json!({
            "id": id(number), "resource": resource(number), "ttl": ttl, "terms": "Leader", "enqueue": false,
            "owner": {"session": id(0), "host": "h".repeat(200), "name": "p".repeat(200)},
        });
        self.ask(node, "claim", &claim)
    }

    /// Claims until nothing more is taken; the number of those that are held.
    fn fill(&self) -> usize {
        let mut held = 0;
        until("the cluster to be full", || {
            loop {
                let (status, answer) = self.claim(0, held + 1);
                if status != 200 {
                    assert_eq!(status, 429, "{answer}");
                    for words in ["the cluster holds", "of 2097152 bytes", "cluster.bytes_max"] {
                        assert!(answer.contains(words), "{answer}");
                    }
                    // The estimate of bytes may be too high: the cluster then counts them, and has room again.
                    return self.gateways[0].log().contains("of 2097152 bytes");
                }
                assert!(answer.contains("Held") && held < 10_000, "{answer}");
                held += 1;
            }
        });
        held
    }
}

fn resource(number: usize) -> Value {
    json!({"tenant": "default", "kind": "leader", "name": format!("{number}-{}", "x".repeat(180))})
}

/// Ends with the mark of the principal `local`, which callers without a key are.
fn id(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-981de4515872")
}

#[test]
fn a_full_cluster_takes_nothing_more_and_can_still_be_saved_and_grown() {
    let (gateways, addresses) = (Vec::new(), Vec::new());
    let mut nodes = Nodes { gateways, addresses, folder: TempDir::new().unwrap() };
    nodes.start();
    nodes.run(0, &["init"]);
    let held = nodes.fill();
    assert!(held > 100, "{held}");

    // Holds go on, and may be said again.
    let subject = json!({"Claim": {"claim": id(1), "resource": resource(1)}});
    let beat = json!({"beats": [{"subject": subject, "ttl": {"secs": 3600, "nanos": 0}}]});
    let (status, answer) = nodes.ask(0, "renew", &beat);
    assert!(status == 200 && answer.contains("Held"), "{answer}");
    assert_eq!(nodes.claim(0, 1).0, 200, "it is there already");
    let numbers = nodes.gateways[0].call("GET /metrics", "").unwrap().1;
    assert!(numbers.contains("\ntenured_gateway_cluster_bytes_max 2097152\n"), "{numbers}");

    // A new node, a backup, and a cluster that goes on from it.
    nodes.start();
    nodes.run(0, &["add", &nodes.addresses[1]]);
    let backup = nodes.folder.path().join("backup");
    nodes.run(1, &["backup", backup.to_str().unwrap()]);
    nodes.start();
    nodes.run(2, &["restore", backup.to_str().unwrap(), "--quarantine", "1s"]);
    // Its bytes are counted anew there, not guessed: there may be room for some more.
    let is_full = (held + 1..held + 10_000).any(|number| nodes.claim(2, number).0 == 429);
    assert!(is_full, "the restored cluster has the same bound");

    // A node that has lost its folder comes back as another one.
    nodes.start();
    nodes.run(0, &["add", &nodes.addresses[3]]);
    let folder = nodes.gateways[1].state_dir().join("cluster");
    nodes.gateways[1].kill();
    fs::remove_dir_all(folder).unwrap();
    nodes.gateways[1].start_again();
    nodes.run(0, &["remove", &nodes.addresses[1]]);
    nodes.run(0, &["add", &nodes.addresses[1]]);
    assert_eq!(nodes.status(0)["members"].as_array().unwrap().len(), 3);

    // A hundred of them are more than the estimate may be wrong by.
    for number in 1..=held.min(100) {
        let release = json!({"claim": id(number), "resource": resource(number)});
        assert_eq!(nodes.ask(0, "release", &release).0, 200);
    }
    until("it to be counted", || nodes.claim(0, held + 1).0 == 200);
}
