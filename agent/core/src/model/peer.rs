//! The peer of a connection.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// A program as people know it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The name of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
    /// Its command line, cut to [`COMMAND_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Arc<str>>,
}

/// Most bytes of a command line that are kept.
pub const COMMAND_BYTES_MAX: usize = 256;

impl Program {
    pub(crate) fn is_unknown(&self) -> bool {
        *self == Program::default()
    }
}

/// How much a user may have, by the rules for it; `None` for what `[limits]` says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    pub sessions_max: Option<usize>,
    /// Holds, waiting ones counted.
    pub holds_max: Option<usize>,
}

/// The peer of a connection, by the kernel's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    /// The process that connected; `None` where it cannot be seen from here.
    pub process: Option<Process>,
    /// True if the shell can watch that process.
    pub watchable: bool,
    /// How much its user may have; filled in for requests that need more.
    pub quota: Quota,
}
