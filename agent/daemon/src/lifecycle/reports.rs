//! Reports to the service manager while the agent lives.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use tenure_host::service_manager::Notifier;
use tenure_wire::UpstreamState;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;

use crate::api::SelfProbe;
use crate::heart::{Handle, Probe};

/// How long the first answer may take before it is asked for again.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether the status has changed, and how long the heart may take to say.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// Signs of life for each time that the watchdog waits, so that one may fail.
const SIGNS_PER_WATCHDOG: u32 = 3;
/// Characters of an error in the status line.
const ERROR_CHARS_MAX: usize = 200;

/// Tells the service manager that the agent is ready, how it is, and that it is alive.
///
/// Takes answers of the agent to itself, emits messages to the service manager, and goes on until it is
/// aborted. Ends at once where no service manager listens.
pub struct Reports {
    /// The way to the service manager.
    pub notifier: Notifier,
    /// How long that waits for a sign of life.
    pub watchdog: Option<Duration>,
    /// `embedded` or `redis`.
    pub upstream: String,
    /// The way into the API.
    pub probe: SelfProbe,
    /// The way to the heart.
    pub handle: Handle,
}

impl Reports {
    /// See [`Reports`].
    pub async fn run(self) {
        let Reports { notifier, watchdog, upstream, mut probe, handle } = self;
        if !notifier.is_heard() {
            return;
        }
        while let Err(error) = probe.ask(FIRST_PATIENCE).await {
            warn!(%error, cause = error.source(), "not ready yet");
            pause().await;
        }
        notifier.ready();
        tokio::join!(
            watch(&notifier, watchdog, &mut probe),
            tell_status(&notifier, &upstream, &handle)
        );
    }
}

/// So that an API that refuses at once is not asked without end.
#[expect(clippy::disallowed_methods, reason = "paces attempts; a machine that sleeps starts later")]
async fn pause() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Gives signs of life, each only after the API has answered and the heart has taken a turn.
async fn watch(notifier: &Notifier, watchdog: Option<Duration>, probe: &mut SelfProbe) {
    let Some(watchdog) = watchdog else { return };
    let every = watchdog / SIGNS_PER_WATCHDOG;
    // Stops while the machine sleeps, and so does the service manager's watchdog.
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match probe.ask(every).await {
            Ok(()) => notifier.alive(),
            Err(error) => warn!(%error, cause = error.source(), "no sign of life for the watchdog"),
        }
    }
}

/// Tells the status when it has changed.
async fn tell_status(notifier: &Notifier, upstream: &str, handle: &Handle) {
    let mut told = String::new();
    let mut ticks = interval(STATUS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let status = match timeout(STATUS_EVERY, handle.probe()).await {
            Ok(Ok(probe)) => status(upstream, &probe),
            // The agent is stopping.
            Ok(Err(_)) => return,
            Err(_) => "the heart does not answer".to_owned(),
        };
        if status != told {
            notifier.status(status.clone());
            told = status;
        }
    }
}

fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// `redis up; 12 sessions, 9 holds, 3 waiting`
fn status(upstream: &str, probe: &Probe) -> String {
    let state = match probe.health.state {
        UpstreamState::Connecting => "connecting",
        UpstreamState::Up => "up",
        UpstreamState::Down => "down",
        UpstreamState::Quarantined => "quarantined",
    };
    let mut text = format!("{upstream} {state}");
    if let Some(error) = &probe.health.last_error
        && probe.health.state != UpstreamState::Up
    {
        // A control character could start another assignment.
        let error = error.chars().map(|c| if c.is_control() { ' ' } else { c });
        text.push_str(": ");
        text.extend(error.take(ERROR_CHARS_MAX));
    }
    let [held, jeopardy, waiting] =
        [0, 1, 2].map(|state| probe.holds.iter().map(|of_kind| of_kind[state]).sum::<u64>());
    let (sessions, holds) = (probe.sessions, held + jeopardy);
    // Never fails on a String.
    let _ = write!(text, "; {}, {}", counted(sessions, "session"), counted(holds, "hold"));
    if jeopardy > 0 {
        let _ = write!(text, " ({jeopardy} in jeopardy)");
    }
    let _ = write!(text, ", {waiting} waiting");
    text
}

#[cfg(test)]
mod tests {
    use tenure_stores::Health;

    use super::*;

    fn probe(state: UpstreamState, last_error: Option<&str>, holds: [[u64; 3]; 4]) -> Probe {
        let health = Health { last_error: last_error.map(str::to_owned), ..Health::of(state) };
        Probe { health, lateness: Default::default(), latency: None, sessions: 12, holds }
    }

    #[test]
    fn the_status_is_one_line() {
        let holds = [[4, 0, 1], [5, 0, 0], [0, 0, 2], [0, 0, 0]];
        let up = probe(UpstreamState::Up, Some("of yesterday"), holds);
        assert_eq!(status("redis", &up), "redis up; 12 sessions, 9 holds, 3 waiting");
        let holds = [[0, 2, 0], [7, 0, 0], [0, 0, 0], [0, 0, 0]];
        let down = probe(UpstreamState::Down, Some("Connection refused\nREADY=1"), holds);
        assert_eq!(
            status("redis", &down),
            "redis down: Connection refused READY=1; 12 sessions, 9 holds (2 in jeopardy), 0 waiting"
        );
        let long = probe(UpstreamState::Connecting, Some(&"é".repeat(10_000)), holds);
        assert!(status("redis", &long).chars().count() < 300);
    }
}
