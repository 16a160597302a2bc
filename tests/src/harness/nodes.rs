//! A cluster of gateways, each on a host of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use super::{DiskImage, Gateway, Hosts, binary, until};

/// Where each node hears the others.
const PORT: u16 = 8741;

/// Gateways that are nodes of one cluster.
pub struct Nodes {
    pub hosts: Arc<Hosts>,
    nodes: Vec<Node>,
}

/// A node, on the host with its number.
pub struct Node {
    pub gateway: Gateway,
    hosts: Arc<Hosts>,
    host: usize,
    /// `HOST:PORT`, where the others find it.
    pub address: String,
    config: PathBuf,
    folder: PathBuf,
    pub disk: DiskImage,
    _configs: TempDir,
}

impl Node {
    /// Starts a node that belongs to no cluster yet.
    #[track_caller]
    fn start(hosts: &Arc<Hosts>, host: usize, ahead_s: f64) -> Node {
        let configs = TempDir::new().expect("a temporary directory");
        let disk = DiskImage::mount(&configs.path().join("disk"));
        let (config, folder) = (configs.path().join("node.toml"), disk.path().join("cluster"));
        let address = format!("{}:{PORT}", hosts.address(host));
        let text = format!(
            "[cluster]\nlisten = \"{address}\"\ninsecure = true\nfolder = {:?}\n",
            folder.display().to_string()
        );
        fs::write(&config, text).expect("it is ours");
        let named = [format!("--config={}", config.display())];
        let gateway = hosts.on(host, || Gateway::start_with_clock("cluster:", &named, ahead_s));
        let hosts = Arc::clone(hosts);
        Node { gateway, hosts, host, address, config, folder, disk, _configs: configs }
    }

    #[track_caller]
    pub fn start_again(&mut self) {
        let Node { hosts, host, gateway, .. } = self;
        hosts.on(*host, || gateway.start_again());
    }

    /// Sets its clock on the wall.
    #[track_caller]
    pub fn set_clock(&self, ahead_s: f64) {
        self.gateway.set_clock(ahead_s);
    }

    /// Removes everything that it kept. It must have ended.
    #[track_caller]
    pub fn wipe(&self) {
        fs::remove_dir_all(&self.folder).expect("it is ours");
    }

    /// Runs a command about the cluster beside it.
    pub fn try_command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary("tenured-gateway"));
        command.arg("cluster").args(arguments).arg("--config").arg(&self.config);
        self.hosts.on(self.host, || command.output()).expect("it can be run")
    }

    /// The cluster, as it knows it; `None` if it does not answer.
    pub fn status(&self) -> Option<Value> {
        // The command fails where no node leads, and prints the rest all the same.
        serde_json::from_slice(&self.try_command(&["status", "--json"]).stdout).ok()
    }
}

impl Nodes {
    /// A cluster with a node on each of so many hosts, which have clocks days apart; `None` without root.
    #[track_caller]
    pub fn start(count: usize) -> Option<Nodes> {
        let nodes = Nodes::apart(count, count)?;
        nodes.command(0, &["init"]);
        for node in 1..count {
            nodes.join(node);
        }
        nodes.settle();
        Some(nodes)
    }

    /// So many hosts, and on the first ones a node each, which belong to no cluster yet.
    #[track_caller]
    pub fn apart(hosts: usize, started: usize) -> Option<Nodes> {
        const DAY_S: f64 = 86_400.0;
        let hosts = Arc::new(Hosts::new(hosts)?);
        let ahead_s = |host: usize| DAY_S * (host as f64 - 1.0);
        let nodes = (0..started).map(|host| Node::start(&hosts, host, ahead_s(host))).collect();
        Some(Nodes { hosts, nodes })
    }

    /// Starts a node on the next host.
    #[track_caller]
    pub fn start_one(&mut self) -> usize {
        let host = self.nodes.len();
        self.nodes.push(Node::start(&self.hosts, host, 0.0));
        host
    }

    pub fn node(&mut self, node: usize) -> &mut Node {
        &mut self.nodes[node]
    }

    pub fn all(&self) -> &[Node] {
        &self.nodes
    }

    /// Runs a command beside a node, which must do it.
    #[track_caller]
    pub fn command(&self, node: usize, arguments: &[&str]) {
        let output = self.nodes[node].try_command(arguments);
        assert!(output.status.success(), "{arguments:?} at {node}: {output:?}");
    }

    /// Has a node join, by the one before it.
    #[track_caller]
    pub fn join(&self, node: usize) {
        let by = if node == 0 { self.nodes.len() - 1 } else { node - 1 };
        self.command(by, &["add", &self.nodes[node].address]);
    }

    /// The node that leads, as one of these knows it that runs.
    pub fn leader_by(&self, asked: usize) -> Option<usize> {
        let status = self.nodes[asked].status()?;
        let leads = |member: &&Value| member["role"] == "leader" && !member["applied"].is_null();
        let address = &status["members"].as_array()?.iter().find(leads)?["address"];
        self.nodes.iter().position(|node| node.address == *address)
    }

    /// Waits until all that belong to it run, follow one leader and have everything; the leader.
    #[track_caller]
    pub fn settle(&self) -> usize {
        let mut found = None;
        until("the cluster to settle", || {
            let statuses: Option<Vec<Value>> = self.nodes.iter().map(Node::status).collect();
            let Some(statuses) = statuses else { return false };
            let of_cluster = || statuses.iter().filter(|status| !status["cluster"].is_null());
            let is_well = |status: &Value| {
                let members = status["members"].as_array();
                status["stopped"].is_null()
                    && members.is_some_and(|all| {
                        all.iter().all(|it| !it["applied"].is_null() && it["role"] != "joining")
                    })
            };
            let mut leaders = of_cluster().map(|status| &status["leader"]);
            let first = leaders.next();
            let is_one = first.is_some_and(|it| !it.is_null() && leaders.all(|other| other == it));
            found = (0..self.nodes.len()).find_map(|node| self.leader_by(node));
            is_one && of_cluster().all(is_well) && found.is_some()
        });
        found.expect("it was just there")
    }
}
