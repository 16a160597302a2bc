//! Limits that this machine can keep: as configured, or less where descriptors or memory do not suffice.

use tracing::warn;

use crate::config::Limits;
use crate::keeper::Settings;

/// Descriptors for everything but connections and sessions: files, timers, logs.
const DESCRIPTORS_OTHER: u64 = 128;
/// So many of four descriptors for clients are for connections; the others watch processes of
/// sessions.
const CONNECTIONS_OF_FOUR: u64 = 2;
/// So many of four connections may be event streams.
const STREAMS_OF_FOUR: usize = 3;
/// Memory of a session with long names, its page and its rows in the journal, bytes. The runtime directory
/// mostly lies in memory, too.
const SESSION_BYTES: u64 = 12 * 1024;
/// Memory of a hold with long names and attributes, and of its rows in the journal, bytes.
const HOLD_BYTES: u64 = 4 * 1024;
/// The part of the memory that sessions and holds may take; replies, requests and events have the rest.
const TABLES_OF_MEMORY: u64 = 2;

/// The means that this machine has for the agent.
#[derive(Debug, Clone, Copy)]
pub struct Means {
    /// Descriptors of this process at most; `None` where the system does not tell.
    pub descriptors: Option<u64>,
    /// Memory of the machine or of this process' cgroup, bytes; `None` where the system does not tell.
    pub memory: Option<u64>,
}

impl Means {
    /// The limits and settings that can be kept. Says which were lowered, and how to get all of them.
    pub fn fit(self, limits: &Limits, settings: &Settings) -> (Limits, Settings) {
        let (mut limits, mut settings) = (limits.clone(), settings.clone());
        if let Some(descriptors) = self.descriptors {
            fit_descriptors(&mut limits, &mut settings, descriptors);
        }
        if let Some(memory) = self.memory {
            fit_memory(&mut settings, memory);
        }
        (limits, settings)
    }
}

fn fit_descriptors(limits: &mut Limits, settings: &mut Settings, descriptors: u64) {
    let quarter = descriptors.saturating_sub(DESCRIPTORS_OTHER) / 4;
    let connections = count(quarter * CONNECTIONS_OF_FOUR);
    let sessions = count(quarter * (4 - CONNECTIONS_OF_FOUR));
    let cause =
        format!("the limit of open files is {descriptors}; raise it (ulimit -n, LimitNOFILE=)");
    lower("connections_max", &mut limits.connections_max, connections, &cause);
    let streams = (connections / 4 * STREAMS_OF_FOUR).max(1);
    lower("streams_max", &mut limits.streams_max, streams, &cause);
    lower("sessions_max", &mut settings.sessions_max, sessions, &cause);
}

fn fit_memory(settings: &mut Settings, memory: u64) {
    let room = memory / TABLES_OF_MEMORY;
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
    let cause = format!(
        "the memory for all of it is {} MiB; give the agent more, or set lower limits",
        memory / 1024 / 1024
    );
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
        let (limits, settings) = means.fit(&Limits::default(), &Settings::default());
        (limits.connections_max, limits.streams_max, settings.sessions_max, settings.holds_max)
    }

    #[test]
    fn with_enough_of_everything_all_is_as_configured() {
        assert_eq!(fitted(1_000_000, 16 * 1024), (16_384, 12_288, 20_000, 200_000));
        let unknown = Means { descriptors: None, memory: None };
        let (limits, settings) = unknown.fit(&Limits::default(), &Settings::default());
        assert_eq!((limits, settings.holds_max), (Limits::default(), 200_000));
    }

    #[test]
    fn few_descriptors_bound_connections_streams_and_sessions() {
        assert_eq!(fitted(1024, 16 * 1024), (448, 336, 448, 200_000));
        assert_eq!(fitted(16, 16 * 1024), (1, 1, 1, 200_000));
    }

    #[test]
    fn little_memory_bounds_sessions_and_holds() {
        let (_, _, sessions, holds) = fitted(1_000_000, 128);
        assert!(sessions as u64 * SESSION_BYTES + holds as u64 * HOLD_BYTES <= 64 << 20);
        assert!(sessions > 1000 && holds > 10_000, "{sessions} {holds}");
    }

    #[test]
    fn what_one_user_has_follows() {
        let means = Means { descriptors: Some(1024), memory: None };
        let (limits, settings) = means.fit(&Limits::default(), &Settings::default());
        assert_eq!(limits.connections().per_uid, 336);
        assert_eq!(settings.sessions().per_uid, 336);
    }
}
