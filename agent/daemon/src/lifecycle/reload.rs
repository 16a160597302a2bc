//! SIGHUP.

use std::path::PathBuf;
use std::sync::Arc;

use tenure_stores::settings::Broken;
use tracing::{error, info, warn};

use crate::config::{Change, Config, Environment, Flags, changes, load};
use crate::policy::SharedPolicy;
use crate::telemetry::Metrics;
use crate::telemetry::log::Log;

/// The parts that a reload needs and changes.
pub struct Reload {
    /// As on the command line of this process.
    pub flags: Flags,
    /// As this process was started with.
    pub environment: Environment,
    /// The configuration in effect.
    pub config: Config,
    /// The files that it was read from last.
    pub files: Vec<PathBuf>,
    /// Whose filter may change.
    pub log: Log,
    /// Whose rules may change.
    pub policy: SharedPolicy,
    pub metrics: Arc<Metrics>,
}

impl Reload {
    /// Reads the configuration again, and logs what that changes. What can change while the agent runs
    /// does; of the rest it says that it takes a restart. With a wrong configuration nothing changes.
    ///
    /// A log filter that was set for the time being stays, unless the configured one changed: then
    /// that was said later.
    pub fn reload(&mut self) {
        let loaded = match load(&self.flags, &self.environment) {
            Ok(loaded) => loaded,
            Err(wrong) => {
                let wrong = chain(&wrong);
                self.metrics.reloads.refused.inc();
                error!("configuration not reloaded, the former one stays in effect: {wrong}");
                return;
            }
        };
        let changes = changes(&self.config, &loaded.config);
        // Changed passwords, which are in effect from the next sign-in on.
        if let Err(Broken { key, rule }) = self.config.opener.reload() {
            error!("{key} {rule}");
        }
        let files = std::mem::replace(&mut self.files, loaded.files);
        if changes.iter().any(|change| change.key == "log")
            // Checked when it was loaded.
            && let Err(wrong) = self.log.filter().configure(&loaded.config.log)
        {
            error!("{wrong}");
        }
        self.policy.replace(loaded.config.policy.clone());
        self.config.take_reloadable(loaded.config);
        loaded.warnings.iter().for_each(|warning| warn!("{warning}"));
        self.metrics.reloads.done.inc();
        report(&files, &self.files, changes);
    }
}

fn report(files_before: &[PathBuf], files_now: &[PathBuf], changes: Vec<Change>) {
    for file in files_now.iter().filter(|file| !files_before.contains(file)) {
        info!(file = %file.display(), "configuration file added");
    }
    for file in files_before.iter().filter(|file| !files_now.contains(file)) {
        info!(file = %file.display(), "configuration file gone");
    }
    let unchanged = Config::count() - changes.len();
    let (now, later): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.reloads);
    for Change { key, old, new, .. } in &now {
        info!(key, old, new, "setting changed");
    }
    for Change { key, old, new, .. } in &later {
        warn!(key, old, new, "setting not changed: it takes a restart (SIGUSR2 keeps all holds)");
    }
    let names =
        |changes: &[Change]| changes.iter().map(|change| change.key).collect::<Vec<_>>().join(", ");
    let (changed, restart) = (names(&now), names(&later));
    info!(changed, restart, unchanged, "configuration reloaded");
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
