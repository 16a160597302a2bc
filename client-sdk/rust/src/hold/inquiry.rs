//! An acquire whose caller may go away at any instant.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::client::{AcquireReply, CallError};
use crate::session::{Core, Shared, milliseconds};
use crate::wire::{Acquire, Wait};

type Asking = Pin<Box<dyn Future<Output = Result<AcquireReply, CallError>> + Send>>;

/// One acquire, asked as often as need be under one request id.
///
/// Dropped while the agent may have granted it, it finds out in the background and gives back what
/// it got, so that no hold is left that nobody knows of.
pub(super) struct Inquiry {
    core: Arc<Core>,
    acquire: Arc<Acquire>,
    asking: Option<Asking>,
    /// An earlier call may have been granted although its answer never came.
    uncertain: bool,
}

impl Inquiry {
    /// `acquire` must have a request id.
    pub(super) fn new(core: Arc<Core>, acquire: Acquire) -> Inquiry {
        Inquiry { core, acquire: Arc::new(acquire), asking: None, uncertain: false }
    }

    /// The same for who waits no longer than `left`.
    pub(super) async fn ask_within(
        &mut self,
        left: Option<Duration>,
    ) -> Result<AcquireReply, CallError> {
        // Rounded up, so that the agent's end of the wait comes after the caller's.
        let left = left.map(|left| milliseconds(left).saturating_add(1));
        Arc::make_mut(&mut self.acquire).timeout_ms = left;
        self.ask().await
    }

    /// Asks, or asks again. A reply must be made a claim before anything is awaited.
    pub(super) async fn ask(&mut self) -> Result<AcquireReply, CallError> {
        let client = self.core.shared.client.clone();
        let acquire = Arc::clone(&self.acquire);
        let asking = self.asking.insert(Box::pin(async move { client.acquire(&acquire).await }));
        let result = std::future::poll_fn(|context| asking.as_mut().poll(context)).await;
        self.asking = None;
        self.uncertain = match &result {
            Ok(_) | Err(CallError::Refused(_)) => false,
            Err(CallError::Unreachable { source, .. }) if never_sent(source.kind()) => {
                self.uncertain
            }
            Err(_) => true,
        };
        result
    }
}

/// True if the connection was not even made.
fn never_sent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied)
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        let asking = self.asking.take();
        if asking.is_some() || self.uncertain {
            let shared = Arc::clone(&self.core.shared);
            if shared.is_forked() {
                // The call is the parent's.
                return std::mem::forget(asking);
            }
            shared.spawn(settle(Arc::clone(&shared), Arc::clone(&self.acquire), asking));
        }
    }
}

/// Takes an acquire that nobody wants any more; finds out what came of it and gives that back.
/// Ends when the agent has answered, or the session is over.
async fn settle(shared: Arc<Shared>, acquire: Arc<Acquire>, asking: Option<Asking>) {
    let again = Acquire { wait: Wait::None, timeout_ms: None, ..Acquire::clone(&acquire) };
    let mut result = match asking {
        Some(asking) => asking.await,
        None => shared.client.acquire(&again).await,
    };
    let mut backoff = Backoff::new();
    loop {
        match result {
            Ok(AcquireReply::Acquired(acquired)) => {
                return shared.release_in_background(acquired.hold);
            }
            Ok(AcquireReply::Waiting(waiting)) => {
                return shared.release_in_background(waiting.hold);
            }
            Err(CallError::Refused(_)) => return,
            Err(_) => backoff.wait().await,
        }
        result = shared.client.acquire(&again).await;
    }
}
