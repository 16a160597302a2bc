//! Clusters that have lost their majority for good, and go on from the folder of one node.

use std::time::Duration;

use tempfile::TempDir;
use tenure_cluster::Folder;
use tenure_cluster::control::{Client, Report};
use tenure_cluster::net::Trust;
use tenure_cluster::node::Node;
use tenure_cluster::recovery::Survivor;
use tenure_core::model::{Answer, BeatAnswer};
use uuid::Uuid;

use super::running::{Running, beat, claim, cluster, release, start, start_with, token, until};

const QUARANTINE: Duration = Duration::from_secs(3);

/// Has a new node go on from a folder.
async fn recover(folder: &TempDir) -> (Running, Uuid) {
    let survivor = Survivor::read(folder.path()).await.unwrap();
    survivor.retire().unwrap();
    let new = start(TempDir::new().unwrap()).await;
    let client = Client::new(&new.address, Trust::own_user());
    let text = survivor.backup.text().into_bytes();
    let Report::Restored { cluster, quarantine } =
        client.restore(text, Some(QUARANTINE)).await.unwrap()
    else {
        panic!("it is restored");
    };
    assert_eq!(quarantine, QUARANTINE);
    assert_ne!(cluster, survivor.cluster());
    (new, cluster)
}

async fn beaten(node: &Node, number: u128) -> BeatAnswer {
    match node.ask(beat(number)).await.unwrap() {
        Answer::Renew(beats) => beats[0].clone(),
        other => panic!("{other:?} answers no beat"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survivor_goes_on_as_another_cluster_with_its_holds_and_greater_tokens() {
    let mut nodes = cluster(3).await;
    let first = token(&nodes[0].node.ask(claim(1, false)).await.unwrap());
    let taken = Survivor::read(nodes[2].folder.path()).await.unwrap_err().to_string();
    assert!(taken.contains("another process"), "{taken}");
    let applied = nodes[0].node.view().applied;
    until("the survivor to have it", async || nodes[2].node.view().applied >= applied).await;
    let old = nodes[2].cluster();
    let (folder, listener) = nodes.pop().unwrap().stop().await;
    // Only the majority has this release: the survivor never receives it.
    assert_eq!(nodes[0].node.ask(release(1)).await.unwrap(), Answer::Released(true));
    let second = token(&nodes[0].node.ask(claim(2, false)).await.unwrap());
    assert!(second > first);
    let (gone, gone_listener) = nodes.pop().unwrap().stop().await;
    nodes.pop().unwrap().stop().await;

    let (new, _) = recover(&folder).await;
    assert_ne!(new.cluster(), old);
    // The holder in the folder keeps its hold, and the later holder loses its own.
    assert!(matches!(beaten(&new.node, 1).await, BeatAnswer::Held { token, .. } if token == first));
    assert!(matches!(beaten(&new.node, 2).await, BeatAnswer::Gone(_)));
    assert_eq!(new.node.ask(release(1)).await.unwrap(), Answer::Released(true));
    let rests = new.node.ask(claim(3, false)).await.unwrap();
    assert!(format!("{rests:?}").contains("Quarantine"), "{rests:?}");
    new.node.ask(claim(3, true)).await.unwrap();
    let mut third = None;
    until("the quarantine to be over", async || {
        if let BeatAnswer::Held { token, .. } = beaten(&new.node, 3).await {
            third = Some(token);
        }
        third.is_some()
    })
    .await;
    // Greater than what the majority could still have granted in an hour.
    assert!(third > Some(second + (1 << 20)), "{third:?} after {second}");

    // The survivor's own folder runs no node any more, and can be recovered from again.
    let refused = Folder::open(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("recovered from") && refused.contains("empty folder"), "{refused}");
    drop(listener);
    assert!(Survivor::read(folder.path()).await.is_ok());
    // A node of the old cluster that comes back leads nothing, and is not added.
    let back = start_with(gone, gone_listener, None).await;
    assert_eq!(back.node.view().leader, None);
    let refused = new.node.add(back.node.id(), back.address.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("another cluster"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_was_not_known_to_be_committed_is_not_lost() {
    let mut nodes = cluster(3).await;
    let leader = nodes[0].node.view().leader.unwrap();
    let at = nodes.iter().position(|it| it.node.id() == leader).unwrap();
    let leads = nodes.remove(at);
    for other in nodes.drain(..) {
        other.node.stop().await;
    }
    // The outcome is unknown: the lost majority may have committed the claim.
    leads.node.ask(claim(1, false)).await.unwrap_err();
    let applied = leads.node.view().applied;
    let (folder, _) = leads.stop().await;
    let survivor = Survivor::read(folder.path()).await.unwrap();
    assert!(survivor.last > applied && survivor.members.len() == 3);
    drop(survivor);
    let (new, _) = recover(&folder).await;
    assert!(matches!(beaten(&new.node, 1).await, BeatAnswer::Held { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_recovered_a_second_time_from_an_image_and_what_follows_it() {
    let mut nodes = cluster(1).await;
    let first = token(&nodes[0].node.ask(claim(1, false)).await.unwrap());
    let (folder, _) = nodes.pop().unwrap().stop().await;
    // The new cluster's folder begins with an image instead of a log.
    let (new, once) = recover(&folder).await;
    assert!(matches!(beaten(&new.node, 1).await, BeatAnswer::Held { token, .. } if token == first));
    new.node.ask(release(1)).await.unwrap();
    let (folder, _) = new.stop().await;
    let (again, twice) = recover(&folder).await;
    assert_ne!(once, twice);
    assert!(matches!(beaten(&again.node, 1).await, BeatAnswer::Gone(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_has_nothing_to_recover_is_refused_with_words() {
    let empty = TempDir::new().unwrap();
    let words =
        async |folder: &TempDir| Survivor::read(folder.path()).await.unwrap_err().to_string();
    let refused = words(&empty).await;
    assert!(refused.contains("is no folder of a node"), "{refused}");
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "it is left as it is");
    Folder::open(empty.path()).unwrap();
    let refused = words(&empty).await;
    assert!(refused.contains("belongs to no cluster"), "{refused}");
    std::fs::write(empty.path().join("condemned"), "this node differs").unwrap();
    let refused = words(&empty).await;
    assert!(refused.contains("this node differs"), "{refused}");
}
