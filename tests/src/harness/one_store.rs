//! Gateways of one store, which may be the cluster that they are themselves.

use std::env;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Gateway, Key, RedisServer, binary, eventually, free_port};

/// The store of a gateway that keeps everything itself, alone.
pub(super) const EMBEDDED: &str = "embedded:";
/// The store of one that is a node of a cluster.
pub(super) const CLUSTER: &str = "cluster:";

const LISTEN: &str = "--cluster-listen=";

/// True if tests that name no store keep everything in clusters of gateways: `TENURE_TESTS_STORE=cluster`.
pub(super) fn is_cluster() -> bool {
    match env::var("TENURE_TESTS_STORE").as_deref() {
        Err(_) => false,
        Ok("cluster") => true,
        Ok(other) => panic!("TENURE_TESTS_STORE is cluster, or is not set; not {other:?}"),
    }
}

/// The argument of a node with a port of its own for the others.
pub(super) fn listen() -> String {
    format!("{LISTEN}127.0.0.1:{}", free_port())
}

impl Gateway {
    /// So many that are one cluster on this host, each with these arguments.
    #[track_caller]
    pub fn nodes(count: usize, args: &[String]) -> Vec<Gateway> {
        let start = |_| Gateway::start_by(CLUSTER, &[], &[args, &[listen()]].concat());
        let nodes: Vec<_> = (0..count).map(start).collect();
        nodes[0].cluster(&["init"]);
        for node in &nodes[1..] {
            nodes[0].cluster(&["add", node.node_address()]);
        }
        nodes
    }

    /// One that is a cluster by itself, with these keys.
    #[track_caller]
    pub fn node(keys: &[&Key]) -> Gateway {
        let node = Gateway::start_by(CLUSTER, keys, &[listen()]);
        node.cluster(&["init"]);
        node
    }

    /// One more node of the cluster of this one, with these arguments.
    #[track_caller]
    pub fn node_beside(&self, args: &[String]) -> Gateway {
        let node = Gateway::start_by(CLUSTER, &[], &[args, &[listen()]].concat());
        self.cluster(&["add", node.node_address()]);
        node
    }

    /// So many over one store, each with these arguments, and the server, if it has one.
    #[track_caller]
    pub fn several(count: usize, args: &[String]) -> (Vec<Gateway>, Option<RedisServer>) {
        if is_cluster() {
            return (Gateway::nodes(count, args), None);
        }
        let server = RedisServer::start();
        let start = |_| Gateway::start_by(&server.url(), &[], args);
        ((0..count).map(start).collect(), Some(server))
    }

    /// The one that leads these nodes, as one of them knows.
    #[track_caller]
    pub fn leader(nodes: &[Gateway], asked: usize) -> usize {
        eventually("a leader", || {
            // The command fails where no node leads.
            let told = nodes[asked].try_cluster(&["status", "--json"]).stdout;
            let status: Value = serde_json::from_slice(&told).ok()?;
            let leads =
                |member: &&Value| member["role"] == "leader" && !member["applied"].is_null();
            let address = &status["members"].as_array()?.iter().find(leads)?["address"];
            nodes.iter().position(|node| *address == node.node_address())
        })
    }

    /// Runs a command about its cluster, which must be done; what it printed.
    #[track_caller]
    pub fn cluster(&self, arguments: &[&str]) -> String {
        let output = self.try_cluster(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("it speaks UTF-8")
    }

    /// The same; the command may fail.
    fn try_cluster(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary("tenured-gateway"));
        command.arg("cluster").args(arguments).args(["--node", self.node_address()]);
        command.output().expect("it can be run")
    }

    /// `HOST:PORT`, where other nodes find it.
    pub fn node_address(&self) -> &str {
        let address = self.args().iter().find_map(|arg| arg.strip_prefix(LISTEN));
        address.expect("it is a node")
    }
}
