//! Limits that this machine can keep: as configured, or less where descriptors or memory do not suffice.

use tenure_core::keeper::Settings;
use tracing::warn;

use crate::config::Limits;
use crate::heart::BUFFERED_BYTES_MAX;

/// Descriptors for everything but connections and sessions: files, timers, logs.
const DESCRIPTORS_OTHER: u64 = 128;
/// So many of four descriptors for clients are for connections; the others watch processes of
/// sessions.
const CONNECTIONS_OF_FOUR: u64 = 2;
/// So many of four connections may be event streams.
const STREAMS_OF_FOUR: usize = 3;
/// Memory of the agent without any client, bytes.
const BASE_BYTES: u64 = 16 * 1024 * 1024;
/// Memory of a connection with a request, of its buffers, and of what the kernel keeps for it, bytes.
const CONNECTION_BYTES: u64 = 64 * 1024;
/// Memory of a session with long names, its page and its rows in the journal, bytes. The runtime directory
/// mostly lies in memory, too.
const SESSION_BYTES: u64 = 12 * 1024;
/// The same of a hold with long names and attributes: 3 KiB, and of its rows, which are there three times
/// while a log of twice its length is written anew, another 8 KiB.
const HOLD_BYTES: u64 = 12 * 1024;
/// The same of an ended hold with long names that is remembered, bytes.
const REMEMBERED_BYTES: u64 = 1536;
/// Parts of the memory: of so many one is for connections, and so on. Sessions and holds have the rest.
const CONNECTIONS_OF_MEMORY: u64 = 4;
const BUFFERS_OF_MEMORY: u64 = 8;
const RINGS_OF_MEMORY: u64 = 16;
const REMEMBERED_OF_MEMORY: u64 = 16;
/// For what the allocator and the kernel keep besides.
const SPARE_OF_MEMORY: u64 = 8;

/// The means that this machine has for the agent.
#[derive(Debug, Clone, Copy)]
pub struct Means {
    /// Descriptors of this process at most; `None` where the system does not tell.
    pub descriptors: Option<u64>,
    /// Memory of the machine or of this process' cgroup, bytes; `None` where the system does not tell.
    pub memory: Option<u64>,
}

impl Means {
    /// The limits that can be kept. Says which were lowered, and how to get all of them.
    pub fn fit(self, limits: &Limits, settings: &Settings) -> Fitted {
        let mut fitted = Fitted {
            limits: limits.clone(),
            settings: settings.clone(),
            buffered_bytes: BUFFERED_BYTES_MAX,
        };
        if let Some(descriptors) = self.descriptors {
            fit_descriptors(&mut fitted.limits, &mut fitted.settings, descriptors);
        }
        if let Some(memory) = self.memory {
            fit_memory(&mut fitted, memory);
        }
        fitted
    }
}

/// Limits that this machine can keep.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// The API's.
    pub limits: Limits,
    /// The keeper's.
    pub settings: Settings,
    /// Bytes that may wait for clients or come from them.
    pub buffered_bytes: usize,
}

fn fit_descriptors(limits: &mut Limits, settings: &mut Settings, descriptors: u64) {
    let quarter = descriptors.saturating_sub(DESCRIPTORS_OTHER) / 4;
    let sessions = count(quarter * (4 - CONNECTIONS_OF_FOUR));
    let cause =
        format!("the limit of open files is {descriptors}; raise it (ulimit -n, LimitNOFILE=)");
    fit_connections(limits, count(quarter * CONNECTIONS_OF_FOUR), &cause);
    lower("sessions_max", &mut settings.sessions_max, sessions, &cause);
}

fn fit_connections(limits: &mut Limits, connections: usize, cause: &str) {
    lower("connections_max", &mut limits.connections_max, connections, cause);
    let streams = (connections / 4 * STREAMS_OF_FOUR).max(1);
    lower("streams_max", &mut limits.streams_max, streams, cause);
}

