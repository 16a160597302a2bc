//! The time of the host on which a node runs.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use tenure_core::time::Boottime;
use tenure_host::timer::Timer;

use crate::raft::Clock;

/// Wakes a task at an instant, also after the host slept.
pub trait Alarm: Send {
    /// Fires at that instant, at once if it has passed, or never.
    fn set(&mut self, at: Option<Boottime>);

    /// Ready when the instant has come; the alarm is then no longer set.
    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()>;
}

/// Makes alarms.
pub type Timers = Arc<dyn Fn() -> io::Result<Box<dyn Alarm>> + Send + Sync>;

impl Alarm for Timer {
    fn set(&mut self, at: Option<Boottime>) {
        Timer::set(self, at);
    }

    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Timer::poll_fired(self, context)
    }
}

/// The clock of this host, which goes on while it sleeps.
pub fn clock() -> Clock {
    Arc::new(tenure_host::clock::now)
}

/// The timers of this host.
pub fn timers() -> Timers {
    Arc::new(|| Ok(Box::new(Timer::new()?)))
}
