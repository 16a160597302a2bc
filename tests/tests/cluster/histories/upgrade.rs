//! Nodes whose program is replaced by a later one, one after the other, under load.

use std::path::{Path, PathBuf};
use std::{env, fs};

use tempfile::TempDir;
use tenure_tests::harness::{Nodes, binary, install_program};

use super::load::Load;

/// The program that takes the place of the earlier one.
const LATER: &str = "TENURE_LATER_GATEWAY";

/// Puts a program in the place of another one, as the package of a release does.
fn put(program: &Path, place: &Path) {
    install_program(program, place);
}

#[test]
#[ignore = "takes the program of an earlier commit: tests/long upgrade"]
fn a_cluster_is_upgraded_node_by_node_under_load_and_one_goes_back_meanwhile() {
    let later = PathBuf::from(env::var_os(LATER).expect("tests/long upgrade gives it"));
    // Each node runs what is at this place when it starts.
    let place = binary("tenured-gateway");
    let folder = TempDir::new().expect("a temporary directory");
    let earlier = folder.path().join("earlier");
    fs::copy(&place, &earlier).expect("it can be copied");
    let Some(mut nodes) = Nodes::start(3) else { return };
    let history = Load::run(&mut nodes, 4, |nodes, load| {
        load.grants("the earlier ones to serve", 0..3);
        let restart = |nodes: &mut Nodes, node: usize, program: &Path| {
            put(program, &place);
            assert!(nodes.node(node).gateway.stop().success());
            load.grants("the others to serve", nodes.hosts.others(node));
            nodes.node(node).start_again();
            nodes.settle();
            load.grants("all to serve", 0..3);
        };
        // One is upgraded and goes back before all are.
        restart(nodes, 0, &later);
        restart(nodes, 0, &earlier);
        for node in [0, 1, 2] {
            restart(nodes, node, &later);
        }
        // And a death in between finds nodes of both.
        nodes.node(1).gateway.kill();
        nodes.node(1).start_again();
        nodes.settle();
        load.grants("all to serve", 0..3);
    });
    put(&earlier, &place);
    history.check();
    println!("{} operations with {} grants: legal", history.len(), history.grants());
}
