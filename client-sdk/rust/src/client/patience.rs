//! How long a call waits for an agent that does not take connections.

use std::io;
use std::time::Duration;

use super::CallError;
use crate::page::boottime_ns;
use crate::wire::Code;

/// How long a call tries to connect while more connections wait than the agent can take.
pub const CONNECT_PATIENCE: Duration = Duration::from_secs(4);
/// How long a call waits for an agent that is restarted: its socket is there and nobody listens, or
/// it says that it is stopping.
pub const RESTART_PATIENCE: Duration = Duration::from_secs(1);

const PACE: Duration = Duration::from_millis(20);

/// The patience that one call has left.
pub(super) struct Patience {
    since: u64,
    most: Duration,
}

impl Patience {
    /// None of them is longer than `most`.
    pub(super) fn of(most: Duration) -> Patience {
        Patience { since: boottime_ns(), most }
    }

    /// Waits a little and returns true if the call, which did not reach an agent, is to be made
    /// again.
    #[expect(
        clippy::disallowed_methods,
        reason = "a pause before a repetition: after a sleep of the machine it is only a little longer"
    )]
    pub(super) async fn again_after(&self, error: &CallError) -> bool {
        let patience = match error {
            CallError::Unreachable { source, .. } => match source.kind() {
                io::ErrorKind::WouldBlock => CONNECT_PATIENCE,
                io::ErrorKind::ConnectionRefused => RESTART_PATIENCE,
                _ => return false,
            },
            CallError::Refused(problem) if problem.code == Code::Stopping => RESTART_PATIENCE,
            _ => return false,
        };
        let waited = Duration::from_nanos(boottime_ns().saturating_sub(self.since));
        let is_left = waited < patience.min(self.most);
        if is_left {
            tokio::time::sleep(PACE).await;
        }
        is_left
    }
}
