//! Clusters whose nodes come and go under load.

use tenure_tests::harness::Nodes;

use super::load::Load;

#[test]
fn a_cluster_grows_shrinks_and_restarts_node_by_node_and_its_history_is_legal() {
    let Some(mut nodes) = Nodes::apart(5, 5) else { return };
    nodes.command(0, &["init"]);
    let history = Load::run(&mut nodes, 3, |nodes, load| {
        load.grants("one node to serve", [0]);
        for size in [3, 5] {
            (size - 2..size).for_each(|node| nodes.join(node));
            load.grants("the new ones to serve", 0..size);
        }
        let leader = nodes.settle();
        let [next, other] = [1, 2].map(|step| (leader + step) % 5);
        replace(nodes, load, leader, next, false);
        replace(nodes, load, other, next, true);
        for node in 0..5 {
            assert!(nodes.node(node).gateway.stop().success());
            load.grants("the others to serve", nodes.hosts.others(node));
            nodes.node(node).start_again();
            nodes.settle();
            load.grants("all to serve", 0..5);
        }
        for node in [4, 3] {
            let address = nodes.node(node).address.clone();
            nodes.command(0, &["remove", &address]);
        }
        load.grants("those that are left to serve", 0..3);
    });
    history.check();
    println!("{} operations with {} grants: legal", history.len(), history.grants());
}

/// Takes a node out, alive or dead, and has it join with an empty folder.
#[track_caller]
fn replace(nodes: &mut Nodes, load: &Load, node: usize, by: usize, is_dead: bool) {
    let address = nodes.node(node).address.clone();
    if is_dead {
        nodes.node(node).gateway.kill();
    }
    nodes.command(by, &["remove", &address]);
    load.grants("the others to serve", nodes.hosts.others(node));
    if !is_dead {
        nodes.node(node).gateway.kill();
    }
    nodes.node(node).wipe();
    nodes.node(node).start_again();
    nodes.command(by, &["add", &address]);
    nodes.settle();
    load.grants("all to serve", 0..5);
}
