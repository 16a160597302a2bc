//! The part of the configuration that the keeper must know.

use std::sync::Arc;
use std::time::Duration;

use tenure_wire::Kind;

use super::ended::REMEMBERED_MAX;
use super::presence::Presence;
use crate::model::Share;

/// How long something lives without a beat, and how often it is beaten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// Outlives its last beat by this.
    pub ttl: Duration,
    /// Beaten this often.
    pub beat: Duration,
}

/// Bounds and defaults of everything that a client may ask for. Checked by `config` before it gets
/// here: `ttl > 2 × beat`, `margin < ttl`, `beat ≥ 100 ms`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The host's name as other hosts see it.
    pub host: Arc<str>,
    /// The agent's own user, who sees everything, as root does.
    pub agent_uid: u32,
    /// Default of announced sessions.
    pub session: Rhythm,
    /// Default of masters.
    pub master: Rhythm,
    /// Default of leaders.
    pub leader: Rhythm,
    /// Default of leases.
    pub lease: Rhythm,
    /// Default of semaphores.
    pub semaphore: Rhythm,
    /// Default grace of a lease.
    pub grace: Duration,
    /// Default of keepalive tethers.
    pub keepalive: Duration,
    /// Default of connection tethers.
    pub linger: Duration,
    /// Shortest ttl a client may ask for.
    pub ttl_min: Duration,
    /// Longest ttl, grace, keepalive or linger a client may ask for.
    pub ttl_max: Duration,
    /// Part of the safety margin that does not depend on the ttl; at least 10 ms.
    pub margin_floor: Duration,
    /// The other part: ttl divided by this; at most 200.
    pub margin_divisor: u32,
    /// Asks again about contended resources this often, in case a hint was lost. `None` when the
    /// upstream's hints cannot be lost.
    pub poll: Option<Duration>,
    /// First wait before a failed call is tried again; doubles up to `retry_max`.
    pub retry_min: Duration,
    /// Longest wait before a failed call is tried again.
    pub retry_max: Duration,
    /// How long an ended hold answers `hold_lost`, and its request id the same hold.
    pub remember: Duration,
    /// Most sessions in all.
    pub sessions_max: usize,
    /// Most sessions of one user; see [`Share::of`].
    pub sessions_per_uid_max: Option<usize>,
    /// Most holds, waiting ones counted, in all.
    pub holds_max: usize,
    /// Most holds of one user; unless said otherwise see [`Share::of`], but at most 50 000.
    pub holds_per_uid_max: Option<usize>,
    /// Events kept for replay, per session.
    pub ring_max: usize,
    /// Bytes of the events that are kept for all sessions; read at the start alone.
    pub rings_bytes_max: usize,
    /// Ended holds and sessions that are remembered; read at the start alone.
    pub remembered_max: usize,
    /// The agent itself, for those who ask which agents there are; read at the start alone. `None` tells of nobody.
    pub presence: Option<Presence>,
}

/// Most holds of one user by default: with the longest names and attributes they take 150 MiB.
const HOLDS_PER_UID_MAX: usize = 50_000;
/// Most event streams of a session.
pub const STREAMS_PER_SESSION_MAX: usize = 4;
/// Most beats in one request to the upstream.
pub const BEATS_PER_CALL_MAX: usize = crate::model::BEATS_MAX;
/// Shortest time between two beats.
pub const BEAT_MIN: Duration = Duration::from_millis(100);

impl Settings {
    /// The default rhythm of a kind.
    pub fn rhythm(&self, kind: Kind) -> Rhythm {
        match kind {
            Kind::Master => self.master,
            Kind::Leader => self.leader,
            Kind::Lease => self.lease,
            Kind::Semaphore => self.semaphore,
        }
    }

    /// How many sessions there may be.
    pub fn sessions(&self) -> Share {
        Share::of(self.sessions_max, self.sessions_per_uid_max)
    }

    /// How many holds there may be, waiting ones counted.
    pub fn holds(&self) -> Share {
        let Share { max, per_uid } = Share::of(self.holds_max, self.holds_per_uid_max);
        match self.holds_per_uid_max {
            Some(_) => Share { max, per_uid },
            None => Share { max, per_uid: per_uid.min(HOLDS_PER_UID_MAX) },
        }
    }

    /// How long to wait after so many failures in a row.
    pub fn back_off(&self, failures: u32) -> Duration {
        let doubled = self.retry_min.saturating_mul(1 << failures.min(16));
        doubled.min(self.retry_max)
    }

    /// How much earlier than the upstream a holder must stop: `ttl / 200 + 10 ms` unless configured
    /// more careful. Covers clocks that run at different speeds, and the time to act on it.
    pub fn margin(&self, ttl: Duration) -> Duration {
        ttl / self.margin_divisor + self.margin_floor
    }
}

impl Default for Settings {
    fn default() -> Settings {
        let rhythm =
            |ttl, beat| Rhythm { ttl: Duration::from_secs(ttl), beat: Duration::from_secs(beat) };
        Settings {
            host: Arc::from("localhost"),
            agent_uid: 0,
            session: rhythm(90, 30),
            master: rhythm(90, 30),
            leader: rhythm(30, 10),
            lease: rhythm(300, 60),
            semaphore: rhythm(30, 10),
            grace: Duration::from_secs(60),
            keepalive: Duration::from_secs(30),
            linger: Duration::from_secs(3),
            ttl_min: Duration::from_millis(300),
            ttl_max: Duration::from_secs(24 * 3600),
            margin_floor: Duration::from_millis(10),
            margin_divisor: 200,
            poll: None,
            retry_min: Duration::from_millis(50),
            retry_max: Duration::from_secs(2),
            remember: Duration::from_secs(60),
            sessions_max: 20_000,
            sessions_per_uid_max: None,
            holds_max: 200_000,
            holds_per_uid_max: None,
            ring_max: 256,
            rings_bytes_max: 32 * 1024 * 1024,
            remembered_max: REMEMBERED_MAX,
            presence: None,
        }
    }
}
