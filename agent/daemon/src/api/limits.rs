//! Limits of the API. Every limit has a refusal.

use std::time::Duration;

use tenure_core::model::Share;

use crate::config;

/// Largest request body, bytes; more is refused with 413 `too_large`.
pub const BODY_MAX: usize = 64 * 1024;
/// Largest request head, bytes; more is refused with status 431 and closed.
pub const HEAD_MAX: usize = 16 * 1024;
/// Connections beyond a limit that are told so at the same time; more are closed without a word.
pub(super) const REFUSALS_MAX: usize = 64;

/// The part of the deadline to stop that is left for everything else when the drain is over.
const LEFT_TO_STOP: Duration = Duration::from_secs(2);

/// Limits that a deployment may want to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections. At the limit the longest idle one of the same user makes room, else the new one is
    /// refused with 429.
    pub connections: Share,
    /// Event streams; one more is refused with 429.
    pub streams: Share,
    /// From the first byte of a request, or from the connection's start, until the head is
    /// complete; then the connection is closed.
    pub head_timeout: Duration,
    /// From the head until the body is complete; then the request is refused.
    pub body_timeout: Duration,
    /// How long a connection is kept between requests.
    pub idle_timeout: Duration,
    /// How long a client may take no byte of what is written to it; then the connection is
    /// closed. An event stream that is cut off starts with a snapshot when it is back.
    pub write_timeout: Duration,
    /// How long requests and streams may go on after the shutdown signal.
    pub drain_timeout: Duration,
}

impl Limits {
    /// The configured limits; the rest as by default.
    pub fn of(config: &config::Limits) -> Limits {
        Limits {
            connections: config.connections(),
            streams: config.streams(),
            head_timeout: config.header_timeout,
            drain_timeout: config.stop_deadline.saturating_sub(LEFT_TO_STOP),
            ..Limits::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: Share::of(16_384, None),
            streams: Share::of(12_288, None),
            head_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(3),
        }
    }
}
