//! Signals that mean something to the agent.

use std::io;
use std::pin::Pin;

use futures_core::Stream;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook_tokio::SignalsInfo;

/// The meaning of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, SIGINT: release everything and exit.
    Stop,
    /// SIGUSR2: exit and keep the holds for the next agent.
    Restart,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// The signals of this process, from now on.
pub struct Signals(SignalsInfo);

impl Signals {
    /// Takes over the signals. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals(SignalsInfo::new([SIGTERM, SIGINT, SIGUSR2, SIGHUP])?))
    }

    /// The next one. Several of the same sort in quick succession may count as one.
    pub async fn next(&mut self) -> Signal {
        loop {
            match std::future::poll_fn(|context| Pin::new(&mut self.0).poll_next(context)).await {
                Some(SIGUSR2) => return Signal::Restart,
                Some(SIGHUP) => return Signal::Reload,
                Some(_) => return Signal::Stop,
                // Comes only after a close through a handle, and none was given away.
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // The only test of this crate that raises signals: they go to the whole process.
    #[tokio::test]
    async fn each_has_its_meaning() {
        let mut signals = Signals::listen().unwrap();
        for (raised, meant) in [
            (SIGHUP, Signal::Reload),
            (SIGUSR2, Signal::Restart),
            (SIGTERM, Signal::Stop),
            (SIGINT, Signal::Stop),
        ] {
            signal_hook::low_level::raise(raised).unwrap();
            let next = tokio::time::timeout(Duration::from_secs(20), signals.next()).await;
            assert_eq!(next.unwrap(), meant);
        }
    }
}
