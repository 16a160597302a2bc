//! The service manager that started this process, if one did: what it handed over, and how to tell
//! it how the agent is.
//!
//! systemd takes the Cargo feature `systemd`, launchd is there on macOS; without either the same
//! interface does nothing, so that nobody else has to ask which it is.

#[cfg(any(not(feature = "systemd"), test))]
mod absent;
// Compiled in tests everywhere, so that it cannot rot where it is not used.
#[cfg(any(target_os = "macos", test))]
mod launchd;
#[cfg_attr(
    not(any(feature = "systemd", test)),
    expect(
        dead_code,
        reason = "nobody listens; compiled everywhere, so that there is one Notifier"
    )
)]
mod notifier;
#[cfg(feature = "systemd")]
mod systemd;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

pub use notifier::Notifier;
use tenure_core::model::SessionId;

/// The name of the API's socket, in a socket unit (FileDescriptorName=) and in a launchd plist.
#[cfg(any(feature = "systemd", target_os = "macos"))]
const API: &str = "api";

/// Things that the service manager gave to this process, and the way back to it.
pub struct Handed {
    /// The API's socket, not looked at yet: see [`crate::socket::adopt`].
    pub listener: Option<OwnedFd>,
    /// Handles on the processes of sessions, which an earlier agent had kept.
    pub processes: HashMap<SessionId, OwnedFd>,
    /// The way back.
    pub notifier: Notifier,
    /// How long the service manager waits for a sign of life before it kills the agent.
    pub watchdog: Option<Duration>,
    /// Lines to be logged once there is a log.
    pub notices: Vec<String>,
}

/// Why what was handed over cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// It is taken from the environment, which other threads may read.
    #[error("what the service manager hands over must be taken before threads are started")]
    Threads,
    /// The variables are wrong, or name descriptors that are not there.
    #[error(
        "cannot take what systemd handed over: {variables} are wrong; start the agent by its units, or unset them"
    )]
    Environment {
        /// The variables.
        variables: &'static str,
        source: io::Error,
    },
    /// The system refused a thread, or does not tell of threads.
    #[error("cannot start the thread that speaks with the service manager")]
    Thread(#[source] io::Error),
    /// launchd refused.
    #[error("launchd does not hand over the socket \"api\": see Sockets in launchd.plist(5)")]
    Launchd(#[source] io::Error),
}

/// Takes what the service manager handed over, and its variables out of the environment. To be called
/// once, before any thread is started.
///
/// # Errors
///
/// See [`HandoverError`].
pub fn take() -> Result<Handed, HandoverError> {
    #[cfg(feature = "systemd")]
    return systemd::take();
    #[cfg(not(feature = "systemd"))]
    Ok(Handed {
        #[cfg(target_os = "macos")]
        listener: launchd::activate(API).map_err(HandoverError::Launchd)?,
        #[cfg(not(target_os = "macos"))]
        listener: None,
        processes: HashMap::new(),
        notifier: Notifier::silent(),
        watchdog: None,
        notices: absent::notice(|name| std::env::var_os(name), std::process::id())
            .into_iter()
            .collect(),
    })
}
