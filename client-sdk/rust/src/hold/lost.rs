//! How a hold ends against its holder's will.

use std::fmt;

use crate::wire::LostReason;

/// Why a hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Its valid-until passed before a renewal was confirmed; also when the agent itself is
    /// stopped or dead.
    Expired,
    /// A session of higher priority took it.
    Preempted,
    /// The program broke its own progress promise.
    Stalled,
    /// It lasted as long as it was allowed to.
    MaxHold,
    /// An administrator took it away.
    Revoked,
    /// The upstream lost its data.
    UpstreamReset,
    /// The upstream says that somebody else has it.
    Conflict,
    /// The agent is stopping.
    AgentStopping,
    /// The machine slept past its valid-until.
    Slept,
    /// It was given back, but not by its guard: by another call on the same session.
    Released,
    /// The session ended.
    SessionGone,
    /// The agent no longer knows of it, and did not say why.
    Forgotten,
}

impl Reason {
    /// One word, as in the agent's log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Expired => "expired",
            Reason::Preempted => "preempted",
            Reason::Stalled => "stalled",
            Reason::MaxHold => "max_hold",
            Reason::Revoked => "revoked",
            Reason::UpstreamReset => "upstream_reset",
            Reason::Conflict => "conflict",
            Reason::AgentStopping => "agent_stopping",
            Reason::Slept => "slept",
            Reason::Released => "released",
            Reason::SessionGone => "session_gone",
            Reason::Forgotten => "forgotten",
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
        match reason {
            LostReason::Expired => Reason::Expired,
            LostReason::Preempted => Reason::Preempted,
            LostReason::Stalled => Reason::Stalled,
            LostReason::MaxHold => Reason::MaxHold,
            LostReason::Revoked => Reason::Revoked,
            LostReason::UpstreamReset => Reason::UpstreamReset,
            LostReason::Conflict => Reason::Conflict,
            LostReason::AgentStopping => Reason::AgentStopping,
            LostReason::Slept => Reason::Slept,
        }
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
