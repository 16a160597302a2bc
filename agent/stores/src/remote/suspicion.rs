//! Connections that are not to be trusted.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::connect_error::{ConnectError, Peer};

/// The connections that callers suspect.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// The generation of the latest suspect.
    generation: AtomicU64,
    /// The generation of the latest connection with a late call.
    late: AtomicU64,
    raised: Notify,
}

impl Suspicion {
    pub(super) fn raise(&self, generation: u64) {
        self.generation.fetch_max(generation, Ordering::Relaxed);
        self.raised.notify_one();
    }

    /// Suspects a connection on which a call was not answered in time.
    pub(super) fn raise_late(&self, generation: u64) {
        self.late.fetch_max(generation, Ordering::Relaxed);
        self.raise(generation);
    }

    /// True if this connection, or a later one, is suspect.
    pub(super) fn is_of(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) >= generation
    }

    /// Waits until this connection is suspect.
    pub(super) async fn of(&self, generation: u64) {
        while !self.is_of(generation) {
            self.raised.notified().await;
        }
    }

    /// The reason to suspect this connection.
    pub(super) fn error(&self, generation: u64, peer: &Peer) -> ConnectError {
        match self.late.load(Ordering::Relaxed) >= generation {
            true => ConnectError::Late { peer: peer.clone() },
            false => ConnectError::lost(peer, "a call failed"),
        }
    }
}
