//! A node that belongs to no cluster has itself added to one, or begins one with others that belong to none either.

use std::future::poll_fn;
use std::time::Duration;

use tracing::info;

use super::Node;
use crate::control::{Client, Control, Report};
use crate::host::Alarm;

/// The pause after each round of asking.
const ASK_EVERY: Duration = Duration::from_secs(1);

impl Node {
    /// Asks the nodes at these addresses, one after the other, until one of them has this node added. Ends at once if
    /// this node votes in a cluster.
    ///
    /// `begins` has the least of the addresses, which are this node's own one and those of others, begin a cluster once all
    /// the others say that they belong to none: whoever has lost its folder, or does not reach the others, waits for them.
    pub(crate) async fn join(
        self,
        addresses: Vec<String>,
        begins: bool,
        mut timer: Box<dyn Alarm>,
    ) {
        let mut told = String::new();
        let is_first = begins && addresses.iter().min() == Some(&self.0.address);
        while self.joins() || is_first && self.has_half_begun() {
            if is_first && self.others_belong_to_none(&addresses).await {
                match self.begin(None).await {
                    Ok(cluster) => return info!("cluster {cluster} has begun"),
                    Err(cause) => info!("no cluster has begun: {cause}"),
                }
            }
            let mut refusals = Vec::new();
            for address in addresses.iter().filter(|address| **address != self.0.address) {
                match self.have_added(address).await {
                    Ok(()) => {
                        return info!("the node at {address} has added this one to its cluster");
                    }
                    Err(refusal) => refusals.push(refusal),
                }
            }
            let refusals = refusals.join("; ");
            if refusals != told {
                info!("this node has joined no cluster yet, and goes on asking: {refusals}");
                told = refusals;
            }
            timer.set(Some((self.0.clock)() + ASK_EVERY));
            poll_fn(|context| timer.poll_fired(context)).await;
        }
    }

    /// True while it does not vote: it is in no cluster, or its joining broke off. One that was taken out asks no more.
    fn joins(&self) -> bool {
        let (members, voters) = (self.members(), self.view().voters);
        !voters.contains_key(&self.id()) && (voters.is_empty() || members.contains_key(&self.id()))
    }

    /// True if it was to begin a cluster, and did not come to its first entry.
    pub(super) fn has_half_begun(&self) -> bool {
        let view = self.view();
        view.cluster.is_none() && view.voters.into_keys().eq([self.id()])
    }

    /// True if all of them answer, and say so.
    async fn others_belong_to_none(&self, addresses: &[String]) -> bool {
        let others = addresses.iter().filter(|address| **address != self.0.address);
        let asked = others.map(|address| async {
            let client = Client::over(address, self.dial());
            match client.ask(Control::Status).await {
                Ok(Report::Status(status)) => status.cluster.is_none() && status.members.is_empty(),
                _ => false,
            }
        });
        futures_util::future::join_all(asked).await.into_iter().all(|it| it)
    }

    async fn have_added(&self, address: &str) -> Result<(), String> {
        let client = Client::over(address, self.dial());
        let words = |error: std::io::Error| error.to_string();
        match client.ask(Control::Status).await.map_err(words)? {
            Report::Status(status) if status.cluster.is_some() => {}
            _ => return Err(format!("the node at {address} belongs to no cluster")),
        }
        let add = Control::add(self.0.address.clone());
        client.ask(add).await.map(drop).map_err(words)
    }
}
