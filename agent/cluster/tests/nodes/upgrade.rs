//! Nodes whose programs know different rules of the machine.

use tempfile::TempDir;
use tenure_cluster::machine::VERSION;
use tenure_core::model::{Answer, BeatAnswer};

use super::running::{
    Running, beat, claim, cluster, listener, release, start_knowing, token, until,
};

const LATER: u32 = VERSION + 1;

async fn version(of: &Running) -> Option<u32> {
    of.node.look(|machine, _| machine.version()).await.ok().flatten()
}

/// Starts it again with a later program.
async fn upgrade(running: Running) -> Running {
    let (folder, listener) = running.stop().await;
    start_knowing(folder, listener, LATER).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_goes_over_to_later_rules_with_its_last_node_and_then_takes_no_earlier_program() {
    let mut nodes = cluster(3).await;
    let first = token(&nodes[0].node.ask(claim(1, false)).await.unwrap());
    for upgraded in 0..3 {
        assert_eq!(version(&nodes[1]).await, Some(VERSION), "{upgraded} know more");
        let node = upgrade(nodes.remove(0)).await;
        nodes.push(node);
        let beaten = nodes[0].node.ask(beat(1)).await.unwrap();
        let is_held =
            |it: &BeatAnswer| matches!(it, BeatAnswer::Held { token, .. } if *token == first);
        assert!(matches!(&beaten, Answer::Renew(it) if is_held(&it[0])), "{beaten:?}");
    }
    until("all to go by the later rules", async || {
        let mut versions = Vec::new();
        for running in &nodes {
            versions.push(version(running).await);
        }
        versions == [Some(LATER); 3]
    })
    .await;

    let earlier = start_knowing(TempDir::new().unwrap(), listener().await, VERSION).await.unwrap();
    let leader = nodes[0].node.view().leader;
    let leader = nodes.iter().find(|it| Some(it.node.id()) == leader).unwrap();
    let refused = leader.node.add(earlier.node.id(), earlier.address.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("install the release there"), "{refused}");

    let (folder, listener) = nodes.remove(0).stop().await;
    // It may apply its log before it serves, or after.
    let why = match start_knowing(folder, listener, VERSION).await {
        Ok(back) => back.node.until_halted().await,
        Err(refused) => refused.to_string(),
    };
    assert!(why.contains("install the release that the other nodes have"), "{why}");
    assert_eq!(nodes[0].node.ask(release(1)).await.unwrap(), Answer::Released(true));
}