fn fit_memory(fitted: &mut Fitted, memory: u64) {
    let Fitted { limits, settings, buffered_bytes } = fitted;
    let cause = format!(
        "the memory for all of it is {} MiB; give the agent more, or set lower limits",
        memory / 1024 / 1024
    );
    let memory = memory.saturating_sub(BASE_BYTES);
    fit_connections(limits, count(memory / CONNECTIONS_OF_MEMORY / CONNECTION_BYTES), &cause);
    *buffered_bytes = (*buffered_bytes).min(count(memory / BUFFERS_OF_MEMORY));
    settings.rings_bytes_max = settings.rings_bytes_max.min(count(memory / RINGS_OF_MEMORY));
    let remembered = count(memory / REMEMBERED_OF_MEMORY / REMEMBERED_BYTES);
    settings.remembered_max = settings.remembered_max.min(remembered);
    let taken = limits.connections_max as u64 * CONNECTION_BYTES
        + *buffered_bytes as u64
        + settings.rings_bytes_max as u64
        + settings.remembered_max as u64 * REMEMBERED_BYTES
        + memory / SPARE_OF_MEMORY;
    let room = memory.saturating_sub(taken);
    let wanted =
        settings.sessions_max as u64 * SESSION_BYTES + settings.holds_max as u64 * HOLD_BYTES;
    if wanted <= room {
        return;
    }
    // Both by the same part.
    let part = |max: usize| {
        count(
            u64::try_from(u128::from(room) * max as u128 / u128::from(wanted)).unwrap_or(u64::MAX),
        )
    };
    let (sessions, holds) = (part(settings.sessions_max), part(settings.holds_max));
    lower("sessions_max", &mut settings.sessions_max, sessions, &cause);
    lower("holds_max", &mut settings.holds_max, holds, &cause);
}

fn lower(key: &str, max: &mut usize, possible: usize, cause: &str) {
    if *max > possible {
        warn!("limits.{key} is {possible} instead of {max}: {cause}");
        *max = possible;
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(descriptors: u64, mebibytes: u64) -> (usize, usize, usize, usize) {
        let means = Means { descriptors: Some(descriptors), memory: Some(mebibytes * 1024 * 1024) };
        let Fitted { limits, settings, .. } = means.fit(&Limits::default(), &Settings::default());
        (limits.connections_max, limits.streams_max, settings.sessions_max, settings.holds_max)
    }

    #[test]
    fn with_enough_of_everything_all_is_as_configured() {
        assert_eq!(fitted(1_000_000, 16 * 1024), (16_384, 12_288, 20_000, 200_000));
        let unknown = Means { descriptors: None, memory: None };
        let fitted = unknown.fit(&Limits::default(), &Settings::default());
        assert_eq!((fitted.limits, fitted.settings.holds_max), (Limits::default(), 200_000));
        assert_eq!(fitted.buffered_bytes, BUFFERED_BYTES_MAX);
    }

    #[test]
    fn few_descriptors_bound_connections_streams_and_sessions() {
        assert_eq!(fitted(1024, 16 * 1024), (448, 336, 448, 200_000));
        assert_eq!(fitted(16, 16 * 1024), (1, 1, 1, 200_000));
    }

    #[test]
    fn little_memory_bounds_everything() {
        for mebibytes in [24, 64, 128, 256, 1024, 2048] {
            let memory = mebibytes * 1024 * 1024;
            let means = Means { descriptors: None, memory: Some(memory) };
            let Fitted { limits, settings, buffered_bytes } =
                means.fit(&Limits::default(), &Settings::default());
            let all = BASE_BYTES
                + limits.connections_max as u64 * CONNECTION_BYTES
                + (buffered_bytes + settings.rings_bytes_max) as u64
                + settings.remembered_max as u64 * REMEMBERED_BYTES
                + settings.sessions_max as u64 * SESSION_BYTES
                + settings.holds_max as u64 * HOLD_BYTES;
            assert!(all < memory, "{all} of {memory} bytes");
            assert!(limits.streams_max <= limits.connections_max);
        }
        let (connections, _, sessions, holds) = fitted(1_000_000, 128);
        assert!(connections > 400 && sessions > 300 && holds > 3000, "{sessions} {holds}");
    }

    #[test]
    fn what_one_user_has_follows() {
        let means = Means { descriptors: Some(1024), memory: None };
        let Fitted { limits, settings, .. } = means.fit(&Limits::default(), &Settings::default());
        assert_eq!(limits.connections().per_uid, 336);
        assert_eq!(settings.sessions().per_uid, 336);
    }
}
