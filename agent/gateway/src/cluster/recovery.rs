//! A cluster whose majority is gone for good goes on from the folder of one of its nodes.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use tenure_cluster::control::{Client, Control, Report};
use tenure_cluster::recovery::Survivor;
use tenure_stores::settings::Stores;
use tokio::net::TcpStream;

use super::{astray, say, way};

/// How long a host that is there may take to accept a connection.
const LISTENS_WITHIN: Duration = Duration::from_secs(2);

/// Has a node begin a cluster that goes on from a folder.
pub(super) async fn recover(
    client: &Client,
    stores: &Stores,
    folder: &Path,
    quarantine: Option<Duration>,
) -> anyhow::Result<()> {
    let survivor = Survivor::read(folder).await?;
    refuse_while_one_runs(&survivor, stores).await?;
    // A folder that is retired for a node that cannot begin a cluster would be of no use to either.
    if let Some(cluster) = super::status(client).await?.cluster {
        bail!(
            "the node that is to begin is of cluster {cluster}: name one that belongs to none, with an empty folder"
        );
    }
    // The old node is retired first: the answer may be lost, and the old node must not run beside the new cluster.
    let folder = folder.display();
    survivor.retire().with_context(|| format!("the folder {folder} cannot be marked"))?;
    let text = survivor.backup.text().into_bytes();
    let Report::Restored { cluster, quarantine } = client.restore(text, quarantine).await? else {
        return Err(astray());
    };
    let (node, last, old) = (survivor.node(), survivor.last, survivor.cluster());
    let gone: Vec<_> = survivor.members.values().map(String::as_str).collect();
    let quarantine = humantime::format_duration(quarantine);
    say(&format!(
        "cluster {cluster} has begun with all that node {node:x} had, up to entry {last}; it grants nothing for {quarantine}\n\
         cluster {old} must never run again: wipe the folders of its nodes ({}) before they start\n\
         add other nodes with `tenured-gateway cluster add HOST:PORT`",
        gone.join(", ")
    ))
}

/// Refuses while a node of the old cluster answers: two clusters would grant the same things.
async fn refuse_while_one_runs(survivor: &Survivor, stores: &Stores) -> anyhow::Result<()> {
    let old = survivor.cluster();
    for address in survivor.members.values() {
        match way(stores, Some(address.as_str()))?.ask(Control::Status).await {
            Ok(Report::Status(status)) if status.cluster == Some(old) => bail!(
                "the node at {address} runs and is of cluster {old}: if a majority can run again, start it, and nothing is lost; \
                 otherwise stop each of them first, and recover from the folder with the most entries"
            ),
            // Nothing listens for a node that is gone. One that is stopped for a while does not answer either.
            Err(error) if error.kind() != ErrorKind::NotConnected && listens(address).await => {
                bail!(
                    "a node may still run at {address}: {error}; stop it first, since two clusters would grant the same things"
                )
            }
            _ => {}
        }
    }
    Ok(())
}

async fn listens(address: &str) -> bool {
    let connecting = tokio::time::timeout(LISTENS_WITHIN, TcpStream::connect(address));
    matches!(connecting.await, Ok(Ok(_)))
}
