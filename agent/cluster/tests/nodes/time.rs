//! Nodes whose clocks differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tenure_cluster::machine::VERSION;
use tenure_cluster::net::{Network, Trust};
use tenure_cluster::node::{BYTES_MAX, IMAGE_EVERY, Node, Setup};
use tenure_cluster::{Folder, host};
use tenure_core::engine::EngineSettings;
use tenure_core::model::ClaimId;
use tenure_core::time::Boottime;
use tenure_host::clock;
use uuid::Uuid;

use super::running::{Heard, TTL, claim, listener, token, until};

/// How far the clock of a node is behind, ns.
type Behind = Arc<AtomicU64>;

/// A node with a clock that can be set back.
async fn start(heard: &Arc<Heard>) -> (Node, String, Behind, TempDir) {
    let (folder, behind) = (TempDir::new().unwrap(), Behind::default());
    let (listener, set) = (listener().await, Arc::clone(&behind));
    let address = listener.local_addr().unwrap().to_string();
    let setup = Setup {
        disk: Box::new(Folder::open(folder.path()).unwrap()),
        network: Network::tcp(listener, Trust::own_user()),
        address: address.clone(),
        clock: Arc::new(move || {
            Boottime::from_nanos(clock::now().as_nanos() - set.load(Ordering::Relaxed))
        }),
        timers: host::timers(),
        listens: heard.clone(),
        image_every: IMAGE_EVERY,
        known: VERSION,
        bytes_max: BYTES_MAX,
    };
    (Node::start(setup).await.unwrap(), address, behind, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_ahead_of_its_successor_ends_no_lease_early() {
    let heard = Arc::<Heard>::default();
    let nodes = [start(&heard).await, start(&heard).await, start(&heard).await];
    let (first, address, ..) = &nodes[0];
    first.found(address.clone(), 1_000, EngineSettings::default(), None).await.unwrap();
    for (other, address, ..) in &nodes[1..] {
        first.add(other.id(), address.clone()).await.unwrap();
    }
    // It heard the stamps of the first leader late.
    let (second, _, behind, _) = nodes[1..].iter().min_by_key(|(node, ..)| node.id()).unwrap();
    behind.store(1_000_000_000, Ordering::Relaxed);
    let leads = |node: &Node| node.view().leader == Some(node.id());
    until("the clock to lag", async || {
        for (node, ..) in &nodes {
            if node.id() != second.id() && leads(node) {
                node.resign().await;
            }
        }
        leads(second)
    })
    .await;
    let asked = clock::now();
    token(&second.ask(claim(1, false)).await.unwrap());
    until("another to lead", async || {
        second.resign().await;
        second.view().leader.is_some() && !leads(second)
    })
    .await;
    let ended = ClaimId(Uuid::from_u128(1));
    until("the end", async || heard.0.lock().unwrap().contains(&ended)).await;
    assert!(clock::now().since(asked) >= TTL, "{:?}", clock::now().since(asked));
}
