//! The signals that reach the wrapper, as one stream.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use super::kernel;

/// Passed on to the command. Those of a terminal's job control are in it because this process, not
/// the command, is what a shell knows.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Ends a wait.
pub(super) fn ends_wait(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT)
}

/// Signals that came. Dropping it does not restore their default action.
pub(super) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Takes all signals of interest, SIGCHLD among them. One that whoever started this process
    /// had ignored (`nohup`) stays ignored, here and in the command.
    ///
    /// # Errors
    ///
    /// The system's error; there is none for these signals.
    pub(super) fn install() -> io::Result<Signals> {
        let mut streams = Vec::with_capacity(PASSED_ON.len() + 1);
        for signal in PASSED_ON.into_iter().chain([Signal::SIGCHLD]) {
            if signal == Signal::SIGCHLD || !kernel::is_ignored(signal) {
                streams.push((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
            }
        }
        Ok(Signals { streams })
    }

    /// The next one. Those of a kind that come together count once. Dropping the future loses
    /// nothing.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}
