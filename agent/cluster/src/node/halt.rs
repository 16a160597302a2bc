//! A node that cannot keep what it is told, or does not understand it, stops: it would promise what it does not have.

use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::Fatal;
use tracing::error;

use super::Node;

impl Node {
    /// The reason for which it serves nobody any more. A node that was stopped has none.
    pub fn halted(&self) -> Option<String> {
        self.0.service.halted.borrow().clone()
    }

    /// Waits until it serves nobody any more, and says why. Its folder is free then, or soon; what it has said to be
    /// kept is there, and a node that is started with it goes on.
    pub async fn until_halted(&self) -> String {
        let mut halted = self.0.service.halted.subscribe();
        // The node has the sender.
        let cause = halted.wait_for(Option::is_some).await.map(|cause| cause.clone());
        cause.ok().flatten().unwrap_or_default()
    }

    /// Serves nobody any more, for this reason.
    pub(super) async fn halt(&self, cause: &str) {
        error!("{cause}");
        // The first reason stays.
        self.0.service.halted.send_if_modified(|halted| {
            let is_first = halted.is_none();
            halted.get_or_insert_with(|| cause.to_owned());
            is_first
        });
        // One of the tasks that it ends is the one that asks for this.
        self.stop().await;
    }

    /// Halts the node when consensus has ended by itself: a disk failed, or an entry is of a later version.
    pub(super) async fn watch(self) {
        let mut metrics = self.0.raft.metrics();
        let fatal = loop {
            match metrics.borrow_watched().running_state.clone() {
                Ok(()) => {}
                Err(Fatal::Stopped) => return,
                Err(fatal) => break fatal,
            }
            if metrics.changed().await.is_err() {
                return;
            }
        };
        self.halt(&format!("this node has stopped: {fatal}")).await;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use openraft::RaftLogReader;
    use tempfile::TempDir;
    use tenure_core::engine::{Effect, EngineSettings};
    use tokio::net::TcpListener;

    use super::Node;
    use crate::Folder;
    use crate::disk::Log;
    use crate::host;
    use crate::machine::{Machine, Operation, VERSION};
    use crate::net::{Network, Trust};
    use crate::node::Setup;
    use crate::raft::Listener;

    struct Nobody;

    impl Listener for Nobody {
        fn applied(&self, _: Vec<Effect>, _: &Machine) {}
        fn replaced(&self) {}
    }

    pub(in crate::node) async fn start(folder: &Path) -> io::Result<Node> {
        let disk = Box::new(Folder::open(folder)?);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (network, listens) = (Network::tcp(listener, Trust::own_user()), Arc::new(Nobody));
        let (clock, timers) = (host::clock(), host::timers());
        let image_every = crate::node::IMAGE_EVERY;
        let (known, bytes_max) = (VERSION, crate::node::BYTES_MAX);
        Node::start(Setup {
            disk,
            network,
            address,
            clock,
            timers,
            listens,
            image_every,
            known,
            bytes_max,
        })
        .await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_entry_of_a_later_version_stops_the_node_and_stays_in_its_log() {
        let folder = TempDir::new().unwrap();
        let node = start(folder.path()).await.unwrap();
        let address = "127.0.0.1:1".to_owned();
        node.found(address, 1_000, EngineSettings::default(), None).await.unwrap();
        node.propose(Operation::Tick).await.unwrap();
        let later = Operation::Version(VERSION + 1);
        let asked = node.propose(later.clone()).await.unwrap_err().to_string();
        let why = node.until_halted().await;
        for words in [format!("version {}", VERSION + 1), "install the release".to_owned()] {
            assert!(why.contains(&words), "{why}; {asked}");
        }
        drop(node);
        // Again and again.
        let again = match start(folder.path()).await {
            Ok(node) => node.until_halted().await,
            Err(error) => error.to_string(),
        };
        assert!(again.contains("install the release"), "{again}");
        // A later program finds all of it.
        let mut log = Log::open(&Folder::open(folder.path()).unwrap()).unwrap();
        let entries = log.try_get_log_entries(..).await.unwrap();
        let operations = entries.into_iter().filter_map(|entry| match entry.payload {
            openraft::EntryPayload::Normal(command) => Some(command.operation),
            _ => None,
        });
        let operations: Vec<_> = operations.collect();
        assert!(matches!(operations[0], Operation::Found(_)));
        assert_eq!(operations[1..].iter().filter(|it| **it == later).count(), 1);
    }
}
