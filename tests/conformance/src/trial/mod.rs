//! A store of the corpus's own, as small as a remote store can be: an engine behind a Unix socket, whose
//! replies come late, or never because the connection breaks. Its client is a `Connector` and a `Backend`
//! on the driver of all remote stores; the example for a new one.

mod client;
mod server;

use serde::{Deserialize, Serialize};
use tenure_core::model::{Answer, Change, Request};

use self::server::Server;
use crate::client::Client;
use crate::stores::Store;

pub(crate) const STORE: Store =
    Store { name: "trial", faults: &[], open: |_| Box::new(Client::new(Server::start())) };

/// A line from the client.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    Ping,
    Listen,
    Do(Box<Request>),
}

/// A line to the client.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// The reply to the call of this number; with an answer if it was a request.
    Reply(u64, Option<Box<Answer>>),
    Change(Change),
}
