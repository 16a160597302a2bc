//! How a session does.

use std::path::PathBuf;
use std::sync::Arc;

use crate::client::CallError;
use crate::page::PageError;

/// How a session does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionState {
    /// Its event stream is open.
    Connected,
    /// Its event stream is being opened again; holds stay what their page says.
    Reconnecting,
    /// It has ended, and all its holds with it.
    Gone(SessionGone),
}

/// A session has ended; a new one must be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the session is gone: {why}; open a new one")]
pub struct SessionGone {
    /// The agent's reason, or who closed it.
    pub why: Arc<str>,
}

/// Why a session could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The agent refused, or could not be asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The session's page cannot be used.
    #[error(transparent)]
    Page(#[from] PageError),
    /// There is no Tokio runtime to watch the session in.
    #[error("a session of the agent at {} needs a Tokio runtime: open it inside of one", path.display())]
    NoRuntime {
        /// The socket.
        path: PathBuf,
    },
    /// There is no thread for [`blocking::open`](crate::blocking::open).
    #[error("no thread can be started for the session: is a limit of the system reached?")]
    NoThread {
        /// The system's error.
        source: std::io::Error,
    },
}
