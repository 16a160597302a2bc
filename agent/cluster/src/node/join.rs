//! A node that belongs to no cluster has itself added to one.

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
    /// this node is of a cluster.
    pub(crate) async fn join(self, addresses: Vec<String>, mut timer: Box<dyn Alarm>) {
        let mut told = String::new();
        while self.view().voters.is_empty() {
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

    async fn have_added(&self, address: &str) -> Result<(), String> {
        let client = Client::over(address, self.dial());
        let words = |error: std::io::Error| error.to_string();
        match client.ask(Control::Status).await.map_err(words)? {
            Report::Status(status) if status.cluster.is_some() => {}
            _ => return Err(format!("the node at {address} belongs to no cluster")),
        }
        let add = Control::Add { address: self.0.address.clone() };
        client.ask(add).await.map(drop).map_err(words)
    }
}
