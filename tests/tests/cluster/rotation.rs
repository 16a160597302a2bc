//! The keys and certificates of nodes, and the authority of their cluster, are rotated under a hundred holds: none ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tenure_harness::Authority;
use tenure_tests::harness::{
    Agent, Gateway, Holds, binary, boottime_ns, free_port, replace, start_agent, until,
};

const COUNT: usize = 3;
/// The files of a node.
const AUTHORITIES: &str = "ca.pem";
const CERTIFICATE: &str = "own.pem";
const KEY: &str = "own.key";

/// A node, with its files and its configuration in a folder.
struct Node {
    gateway: Gateway,
    address: String,
    folder: TempDir,
}

impl Node {
    #[track_caller]
    fn start(authority: &Authority) -> Node {
        let (folder, address) =
            (TempDir::new().expect("a folder"), format!("127.0.0.1:{}", free_port()));
        configure(&folder, &address);
        put(&folder, authority, "node");
        trust(&folder, &certificate(authority));
        let config = format!("--config={}", folder.path().join("node.toml").display());
        let gateway = Gateway::start_by("cluster:", &[], &[config]);
        Node { gateway, address, folder }
    }

    #[track_caller]
    fn command(&self, arguments: &[&str]) -> Option<String> {
        command(&self.folder, arguments)
    }

    /// True if all members have all, and one leads.
    fn is_well(&self) -> bool {
        let Some(status) = self.command(&["status", "--json"]) else { return false };
        let status: Value = serde_json::from_str(&status).expect("it is JSON");
        let members = status["members"].as_array().expect("there are members");
        members.len() == COUNT
            && members.iter().all(|member| member["behind"] == 0)
            && members.iter().any(|member| member["role"] == "leader")
    }

    /// Reads its files again.
    #[track_caller]
    fn reload(&self) {
        // A new connection may have had it read them already.
        let line = "read the certificates of the node again";
        let reads = || self.gateway.log().matches(line).count();
        let before = reads();
        self.gateway.reload();
        until("a reload", || reads() > before);
    }

    /// The certificate that it shows.
    #[track_caller]
    fn shown(&self) -> String {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-alpn", "tenure-cluster", "-connect", &self.address]);
        let output = command.stdin(Stdio::null()).output().expect("openssl can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, rest) = text.split_once("-----BEGIN").expect("a certificate is shown");
        rest.split_once("-----END").expect("it has an end").0.to_owned()
    }
}

fn configure(folder: &TempDir, address: &str) {
    let path = |name: &str| folder.path().join(name);
    let text = format!(
        "[cluster]\nlisten = \"{address}\"\ntls_ca_file = {:?}\ntls_cert_file = {:?}\ntls_key_file = {:?}\n",
        path(AUTHORITIES),
        path(CERTIFICATE),
        path(KEY)
    );
    fs::write(path("node.toml"), text).expect("it is ours");
}

/// Puts the key and the certificate of that name into a folder.
fn put(folder: &TempDir, authority: &Authority, name: &str) {
    for (extension, file) in [("pem", CERTIFICATE), ("key", KEY)] {
        let from = authority.path(&format!("{name}.{extension}"));
        replace(&folder.path().join(file), &fs::read(from).expect("it is ours"));
    }
}

/// Puts the certificates of trusted authorities into a folder.
fn trust(folder: &TempDir, content: &[u8]) {
    replace(&folder.path().join(AUTHORITIES), content);
}

/// The certificate of an authority itself.
fn certificate(authority: &Authority) -> Vec<u8> {
    fs::read(authority.path("ca.pem")).expect("it is ours")
}

/// Runs a command about the cluster with the certificates of a folder; what it printed, if it succeeded.
#[track_caller]
fn command(folder: &TempDir, arguments: &[&str]) -> Option<String> {
    let config: PathBuf = folder.path().join("node.toml");
    let mut command = Command::new(binary("tenured-gateway"));
    command.arg("cluster").args(arguments).arg("--config").arg(config);
    let output = command.output().expect("it can be run");
    output.status.success().then(|| String::from_utf8(output.stdout).expect("it is text"))
}

/// A cluster, and an agent of it with a hundred holds.
struct Scene {
    nodes: Vec<Node>,
    agent: Agent,
    holds: Holds,
}

impl Scene {
    #[track_caller]
    fn start(authority: &Authority) -> Scene {
        let nodes: Vec<_> = (0..COUNT).map(|_| Node::start(authority)).collect();
        nodes[0].command(&["init"]).expect("a cluster begins");
        for node in &nodes[1..] {
            nodes[0].command(&["add", &node.address]).expect("the node is let in");
        }
        let urls = Gateway::urls(nodes.iter().map(|node| &node.gateway));
        let agent = start_agent(0, &urls, Holds::CONFIG);
        let holds = Holds::take(&agent);
        Scene { nodes, agent, holds }
    }

