//! Keys in the store: read when they change, and their uses told.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::Failure;
use tenure_core::time::Boottime;
use tenure_host::clock;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::access::{StoreKeys, now};
use crate::face::Face;

/// How often the store is asked whether keys have changed. A stream looks every second whether its key is good:
/// together that is less than the 5 s in which a key that was taken out must end.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often all keys are read although none has changed.
const READ_EVERY: Duration = Duration::from_secs(60);
/// How old a use may be that the store does not know of.
const TELL_USES_EVERY: Duration = Duration::from_secs(60);

/// The way of a gateway to the keys in its store. Never ends by itself. While the store is away, the keys are those
/// that were read last.
pub struct Follow {
    pub keys: StoreKeys,
    pub face: Arc<Face>,
    version: Option<String>,
    read_at: Boottime,
    /// Its failure has been logged.
    is_away: bool,
}

impl Follow {
    pub fn new(keys: StoreKeys, face: Arc<Face>) -> Follow {
        Follow { keys, face, version: None, read_at: Boottime::ZERO, is_away: false }
    }

    pub async fn run(mut self) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look().await;
            let uses = self.face.access.uses(now(), TELL_USES_EVERY.as_secs());
            if !uses.is_empty()
                && let Err(failure) = self.keys.used(uses).await
            {
                warn!("uses of keys were not noted in the store: {}", failure.cause());
            }
        }
    }

    /// Reads the keys if they have changed.
    pub async fn look(&mut self) {
        match self.try_look().await {
            Ok(()) => {
                self.face.access.set_doubtful(false);
                if std::mem::take(&mut self.is_away) {
                    info!("the keys in the store can be read again");
                }
            }
            Err(failure) => {
                self.face.access.set_doubtful(true);
                if !std::mem::replace(&mut self.is_away, true) {
                    warn!(
                        "the keys stay as they were, and others are answered with 503, until the store answers: {}",
                        failure.cause()
                    );
                }
            }
        }
    }

    async fn try_look(&mut self) -> Result<(), Failure> {
        // Before the keys: what changes meanwhile is noticed by the next look.
        let version = self.keys.version().await?;
        let now = clock::now();
        let is_known = self.version.as_ref() == Some(&version);
        if is_known && now.since(self.read_at) < READ_EVERY {
            return Ok(());
        }
        self.face.read_keys(&self.keys, self.version.is_none()).await?;
        self.version = Some(version);
        self.read_at = now;
        Ok(())
    }
}
