//! Faults of networks, processes, disks and clocks, each from its begin to its end.

use tenure_tests::harness::{Nodes, until};

use super::load::Load;

/// The exit status of a gateway whose node has halted.
const HALTED: i32 = 70;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The leader is alone.
    LeaderApart,
    /// Each is alone.
    AllApart,
    /// The leader hears the others, and they do not hear it.
    LeaderUnheard,
    /// The others hear the leader, and it does not hear them.
    LeaderDeaf,
    /// One node reaches both others, which do not reach each other. The leader is one of those.
    Bridge,
    LeaderKilled,
    LeaderStopped,
    FolderWiped,
    LeaderDiskFull,
    LeaderDiskSlow,
    /// The leader's clock on the wall goes forth and back by days.
    ClockSet,
}

pub(crate) const EACH: [Fault; 11] = [
    Fault::LeaderApart,
    Fault::AllApart,
    Fault::LeaderUnheard,
    Fault::LeaderDeaf,
    Fault::Bridge,
    Fault::LeaderKilled,
    Fault::LeaderStopped,
    Fault::FolderWiped,
    Fault::LeaderDiskFull,
    Fault::LeaderDiskSlow,
    Fault::ClockSet,
];

impl Fault {
    /// Lets it happen, waits for what it leads to, and ends it.
    #[track_caller]
    pub(crate) fn strike(self, nodes: &mut Nodes, load: &Load) {
        let leader = nodes.settle();
        let others = || nodes_but(leader);
        let [one, other] = others();
        match self {
            Fault::LeaderApart => {
                nodes.hosts.cut_off(leader);
                load.grants("a majority without the leader to go on", others());
            }
            Fault::AllApart => {
                nodes.hosts.cut_off(leader);
                nodes.hosts.cut(one, other);
                until("all to be without a leader", || {
                    (0..3).all(|node| nodes.leader_by(node).is_none())
                });
            }
            Fault::LeaderUnheard => {
                others().into_iter().for_each(|node| nodes.hosts.cut_one_way(leader, node));
                load.grants("those who do not hear the leader to go on", others());
            }
            Fault::LeaderDeaf => {
                others().into_iter().for_each(|node| nodes.hosts.cut_one_way(node, leader));
                load.grants("those whom the leader does not hear to go on", others());
            }
            Fault::Bridge => {
                nodes.hosts.cut(leader, other);
                load.grants("the one in the middle to go on", [one]);
            }
            Fault::LeaderKilled => {
                nodes.node(leader).gateway.kill();
                load.grants("the others to go on", others());
                nodes.node(leader).start_again();
            }
            Fault::LeaderStopped => {
                nodes.node(leader).gateway.pause();
                load.grants("the others to go on", others());
                nodes.node(leader).gateway.resume();
            }
            Fault::FolderWiped => {
                let address = nodes.node(one).address.clone();
                nodes.node(one).gateway.kill();
                nodes.node(one).wipe();
                nodes.command(leader, &["remove", &address]);
                nodes.node(one).start_again();
                nodes.command(leader, &["add", &address]);
            }
            Fault::LeaderDiskFull => {
                nodes.node(leader).disk.fill();
                // It serves nobody any more.
                assert_eq!(nodes.node(leader).gateway.ended().code(), Some(HALTED));
                load.grants("the others to go on", others());
                nodes.node(leader).disk.empty();
                nodes.node(leader).start_again();
            }
            Fault::LeaderDiskSlow => {
                nodes.node(leader).disk.freeze();
                load.grants("the others to go on", others());
                nodes.node(leader).disk.thaw();
            }
            Fault::ClockSet => {
                for ahead_s in [500_000.0, -500_000.0] {
                    nodes.node(leader).set_clock(ahead_s);
                    load.grants("all to go on", 0..3);
                }
            }
        }
        nodes.hosts.heal();
    }
}

fn nodes_but(leader: usize) -> [usize; 2] {
    [(leader + 1) % 3, (leader + 2) % 3]
}
