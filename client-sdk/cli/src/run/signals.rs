//! The signals that reach the wrapper, as one stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use futures_core::Stream;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use signal_hook_tokio::SignalsInfo;
use tokio::task::yield_now;

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

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) signal: Signal,
    pub(super) sender: Sender,
}

/// The origin of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// The kernel, for the terminal: the whole group heard it.
    Kernel,
    /// A process, perhaps to this one alone.
    Process(Pid),
    /// One that came before the command was there.
    Unknown,
}

/// Ends a wait.
pub(super) fn ends_wait(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT)
}

/// Signals that came. Dropping it does not restore their default action.
pub(super) struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    /// Takes all signals of interest, SIGCHLD among them. One that whoever started this process
    /// had ignored (`nohup`) stays ignored, here and in the command.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(super) fn install() -> io::Result<Signals> {
        let is_heard = |signal: &Signal| *signal == Signal::SIGCONT || !kernel::is_ignored(*signal);
        let heard = PASSED_ON.into_iter().filter(is_heard).chain([Signal::SIGCHLD]);
        Ok(Signals(SignalsInfo::new(heard.map(|signal| signal as i32))?))
    }

    /// The next one. Some of a kind that come together may count once. Dropping the future loses
    /// nothing.
    pub(super) async fn next(&mut self) -> Arrival {
        loop {
            let Some(origin) = poll_fn(|context| Pin::new(&mut self.0).poll_next(context)).await
            else {
                // Comes only after a close through a handle, and none was given away.
                return std::future::pending().await;
            };
            if let Ok(signal) = Signal::try_from(origin.signal) {
                let sender = match (origin.cause, origin.process) {
                    (Cause::Sent(_), Some(process)) => Sender::Process(Pid::from_raw(process.pid)),
                    (Cause::Sent(_), None) => Sender::Unknown,
                    _ => Sender::Kernel,
                };
                return Arrival { signal, sender };
            }
        }
    }

    /// One that has come already.
    pub(super) async fn waiting(&mut self) -> Option<Arrival> {
        tokio::select! {
            biased;
            arrival = self.next() => Some(arrival),
            // In which the runtime looks once at what has come.
            () = yield_now() => None,
        }
    }
}
