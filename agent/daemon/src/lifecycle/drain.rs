//! The end, which comes in time.

use std::future::Future;
use std::time::Duration;

use tenure_host::signals::{Signal, Signals};

use crate::heart::Control;

/// Enough to write the answers that there are, and a last event to a thousand streams on a busy machine.
const RESTART_DRAIN: Duration = Duration::from_millis(500);

/// How the agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// For good: holds are released, the socket is removed.
    Stop,
    /// For the next agent: holds stay, and so does the socket.
    Restart,
}

impl Ending {
    /// How long connections may go on once the heart has ended. Until the next agent is there nobody
    /// beats, and no stuck client is worth a hold; those of a stop have until the deadline.
    pub fn patience(self) -> Duration {
        match self {
            Ending::Stop => Duration::MAX,
            Ending::Restart => RESTART_DRAIN,
        }
    }

    /// The order to the heart.
    pub fn control(self) -> Control {
        match self {
            Ending::Stop => Control::Stop,
            Ending::Restart => Control::Restart,
        }
    }
}

/// How draining went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Everything was done.
    Done,
    /// Time was up first.
    DeadlinePassed,
    /// A second signal came first.
    Interrupted,
}

/// Does the last work of the agent, until it is done, the deadline has passed or a second signal
/// has come.
#[expect(
    clippy::disallowed_methods,
    reason = "a machine that sleeps while the agent ends makes it end later; holds run out by their own clock"
)]
pub async fn drain(
    work: impl Future<Output = ()>,
    deadline: Duration,
    signals: &mut Signals,
) -> Drained {
    let second = async {
        // To reload now would be of no use.
        while signals.next().await == Signal::Reload {}
    };
    tokio::select! {
        biased;
        () = work => Drained::Done,
        () = second => Drained::Interrupted,
        () = tokio::time::sleep(deadline) => Drained::DeadlinePassed,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use signal_hook::consts::signal::{SIGHUP, SIGTERM};
    use signal_hook::low_level::raise;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    // One test, because signals go to the whole process.
    #[tokio::test]
    async fn ends_by_work_deadline_or_signal() {
        let mut signals = Signals::listen().unwrap();
        assert_eq!(drain(ready(()), PATIENCE, &mut signals).await, Drained::Done);
        let short = Duration::from_millis(1);
        assert_eq!(drain(pending(), short, &mut signals).await, Drained::DeadlinePassed);
        raise(SIGHUP).unwrap();
        raise(SIGTERM).unwrap();
        assert_eq!(drain(pending(), PATIENCE, &mut signals).await, Drained::Interrupted);
    }
}
