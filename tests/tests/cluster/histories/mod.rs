//! Clusters of real gateways, each in a network of its own, under faults; what their callers were told is checked for
//! linearizability by a checker of somebody else's.

mod faults;
mod growth;
mod kills;
mod load;
mod model;
mod planted;
mod upgrade;

use tenure_tests::harness::Nodes;

use self::faults::{EACH, Fault};
use self::load::Load;

/// Operations that callers are told of, if there are to be more than the faults take.
const OPERATIONS: &str = "TENURE_CLUSTER_OPERATIONS";

/// Has each fault come and go under load, again and again until there are so many operations.
#[track_caller]
fn check(faults: &[Fault], seed: u64) {
    let wanted = std::env::var(OPERATIONS).map_or(0, |text| text.parse().expect("a number"));
    let Some(mut nodes) = Nodes::start(3) else { return };
    let mut rounds = 0;
    let history = Load::run(&mut nodes, seed, |nodes, load| {
        load.grants("all nodes to serve", 0..3);
        while rounds == 0 || load.answered() < wanted {
            for fault in faults {
                eprintln!("{fault:?} after {} operations", load.answered());
                fault.strike(nodes, load);
                load.grants(&format!("all nodes to serve after {fault:?}"), 0..3);
            }
            rounds += 1;
        }
    });
    history.check();
    println!(
        "{} operations with {} grants, {rounds} rounds of faults: legal",
        history.len(),
        history.grants()
    );
}

#[test]
fn after_each_partition_the_cluster_writes_again_and_its_history_is_legal() {
    check(&EACH[..5], 1);
}

#[test]
fn after_each_death_pause_and_bad_disk_the_cluster_writes_again_and_its_history_is_legal() {
    check(&EACH[5..], 2);
}
