//! The store's health, for those who ask often: one look serves all of a moment.

use std::sync::Arc;
use std::time::Duration;

use tenure_host::clock;
use tenure_stores::gateway::behind::StoreState;
use tenure_wire::UpstreamState;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::Store;

/// A look is good for so long.
const GOOD_FOR: Duration = Duration::from_millis(50);
/// How long the store may take to connect, and its thread to say so.
const WITHIN: Duration = Duration::from_secs(1);
/// Between two looks while it connects.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The error of a store that has taken longer.
const SILENT: &str = "the gateway is still connecting to it";

/// The latest look.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Option<(Instant, Seen)>>);

/// The id of the store, if it is known, and what has become of it.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub id: Option<Arc<str>>,
    pub state: StoreState,
}

impl Store {
    /// How the store does.
    pub async fn seen(&self) -> Seen {
        let mut latest = self.known.0.lock().await;
        if let Some((at, seen)) = &*latest
            && at.elapsed() < GOOD_FOR
        {
            return seen.clone();
        }
        let seen = timeout(WITHIN, self.connected()).await.unwrap_or_else(|_| Seen {
            id: None,
            state: StoreState {
                is_down: true,
                error: Some(SILENT.to_owned()),
                ..StoreState::default()
            },
        });
        *latest = Some((Instant::now(), seen.clone()));
        seen
    }

    /// The same once it has connected to its store, or could not.
    async fn connected(&self) -> Seen {
        loop {
            let Ok(health) = self.health().await else { return Seen::default() };
            if health.state != UpstreamState::Connecting {
                let state = StoreState::of(&health, clock::now());
                return Seen { id: health.store_id, state };
            }
            rest(LOOK_AGAIN).await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a machine that sleeps connects later")]
async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}
