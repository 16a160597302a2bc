//! The service manager of a unit whose program is this one; see sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3).
//!
//! It takes this process for the service, and with `NotifyAccess=main` hears nobody else. So this process passes on what the command
//! says, and variables with the process id of the service get that of the command.

#[cfg(target_os = "linux")]
mod relay;
#[cfg(not(target_os = "linux"))]
#[path = "service/no_relay.rs"]
mod relay;

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::time::Duration;

use tokio::time::sleep;

use self::relay::{Manager, Relay};

/// Variables that are meant for the process with this id alone.
const OF_ONE_PROCESS: [&str; 3] = ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];

/// A shorter wait is not told.
const SILENT: Duration = Duration::from_secs(2);
/// How often the manager is told of a wait.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The same for a manager with a watchdog in a hurry.
const TELL_EVERY_MIN: Duration = Duration::from_millis(100);
/// The manager is asked to wait so long for the next word of a wait.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time of the command for its start after a wait, at least: systemd's default.
const START: Duration = Duration::from_secs(90);

/// This process as a service.
pub(super) struct Service {
    manager: Option<Manager>,
    relay: Option<Relay>,
    /// The manager was told of a wait.
    has_waited: Cell<bool>,
}

/// Variables that the command gets in place of those of this process.
pub(super) struct Environment {
    /// The address of its service manager.
    pub(super) notify_socket: Option<OsString>,
    /// Variables that get the command's process id.
    pub(super) own_pid: Vec<&'static str>,
}

impl Service {
    /// Looks in the environment.
    pub(super) fn find() -> Service {
        Service { manager: Manager::find(), relay: None, has_waited: Cell::new(false) }
    }

    /// While this process waits for its hold: keeps the manager from taking it for one that hangs. Never ends.
    pub(super) async fn wait(&self, what: &str) -> Infallible {
        let Some(manager) = &self.manager else { return std::future::pending().await };
        // Half of the time of the watchdog, as sd_watchdog_enabled(3) advises.
        let longest = watchdog()
            .map_or(TELL_EVERY, |watchdog| (watchdog / 2).clamp(TELL_EVERY_MIN, TELL_EVERY));
        pause(longest.min(SILENT)).await;
        loop {
            self.has_waited.set(true);
            // WATCHDOG=1 would have the watchdog watch a command that has not said that it is ready. This lengthens its time as well.
            manager.tell(&words("waiting for", what, PATIENCE));
            pause(longest).await;
        }
    }

    /// The wait is over: the command is to start.
    pub(super) fn hand_over(&mut self, what: &str) -> Environment {
        let own_pid = OF_ONE_PROCESS.into_iter().filter(|variable| names_this(variable)).collect();
        let own_words = self.has_waited.get().then(|| words("running with", what, START));
        // Without a socket the command speaks with the manager itself, as far as that hears it.
        let relay = |manager| Relay::start(manager, own_words).ok();
        self.relay = self.manager.take().and_then(relay);
        Environment { notify_socket: self.relay.as_ref().map(Relay::address), own_pid }
    }

    /// The command has ended: passes on its last words.
    pub(super) fn end(self) {
        if let Some(relay) = self.relay {
            relay.end();
        }
    }
}

fn words(state: &str, what: &str, time: Duration) -> String {
    format!("STATUS={state} {what}\nEXTEND_TIMEOUT_USEC={}", time.as_micros())
}

/// True if the value of the variable is the id of this process.
fn names_this(variable: &str) -> bool {
    let own = std::process::id().to_string();
    cfg!(target_os = "linux") && std::env::var_os(variable).is_some_and(|pid| *pid == *own)
}

/// The time of the manager's watchdog, if that watches this process.
fn watchdog() -> Option<Duration> {
    let time: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    let is_ours = names_this("WATCHDOG_PID") || std::env::var_os("WATCHDOG_PID").is_none();
    (is_ours && time > 0).then(|| Duration::from_micros(time))
}

async fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the pace of what is said while waiting")]
    sleep(time).await;
}
