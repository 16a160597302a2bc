//! Errors on the way to a hold, and on the way back.

use std::time::Duration;

use super::{Lost, Reason};
use crate::client::CallError;
use crate::page::ClocksDiffer;
use crate::session::SessionGone;
use crate::wire::Problem;

/// Why there is no hold.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The task or thread that asks holds it already, and would wait for itself. A hold belongs to the task that asked
    /// for it, wherever it is moved: what another task is to wait for is asked for there.
    #[error("{}", .0.detail)]
    HeldBySelf(Box<Problem>),
    /// Nobody let go in time.
    #[error("{what} was not free within {after:?}: try again, or wait longer")]
    TimedOut {
        /// The resource, such as `leader/cleanup`.
        what: String,
        /// How long was waited.
        after: Duration,
    },
    /// The wait was ended by the agent.
    #[error("the wait for {what} was ended: {reason}; acquire again")]
    WaitEnded {
        /// The resource, such as `leader/cleanup`.
        what: String,
        /// Why.
        reason: Reason,
    },
    /// The session is no more.
    #[error(transparent)]
    SessionGone(#[from] SessionGone),
    /// This process reads another clock than the agent.
    #[error(transparent)]
    ClocksDiffer(#[from] ClocksDiffer),
    /// The agent refused, or could not be asked.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why [`Resource::run`](super::Resource::run) has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There was no hold, and the work was not begun.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The hold was lost: the work was dropped where it stood, or ended too late.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Why a hold was not given back as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// It had been lost before: what was done since may have met another holder.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The agent could not be asked; it is asked again in the background.
    #[error(transparent)]
    Call(#[from] CallError),
}
