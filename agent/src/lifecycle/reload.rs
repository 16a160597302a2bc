//! SIGHUP.

use tracing::{error, info, warn};

use crate::config::{Config, Environment, Flags, SharedPolicy, load};
use crate::telemetry::log::Log;

/// What a reload needs, and what it changes.
pub struct Reload {
    /// As on the command line of this process.
    pub flags: Flags,
    /// As this process was started with.
    pub environment: Environment,
    /// What is in effect.
    pub config: Config,
    /// Whose level may change.
    pub log: Log,
    /// Whose rules may change.
    pub policy: SharedPolicy,
}

impl Reload {
    /// Reads the configuration again. What can change while the agent runs does; of the rest it
    /// says that it takes a restart. With a wrong configuration nothing changes.
    pub fn reload(&mut self) {
        let new = match load(&self.flags, &self.environment) {
            Ok(loaded) => loaded.config,
            Err(wrong) => {
                let wrong = chain(&wrong);
                error!("configuration not reloaded, the former one stays in effect: {wrong}");
                return;
            }
        };
        let changes = self.config.changes(&new);
        let (now, later): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(_, now)| *now);
        let names = |keys: Vec<(&'static str, bool)>| {
            keys.into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(", ")
        };
        let (now, later) = (names(now), names(later));
        // Checked when it was loaded.
        if let Err(wrong) = self.log.set(&new.log) {
            error!("{wrong}");
        }
        self.policy.replace(new.policy.clone());
        self.config.take_reloadable(new);
        info!(changed = now, "configuration reloaded");
        if !later.is_empty() {
            warn!(keys = later, "these changes take a restart (SIGUSR2 keeps all holds)");
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
