//! A node behind a slow network.

use std::io;
use std::sync::Arc;

use tempfile::TempDir;
use tenure_core::model::Request;
use tenure_wire::rules::NAME_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::running::{Heard, Running, claim, listener, release, start, start_at, until};

const BYTES_PER_MS: usize = 1_000;
/// More than a MB in all.
const CLAIMS: u128 = 1500;

/// Forwards to an address, as a network of a few Mbit/s does.
#[expect(clippy::disallowed_methods, reason = "it is how slow the network is")]
async fn forward(from: TcpListener, to: String) {
    while let Ok((stream, _)) = from.accept().await {
        let to = to.clone();
        tokio::spawn(async move {
            let Ok(other) = TcpStream::connect(to).await else { return };
            let ((mut from, mut back), (mut answers, mut there)) =
                (stream.into_split(), other.into_split());
            let slowly = async {
                let mut bytes = [0; 10 * BYTES_PER_MS];
                loop {
                    let count = from.read(&mut bytes).await?;
                    if count == 0 {
                        return io::Result::Ok(());
                    }
                    // The time that so many bytes take.
                    tokio::time::sleep(std::time::Duration::from_micros(
                        (count * 1_000 / BYTES_PER_MS) as u64,
                    ))
                    .await;
                    there.write_all(bytes.get(..count).unwrap_or_default()).await?;
                }
            };
            // Either end closes both.
            tokio::select! {
                _ = slowly => {}
                _ = tokio::io::copy(&mut answers, &mut back) => {}
            }
        });
    }
}

/// A claim with the longest names, and so a large entry.
fn large(number: u128) -> Request {
    match claim(number, false) {
        Request::Claim(mut claim) => {
            claim.owner.host = "h".repeat(NAME_MAX).into();
            claim.owner.name = "x".repeat(NAME_MAX).into();
            Request::Claim(claim)
        }
        other => other,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_behind_a_slow_network_catches_up() {
    let first = start(TempDir::new().unwrap()).await;
    first.found().await;
    let second = start(TempDir::new().unwrap()).await;
    first.add(&second).await;
    let (there, way) = (listener().await, listener().await);
    let address = way.local_addr().unwrap().to_string();
    let inner = there.local_addr().unwrap().to_string();
    tokio::spawn(forward(way, inner.clone()));
    let folder = TempDir::new().unwrap();
    let third = start_at(folder, there, address.clone(), Arc::<Heard>::default()).await;
    first.add(&third).await;
    until("it to vote", async || third.node.view().voters.len() == 3).await;

    let Running { node, folder, .. } = third;
    node.stop().await;
    drop(node);
    for number in 1..=CLAIMS {
        first.node.ask(large(number)).await.unwrap();
        first.node.ask(release(number)).await.unwrap();
    }
    until("its port to be free", async || TcpListener::bind(&inner).await.is_ok()).await;
    let there = TcpListener::bind(&inner).await.unwrap();
    let third = start_at(folder, there, address, Arc::<Heard>::default()).await;
    let applied = first.node.view().applied;
    until("it to have all", async || third.node.view().applied >= applied).await;
    // Without the second one it is needed.
    second.node.stop().await;
    first.node.ask(claim(CLAIMS + 1, false)).await.unwrap();
}