    /// On each node: replaces files, and has them read.
    #[track_caller]
    fn replace(&self, files: impl Fn(&TempDir)) {
        for node in &self.nodes {
            files(&node.folder);
            node.reload();
        }
        self.holds.are_renewed_after(&self.agent, boottime_ns());
    }

    /// Starts each node again, one after the other: all connections between nodes are new.
    #[track_caller]
    fn connect_again(&mut self) {
        for at in 0..COUNT {
            assert!(self.nodes[at].gateway.stop().success());
            self.nodes[at].gateway.start_again();
            until("the cluster to be well", || self.nodes.iter().all(Node::is_well));
            self.holds.are_renewed_after(&self.agent, boottime_ns());
        }
    }
}

/// An authority that has issued certificates for nodes of these names.
fn authority(names: &[&str]) -> Authority {
    let authority = Authority::new();
    names.iter().for_each(|name| authority.issue(name, "IP:127.0.0.1"));
    authority
}

fn a_nodes_key_and_certificate() {
    let authority = authority(&["node", "next"]);
    let mut scene = Scene::start(&authority);
    let old: Vec<_> = scene.nodes.iter().map(Node::shown).collect();
    // Nobody tells the nodes.
    scene.nodes.iter().for_each(|node| put(&node.folder, &authority, "next"));
    let next = fs::read_to_string(authority.path("next.pem")).expect("it is ours");
    for (node, old) in scene.nodes.iter().zip(old) {
        assert!(!next.contains(&old), "{old}");
        // A connection that begins while another one has the files read shows the former.
        until("the next certificate", || next.contains(&node.shown()));
    }
    scene.connect_again();
}

fn the_authority_of_a_cluster() {
    let [old, new] = [authority(&["node"]), authority(&["node"])];
    let both = [certificate(&old), certificate(&new)].concat();
    let mut scene = Scene::start(&old);
    // Somebody who trusts both, and has a certificate of the old authority.
    let former = TempDir::new().expect("a folder");
    configure(&former, &scene.nodes[0].address);
    put(&former, &old, "node");
    trust(&former, &both);

    scene.replace(|folder| trust(folder, &both));
    scene.connect_again();
    scene.replace(|folder| put(folder, &new, "node"));
    scene.connect_again();
    assert!(command(&former, &["status"]).is_some());
    scene.replace(|folder| trust(folder, &certificate(&new)));
    assert!(command(&former, &["status"]).is_none(), "the old one is not trusted any more");
    scene.connect_again();
    assert!(command(&former, &["status"]).is_none());
    assert!(scene.nodes[0].command(&["status"]).is_some());
}

const ROWS: [(&str, fn()); 2] = [
    ("a node's key and certificate", a_nodes_key_and_certificate),
    ("the authority of a cluster", the_authority_of_a_cluster),
];

#[test]
fn no_rotation_of_a_secret_of_nodes_ends_a_hold() {
    for (secret, rotate) in ROWS {
        eprintln!("{secret}");
        rotate();
    }
}
