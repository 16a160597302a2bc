//! SIGHUP.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use tenure_host::signals::{Signal, Signals};
use tenure_service::telemetry::log::Log;
use tenure_stores::settings::Broken;
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::access::{Keys, Stamp};
use crate::face::Face;
use crate::metrics::Metrics;
use crate::settings::{Change, Environment, Flags, Settings, changes, load};
use crate::tls::Tls;

/// The parts that a reload needs and changes.
pub struct Reload {
    /// As on the command line of this process.
    pub flags: Flags,
    /// As this process was started with.
    pub environment: Environment,
    /// The settings in effect.
    pub settings: Settings,
    /// Whose filter may change.
    pub log: Log,
    pub metrics: Arc<Metrics>,
    /// The state of the file of keys when it was read last.
    pub stamp: Option<Stamp>,
    pub tls: Option<Arc<Tls>>,
}

/// How often the file of keys is looked at. A stream looks every second whether its key is good: together
/// that is less than the 5 s in which a key that was taken out must end.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Reload {
    /// Waits for the next signal, and meanwhile follows changes of the file of keys.
    pub async fn next_signal(&mut self, signals: &mut Signals, face: &Face) -> Signal {
        loop {
            if let Ok(signal) = timeout(LOOK_EVERY, signals.next()).await {
                return signal;
            }
            if let Some(tls) = &self.tls {
                tls.look().await;
                self.metrics.certificate_expires.set(tls.expires_at());
            }
            // One stamp may stand for two states of a file that changed twice at once; SIGHUP reads it anyway.
            let place = self.settings.file_of_keys();
            if place.and_then(|place| Stamp::of(&place.path)) != self.stamp {
                match self.read_keys() {
                    Ok(Some(keys)) => face.take_keys(keys),
                    Ok(None) => {}
                    Err(error) => error!("the keys stay as they were: {error:#}"),
                }
            }
        }
    }

    /// Reads the settings and the keys again. With anything wrong in them nothing changes.
    pub fn reload(&mut self, face: &Face) {
        face.trail.reopen();
        match self.try_reload(face) {
            Ok(()) => self.metrics.reloads.done.inc(),
            Err(error) => {
                error!("not reloaded, the former settings and keys stay in effect: {error:#}");
                self.metrics.reloads.refused.inc()
            }
        };
    }

    fn try_reload(&mut self, face: &Face) -> anyhow::Result<()> {
        let loaded = load(&self.flags, &self.environment)?;
        // Another file of keys takes a restart, as every other path does.
        let keys = self.read_keys()?;
        // Before the files with passwords are read again.
        let changes = changes(&self.settings, &loaded.config);
        // As before all else that takes effect, which is not undone.
        let refused = |Broken { key, rule }| anyhow!("{key} {rule}");
        self.settings.opener.reload().map_err(refused)?;
        if let Some(tls) = &self.tls {
            tls.reload()?;
        }
        for Change { key, old, new, reloads } in changes {
            if reloads {
                info!(key, old, new, "setting changed");
            } else {
                warn!(key, old, new, "setting not changed: it takes a restart");
            }
        }
        self.log.filter().configure(&loaded.config.log)?;
        self.settings.log = loaded.config.log;
        loaded.warnings.iter().for_each(|warning| warn!("{warning}"));
        if let Some(keys) = keys {
            face.take_keys(keys);
        }
        Ok(())
    }

    fn read_keys(&mut self) -> anyhow::Result<Option<Keys>> {
        let Some(place) = self.settings.file_of_keys() else { return Ok(None) };
        // Before it is read: what changes meanwhile is noticed.
        self.stamp = Stamp::of(&place.path);
        place.read().map(Some)
    }
}
