//! How a hold ends against its holder's will.

use std::fmt;

use crate::wire::LostReason;

/// Why a hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The agent's reason; [`LostReason::Expired`] also when the agent itself is stopped or dead.
    Lost(LostReason),
    /// It was given back: by another call on the same session, or before the question.
    Released,
    /// The session ended.
    SessionGone,
    /// The agent no longer knows of it, and did not say why.
    Forgotten,
    /// The page says that it is over; the agent's reason has not come yet.
    Untold,
    /// It belongs to the process that this one was forked from.
    Forked,
}

impl Reason {
    /// One word, as in the agent's log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Lost(reason) => reason.as_str(),
            Reason::Released => "released",
            Reason::SessionGone => "session_gone",
            Reason::Forgotten => "forgotten",
            Reason::Untold => "untold",
            Reason::Forked => "forked",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<LostReason> for Reason {
    fn from(reason: LostReason) -> Reason {
        Reason::Lost(reason)
    }
}

/// A hold is gone: its holder must have stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the hold with token {token} was lost: {reason}; stop, and acquire again for a new token")]
pub struct Lost {
    /// The fencing token that it had.
    pub token: u64,
    /// Why.
    pub reason: Reason,
}
