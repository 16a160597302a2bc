//! The store behind a gateway, as that one tells of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::time::Boottime;
use tenure_wire::UpstreamState;
use tokio::sync::Notify;

use crate::Health;
use crate::remote::{Behind, Reach};
use crate::settings::Settings;

/// Most characters of an error that are told and kept.
const ERROR_CHARS_MAX: usize = 1000;

/// Longest quarantine that a gateway is believed.
const QUARANTINE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The store behind a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    pub kind: String,
    pub guarantee: String,
    /// The same at every gateway that shares it; `None` of one that cannot be shared, is not known yet, or from a gateway
    /// of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Arc<str>>,
}

impl StoreInfo {
    /// A store as the settings have it.
    pub fn of(settings: &dyn Settings) -> StoreInfo {
        let (kind, guarantee) = (settings.kind().to_owned(), settings.guarantee().to_owned());
        StoreInfo { kind, guarantee, id: None }
    }
}

/// The store behind a gateway is away, or is back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreState {
    pub is_down: bool,
    /// For how long that has been so, ms.
    #[serde(default)]
    pub since_ms: u64,
    /// The reason for its being away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What is left of the store's quarantine, if the store lost data, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine_ms: Option<u64>,
}

impl StoreState {
    /// The state that a store's health shows.
    pub fn of(health: &Health, now: Boottime) -> StoreState {
        let is_down = health.state == UpstreamState::Down;
        let since = health.reach.map_or(Duration::ZERO, |reach| now.since(reach.since));
        let since_ms = whole_ms(since);
        let quarantine_ms = health.grants_at.map(|at| whole_ms(at.since(now)));
        let error = health.last_error.as_deref().filter(|_| is_down);
        StoreState { is_down, since_ms, error: error.map(short), quarantine_ms }
    }

    pub(super) fn is_up(&self) -> bool {
        !self.is_down
    }

    /// True if a reader of `other` needs no news of this state. The rest of a quarantine is always news: a loss that is
    /// found later may prolong the quarantine.
    pub fn says_the_same(&self, other: &StoreState) -> bool {
        let none = [self, other].map(|it| it.quarantine_ms) == [None; 2];
        none && (self.is_down, &self.error) == (other.is_down, &other.error)
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn short(error: &str) -> String {
    error.chars().take(ERROR_CHARS_MAX).collect()
}

/// A gateway's word to this agent, as long as the stream lasts on which it came.
#[derive(Debug, Default)]
pub(super) struct BehindGateway {
    told: Mutex<Option<Behind>>,
    went_down: Notify,
}

/// Forgets what was told when it is dropped.
pub(super) struct UntilEnd(Arc<BehindGateway>);

impl Drop for UntilEnd {
    fn drop(&mut self) {
        *self.0.told.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl BehindGateway {
    /// A word holds as long as this is kept.
    pub(super) fn until_end(self: Arc<Self>) -> UntilEnd {
        UntilEnd(self)
    }

    /// Takes the word of a gateway with a store of this kind.
    pub(super) fn told(&self, now: Boottime, kind: &str, state: &StoreState) {
        let StoreState { is_down, since_ms, error, quarantine_ms } = state;
        let since = now.before(Duration::from_millis(*since_ms));
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.as_ref().map(|told| told.reach);
        let mut reach = before.unwrap_or_else(|| Reach::lost(since));
        reach.change(since, !is_down);
        let error = error.as_deref().map(short);
        let grants_at =
            quarantine_ms.as_ref().map(|ms| now + Duration::from_millis(*ms).min(QUARANTINE_MAX));
        *told = Some(Behind { kind: short(kind), reach, error, grants_at });
        if *is_down {
            self.went_down.notify_one();
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.get().is_some_and(|behind| !behind.reach.is_reached)
    }

    /// Waits until it is told to be away. For one that waits.
    pub(super) async fn went_down(&self) {
        self.went_down.notified().await;
    }

    pub(super) fn get(&self) -> Option<Behind> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_away_since_the_gateway_says_so_until_the_stream_ends() {
        let at = |s: u64| Boottime::from_nanos(s * 1_000_000_000);
        let behind = Arc::new(BehindGateway::default());
        let tell = |s, is_down, since_ms, error: &str| {
            let error = Some(error.to_owned());
            let state = StoreState { is_down, since_ms, error, quarantine_ms: None };
            behind.told(at(s), "redis", &state);
            behind.get().expect("it was told")
        };
        assert_eq!(behind.get(), None);
        let stream = Arc::clone(&behind).until_end();
        let told = tell(110, true, 2000, &"x".repeat(ERROR_CHARS_MAX + 1));
        assert_eq!(told.error.map(|error| error.len()), Some(ERROR_CHARS_MAX));
        let told = tell(111, true, 2000, "refused");
        assert_eq!((told.reach.is_reached, told.reach.since), (false, at(108)));
        assert_eq!(told.error.as_deref(), Some("refused"));
        let outage = tell(120, false, 1000, "").reach.outage.expect("it was away");
        assert_eq!((outage.began, outage.ended), (at(108), at(119)));
        drop(stream);
        assert_eq!(behind.get(), None, "nobody says so any more");
    }
}
