//! Reports to the service manager while the gateway lives.

use std::time::Duration;

use tenure_host::service_manager::Notifier;
use tenure_stores::Health;
use tenure_wire::UpstreamState;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;

use crate::store::Store;

/// How often the status is looked at, at least.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// Signs of life for each time that the watchdog waits, so that one may fail.
const SIGNS_PER_WATCHDOG: u32 = 3;
/// Characters of an error in the status line.
const ERROR_CHARS_MAX: usize = 200;

/// Tells the service manager that the gateway is ready, how it is, and that it is alive.
///
/// Takes words of the store's thread, emits messages to the service manager, and goes on until it is aborted
/// or the thread has ended. Ends at once where no service manager listens.
pub struct Reports {
    /// The way to the service manager.
    pub notifier: Notifier,
    /// How long that waits for a sign of life.
    pub watchdog: Option<Duration>,
    /// The kind of the store.
    pub kind: String,
    pub store: Store,
}

impl Reports {
    /// See [`Reports`].
    pub async fn run(self) {
        let Reports { notifier, watchdog, kind, store } = self;
        if !notifier.is_heard() {
            return;
        }
        notifier.ready();
        let every = watchdog.map_or(STATUS_EVERY, |watchdog| watchdog / SIGNS_PER_WATCHDOG);
        let every = every.clamp(Duration::from_millis(1), STATUS_EVERY);
        let mut told = String::new();
        // Stops while the machine sleeps, and so does the service manager's watchdog.
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let status = match timeout(every, store.health()).await {
                Ok(Ok(health)) => {
                    if watchdog.is_some() {
                        notifier.alive();
                    }
                    status(&kind, &health)
                }
                // The gateway is stopping.
                Ok(Err(_)) => return,
                Err(_) => {
                    warn!("no sign of life for the watchdog: the store's thread does not answer");
                    "the store's thread does not answer".to_owned()
                }
            };
            if status != told {
                notifier.status(status.clone());
                told = status;
            }
        }
    }
}

/// `redis down: Connection refused`
fn status(kind: &str, health: &Health) -> String {
    let state = match health.state {
        UpstreamState::Connecting => "connecting",
        UpstreamState::Up => return format!("{kind} up"),
        UpstreamState::Down => "down",
        UpstreamState::Quarantined => "quarantined",
    };
    let error = health.last_error.as_deref().unwrap_or_default();
    // A control character could start another assignment.
    let error = error.chars().map(|c| if c.is_control() { ' ' } else { c });
    let error: String = error.take(ERROR_CHARS_MAX).collect();
    format!("{kind} {state}{}{error}", if error.is_empty() { "" } else { ": " })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_one_line() {
        let health = |state, last_error: Option<&str>| Health {
            last_error: last_error.map(str::to_owned),
            ..Health::of(state)
        };
        let of_yesterday = health(UpstreamState::Up, Some("of yesterday"));
        assert_eq!(status("redis", &of_yesterday), "redis up");
        let down = health(UpstreamState::Down, Some("Connection refused\nREADY=1"));
        assert_eq!(status("redis", &down), "redis down: Connection refused READY=1");
        assert_eq!(status("redis", &health(UpstreamState::Connecting, None)), "redis connecting");
    }
}
