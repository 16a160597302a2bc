//! PURE: how much is kept ahead of need.

use std::time::Duration;

/// How much is kept ahead of need.
#[derive(Debug, Clone, Copy)]
pub struct Ahead {
    /// Tokens made durable at a time. Half of them last 4 s at 30 000 grants a second, within which the
    /// disk must answer.
    pub tokens: u64,
    /// Grants of ttls up to this never wait for a note: it covers the defaults of all kinds but leases.
    pub ttl: Duration,
    /// How long a longer ttl stays noted after its last grant has ended: enough to hand a hold over.
    pub lower_after: Duration,
    /// The most that it may become. Whenever such a ttl comes back within this time it is noted twice as long
    /// the next time, so that holds that come and go do not wait for the disk each time.
    pub lower_after_max: Duration,
    /// Bytes of the journal, so that releases and renewals are written although the disk is full.
    pub space: u64,
    /// The journal is written anew when it is so many bytes longer than twice its live rows.
    pub slack: u64,
    /// Rows written anew in one turn.
    pub rows: usize,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead {
            tokens: 1 << 18,
            ttl: Duration::from_secs(30),
            lower_after: Duration::from_secs(1),
            lower_after_max: Duration::from_secs(60),
            space: 256 * 1024,
            slack: 1024 * 1024,
            rows: 64,
        }
    }
}
