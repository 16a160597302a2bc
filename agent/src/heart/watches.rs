//! Watches on the processes behind sessions.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::host::process;
use crate::model::{Process, SessionId};

/// A watched process has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exit {
    pub(super) session: SessionId,
    /// The exit code, or 128 + the signal, where the kernel tells.
    pub(super) status: Option<i32>,
}

/// One small task per watched process; each sends one [`Exit`] and ends. As many wait in the channel
/// as there are sessions at most.
pub(super) struct Watches {
    tasks: HashMap<SessionId, AbortHandle>,
    exits: mpsc::UnboundedSender<Exit>,
}

impl Watches {
    pub(super) fn new() -> (Watches, mpsc::UnboundedReceiver<Exit>) {
        #[expect(
            clippy::disallowed_methods,
            reason = "one per watched process at most, and sessions are bounded"
        )]
        let (exits, exits_out) = mpsc::unbounded_channel();
        (Watches { tasks: HashMap::new(), exits }, exits_out)
    }

    /// Watches the process behind a pidfd.
    pub(super) fn watch(&mut self, session: SessionId, pidfd: &OwnedFd) {
        self.unwatch(session);
        match process::exited(pidfd) {
            Ok(exited) => {
                let exits = self.exits.clone();
                let task = tokio::spawn(async move {
                    let status = exited.await;
                    // Fails only when the heart has ended.
                    let _ = exits.send(Exit { session, status });
                });
                self.tasks.insert(session, task.abort_handle());
            }
            Err(error) => {
                tracing::warn!(%session, %error, "cannot watch the session's process; its tether still holds");
            }
        }
    }

    /// Watches a process that was watched before this agent started. If it has ended meanwhile,
    /// that is told at once.
    pub(super) fn watch_again(&mut self, session: SessionId, process: Option<Process>) {
        match process.map(process::reopen) {
            Some(Some(pidfd)) => self.watch(session, &pidfd),
            Some(None) => {
                // Fails only when the heart has ended.
                let _ = self.exits.send(Exit { session, status: None });
            }
            // Of another PID namespace: there is no number to find it by. Its tether still holds.
            None => {}
        }
    }

    pub(super) fn unwatch(&mut self, session: SessionId) {
        if let Some(task) = self.tasks.remove(&session) {
            task.abort();
        }
    }
}
