//! The cluster that keeps the store, as this node of it knows it.

use prometheus_client::registry::Registry;
use tenure_stores::Nodes;

use super::Count;

/// All are 0 without a cluster.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    leads: Count,
    voters: Count,
    silent: Count,
    behind: Count,
    applied: Count,
    bytes: Count,
    bytes_max: Count,
}

impl Cluster {
    pub(super) fn register(registry: &mut Registry) -> Cluster {
        let cluster = Cluster::default();
        for (name, help, count) in [
            ("leads", "1 for the node that leads its cluster", &cluster.leads),
            ("voters", "Nodes that vote in the cluster", &cluster.voters),
            (
                "silent",
                "Nodes that have not answered the leader, told by it, for 2 s",
                &cluster.silent,
            ),
            ("behind", "Entries that the slowest node lacks, told by the leader", &cluster.behind),
            ("applied", "The latest entry that this node has applied", &cluster.applied),
            ("bytes", "Bytes of all that the cluster keeps, about", &cluster.bytes),
            ("bytes_max", "Bytes that the cluster may keep: cluster.bytes_max", &cluster.bytes_max),
        ] {
            registry.register(format!("cluster_{name}"), help, count.clone());
        }
        cluster
    }

    pub(super) fn set(&self, nodes: Option<Nodes>) {
        let of = |count: fn(Nodes) -> u64| nodes.map_or(0, count);
        self.leads.set(of(|nodes| nodes.leads.into()));
        self.voters.set(of(|nodes| nodes.voters as u64));
        self.silent.set(of(|nodes| nodes.silent as u64));
        self.behind.set(of(|nodes| nodes.behind));
        self.bytes.set(of(|nodes| nodes.bytes));
        self.bytes_max.set(of(|nodes| nodes.bytes_max));
        self.applied.set(of(|nodes| nodes.applied));
    }
}
