//! The control plane of three gateways that keep everything themselves.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_tests::harness::{
    Gateway, MAILBOX, RfcRunners, RouteStream, channel, listed_route, until, within,
};
use tokio::runtime::Runtime;

const NODES: usize = 3;
const RUNNER: &str = "runner-01";
const OTHER: &str = "runner-02";

/// Three nodes, a runner and another one that can speak to each of them, and what each says of routes.
struct ControlPlane {
    nodes: Vec<Gateway>,
    runners: RfcRunners,
    runtime: Runtime,
    streams: Vec<RouteStream>,
}

impl ControlPlane {
    #[track_caller]
    fn start() -> ControlPlane {
        let nodes = Gateway::nodes(NODES, &[]);
        let mut runners = RfcRunners::start();
        for (number, node) in nodes.iter().enumerate() {
            for runner in [RUNNER, OTHER] {
                // It is one run of its program, whichever gateway it speaks to.
                let run = json!({"x-tenure-incarnation": "1"});
                runners.open(&connection(runner, number), node, &run);
            }
        }
        let runtime = Runtime::new().unwrap();
        let open = async |node| RouteStream::open(channel(node), None).await.unwrap();
        let streams = nodes.iter().map(|it| runtime.block_on(within("a stream", open(it))));
        let streams = streams.collect();
        ControlPlane { nodes, runners, runtime, streams }
    }

    fn call(&mut self, what: &str, runner: &str, node: usize) -> Value {
        let fields = json!({"mailbox_id": MAILBOX, "runner_id": runner});
        self.runners.call(what, &connection(runner, node), &fields)
    }

    /// Waits until these nodes tell that the runner has the mailbox.
    #[track_caller]
    fn tell(&mut self, nodes: &[usize], runner: &str) {
        let route = (runner.to_owned(), "active".to_owned());
        let expected = BTreeMap::from([(MAILBOX.to_owned(), route)]);
        for node in nodes {
            self.runtime.block_on(self.streams[*node].until(&expected));
        }
    }

    /// Opens the stream of a node again, for what has changed meanwhile.
    #[track_caller]
    fn resume(&mut self, node: usize) {
        let (stream, gateway) = (&mut self.streams[node], &self.nodes[node]);
        let resumed = async { stream.go_on_at(channel(gateway), None).await };
        self.runtime.block_on(within("a stream", resumed)).unwrap();
    }

    /// The token of the mailbox, as a node knows.
    fn token(&self, node: usize) -> u64 {
        listed_route(&self.nodes[node])["token"].as_u64().expect("somebody has it")
    }
}

fn connection(runner: &str, node: usize) -> String {
    format!("{runner} at {node}")
}

#[test]
fn a_lease_outlives_the_leader_that_granted_it_and_every_node_tells_its_route() {
    let mut plane = ControlPlane::start();
    let leader = Gateway::leader(&plane.nodes, 0);
    let [second, third] = [1, 2].map(|step| (leader + step) % NODES);
    let all = [leader, second, third];
    assert_eq!(plane.call("acquire", RUNNER, leader)["success"], true);
    plane.tell(&all, RUNNER);
    let token = plane.token(second);
    assert_eq!(plane.call("heartbeat", RUNNER, second)["lease_renewed"], true);

    plane.nodes[leader].kill();
    until("the runner to go on", || {
        let denied = plane.call("acquire", OTHER, second);
        assert_ne!(denied["success"], true, "{denied}");
        let answer = plane.call("heartbeat", RUNNER, third);
        assert_ne!(answer["lease_renewed"], false, "{answer}");
        answer["lease_renewed"] == true
    });
    assert_eq!(plane.token(third), token);
    let taken = format!("mailbox already leased by {RUNNER}");
    assert_eq!(plane.call("acquire", OTHER, second)["message"], taken);
    assert_eq!(
        plane.call("heartbeat", OTHER, third)["message"],
        format!("lease owned by {RUNNER}")
    );

    assert_eq!(plane.call("release", RUNNER, second)["released"], true);
    assert_eq!(plane.call("acquire", OTHER, third)["success"], true);
    plane.tell(&[second, third], OTHER);
    assert!(plane.token(second) > token);
    plane.nodes[leader].start_again();
    plane.resume(leader);
    plane.tell(&all, OTHER);
    assert_eq!(
        plane.call("heartbeat", RUNNER, leader)["message"],
        format!("lease owned by {OTHER}")
    );
    assert_eq!(plane.call("heartbeat", OTHER, leader)["lease_renewed"], true);
}
