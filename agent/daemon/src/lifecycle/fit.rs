//! Limits that this machine can keep: as configured, or less where descriptors or memory do not suffice.

use tenure_core::keeper::Settings;
use tracing::{info, warn};

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
    /// The limits that can be kept, and which were lowered.
    pub fn fit(self, limits: &Limits, settings: &Settings) -> Fitted {
        let mut fitted = Fitted {
            limits: limits.clone(),
            settings: settings.clone(),
            buffered_bytes: BUFFERED_BYTES_MAX,
            reductions: Reductions::default(),
        };
        if let Some(descriptors) = self.descriptors {
            fit_descriptors(&mut fitted, descriptors);
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
    pub reductions: Reductions,
}

/// The limits that were lowered to fit this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reductions(Vec<Reduction>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Reduction {
    key: &'static str,
    /// As configured, or by default.
    wanted: usize,
    possible: usize,
    /// The reason, and the way out.
    cause: String,
}

impl Reductions {
    /// Tells the log: a warning for each configured limit that is lowered, one line of level INFO for all lowered defaults.
    pub fn log(&self, is_set: impl Fn(&str) -> bool) {
        let (warnings, defaults) = self.lines(is_set);
        warnings.iter().for_each(|warning| warn!("{warning}"));
        if let Some(defaults) = defaults {
            info!("{defaults}");
        }
    }

    /// A line for each configured limit, and one for all defaults.
    fn lines(&self, is_set: impl Fn(&str) -> bool) -> (Vec<String>, Option<String>) {
        let (set, defaults): (Vec<_>, Vec<_>) = self.0.iter().partition(|limit| is_set(limit.key));
        let warning = |Reduction { key, wanted, possible, cause }: &Reduction| {
            format!("{key} is {possible} instead of {wanted}: {cause}")
        };
        let mut parts: Vec<(String, &str)> = Vec::new();
        for Reduction { key, wanted, possible, cause } in defaults {
            let text = format!("{} {possible} of {wanted}", key.trim_start_matches("limits."));
            match parts.iter_mut().find(|(_, of)| *of == cause.as_str()) {
                Some((texts, _)) => texts.push_str(&format!(", {text}")),
                None => parts.push((text, cause.as_str())),
            }
        }
        let parts = parts.iter().map(|(texts, cause)| format!("{texts} ({cause})"));
        let parts = parts.collect::<Vec<_>>().join(", ");
        let line = format!("limits lowered to fit this machine: {parts}");
        (set.into_iter().map(warning).collect(), (!parts.is_empty()).then_some(line))
    }

    fn lower(&mut self, key: &'static str, max: &mut usize, possible: usize, cause: &str) {
        if *max <= possible {
            return;
        }
        let (wanted, cause) = (*max, cause.to_owned());
        *max = possible;
        match self.0.iter_mut().find(|limit| limit.key == key) {
            // The last cause is the one that counts.
            Some(limit) => *limit = Reduction { possible, cause, ..*limit },
            None => self.0.push(Reduction { key, wanted, possible, cause }),
        }
    }
}

fn fit_descriptors(fitted: &mut Fitted, descriptors: u64) {
    let Fitted { limits, settings, reductions, .. } = fitted;
    let quarter = descriptors.saturating_sub(DESCRIPTORS_OTHER) / 4;
    let sessions = count(quarter * (4 - CONNECTIONS_OF_FOUR));
    let cause =
        format!("the limit of open files is {descriptors}; raise it by ulimit -n or LimitNOFILE=");
    fit_connections(limits, reductions, count(quarter * CONNECTIONS_OF_FOUR), &cause);
    reductions.lower("limits.sessions_max", &mut settings.sessions_max, sessions, &cause);
}

fn fit_connections(
    limits: &mut Limits,
    reductions: &mut Reductions,
    connections: usize,
    cause: &str,
) {
    reductions.lower("limits.connections_max", &mut limits.connections_max, connections, cause);
    let streams = (connections / 4 * STREAMS_OF_FOUR).max(1);
    reductions.lower("limits.streams_max", &mut limits.streams_max, streams, cause);
}

fn fit_memory(fitted: &mut Fitted, memory: u64) {
    let Fitted { limits, settings, buffered_bytes, reductions } = fitted;
    let cause = format!(
        "the memory for all of it is {} MiB; give the agent more, or set lower limits",
        memory / 1024 / 1024
    );
    let memory = memory.saturating_sub(BASE_BYTES);
    let connections = count(memory / CONNECTIONS_OF_MEMORY / CONNECTION_BYTES);
    fit_connections(limits, reductions, connections, &cause);
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
    reductions.lower("limits.sessions_max", &mut settings.sessions_max, sessions, &cause);
    reductions.lower("limits.holds_max", &mut settings.holds_max, holds, &cause);
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
            let Fitted { limits, settings, buffered_bytes, .. } =
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

    /// The lines about lowered limits, where these keys are configured.
    fn lines(means: Means, set: &[&str]) -> (Vec<String>, Option<String>) {
        let fitted = means.fit(&Limits::default(), &Settings::default());
        fitted.reductions.lines(|key| set.contains(&key))
    }

    #[test]
    fn defaults_that_are_lowered_are_one_line_and_set_limits_a_warning_each() {
        let few = Means { descriptors: Some(1024), memory: None };
        let cause = "the limit of open files is 1024; raise it by ulimit -n or LimitNOFILE=";
        let all =
            "connections_max 448 of 16384, streams_max 336 of 12288, sessions_max 448 of 20000";
        let line = format!("limits lowered to fit this machine: {all} ({cause})");
        assert_eq!(lines(few, &[]), (vec![], Some(line)));

        let set = ["limits.connections_max", "limits.sessions_max", "limits.holds_max"];
        let (warnings, line) = lines(few, &set);
        let expected =
            ["connections_max is 448 instead of 16384", "sessions_max is 448 instead of 20000"];
        assert_eq!(warnings, expected.map(|text| format!("limits.{text}: {cause}")));
        let line = line.unwrap();
        assert!(line.ends_with(&format!(": streams_max 336 of 12288 ({cause})")), "{line}");
        let (warnings, line) = lines(few, &[&set[..], &["limits.streams_max"]].concat());
        assert_eq!((warnings.len(), line), (3, None));

        let enough = Means { descriptors: Some(1_000_000), memory: None };
        assert_eq!(lines(enough, &set), (vec![], None));
    }

    #[test]
    fn a_limit_is_told_with_the_cause_that_counts() {
        let means = Means { descriptors: Some(1024), memory: Some(64 * 1024 * 1024) };
        let (warnings, line) = lines(means, &["limits.sessions_max"]);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(
            warning.contains(" instead of 20000: the memory for all of it is 64 MiB"),
            "{warning}"
        );
        let line = line.unwrap();
        let (files, memory) = ("(the limit of open files", "(the memory for all of it");
        let (files, memory) = (line.matches(files).count(), line.matches(memory).count());
        assert!(files <= 1 && memory == 1 && line.contains("holds_max"), "{line}");
        assert_eq!(line.matches("connections_max").count(), 1);
    }

    #[test]
    fn what_one_user_has_follows() {
        let means = Means { descriptors: Some(1024), memory: None };
        let Fitted { limits, settings, .. } = means.fit(&Limits::default(), &Settings::default());
        assert_eq!(limits.connections().per_uid, 336);
        assert_eq!(settings.sessions().per_uid, 336);
    }
}
