//! The embedded store as an upstream that can be configured. It has no keys.

use std::path::Path;
use std::sync::Arc;

use tenure_core::engine::EngineSettings;

use crate::journal::{Ahead, Thread};
use crate::settings::secret::Credentials;
use crate::settings::{Broken, OpenError, Opened, Opener, Place, Refusal, Settings};

/// Ended claims that are remembered: calls take effect in the turn in which they are sent, so that no copy of
/// them can be late.
const TOMBSTONES_MAX: usize = 16_384;

#[derive(Debug, Clone, Copy)]
struct EmbeddedSettings;

/// The settings of the embedded store.
pub fn settings() -> Box<dyn Settings> {
    Box::new(EmbeddedSettings)
}

impl Settings for EmbeddedSettings {
    fn kind(&self) -> &'static str {
        "embedded"
    }

    fn guarantee(&self) -> &'static str {
        super::GUARANTEE
    }

    fn example(&self) -> &'static str {
        "\"embedded:\""
    }

    fn set_url(&mut self, scheme: &str, rest: &str) -> Option<Result<(), Refusal>> {
        (scheme == "embedded").then(|| match rest {
            "" => Ok(()),
            _ => Err("embedded: takes nothing after the colon".to_owned()),
        })
    }

    fn url(&self) -> String {
        "embedded:".to_owned()
    }

    fn resolve(&self, _: Option<&Path>, _: &Credentials) -> Result<Arc<dyn Opener>, Broken> {
        Ok(Arc::new(EmbeddedSettings))
    }

    fn boxed(&self) -> Box<dyn Settings> {
        Box::new(EmbeddedSettings)
    }
}

impl Opener for EmbeddedSettings {
    fn open(&self, place: Place<'_>) -> Result<Opened, OpenError> {
        let Place { runtime_dir, state_dir, boot_id, now, wall_clock_us, catch_up } = place;
        let engine = EngineSettings { tombstones_max: TOMBSTONES_MAX, ..EngineSettings::default() };
        let place = super::Place { boot_id, now, wall_clock_us, ahead: Ahead::default(), engine };
        let opened = super::open(runtime_dir, state_dir, place, catch_up, |disk| {
            Ok(Box::new(Thread::start(disk)?))
        })?;
        Ok(Opened { store: Box::new(opened.store), journal: opened.journal, saved: opened.saved })
    }
}
