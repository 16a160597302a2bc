//! Every key, once: how it is written, where it goes, how it is shown.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::Share;

use super::redis::POLL_MAX;
use super::value::{self, Refusal, Shape};
use super::{Config, UpstreamUrl, secret};
use crate::telemetry::LogFormat;

/// A setting.
pub(super) struct Key {
    /// As in a file: `section.key`.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// True if SIGHUP puts it into effect.
    pub(super) reloads: bool,
    pub(super) set: fn(&mut Config, &str) -> Result<(), Refusal>,
    /// `None` when it is not set and has no default.
    pub(super) get: fn(&Config) -> Option<toml::Value>,
}

impl Key {
    /// `leader.ttl` is TENURED_LEADER_TTL.
    pub(super) fn variable(&self) -> String {
        variable(self.name)
    }

    pub(super) fn section(&self) -> Option<&'static str> {
        self.name.split_once('.').map(|(section, _)| section)
    }

    /// The value for people, and for error messages: never a secret.
    pub(super) fn show(&self, config: &Config) -> String {
        (self.get)(config).map(|value| value.to_string()).unwrap_or_default()
    }
}

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    format!("TENURED_{}", key.to_uppercase().replace('.', "_"))
}

pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Durations that a client or an administrator may wish for end here; a longer one is a slip.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// A server that needs longer cannot keep anybody's holds alive.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Below, every hiccup of a network would look like a dead server.
const CALL_MIN: Duration = Duration::from_millis(50);
/// Counts end here: above, the agent's memory would not be bounded by anything sensible.
const MOST: u64 = 1_000_000;

macro_rules! duration {
    ($name:literal, $($field:ident).+) => { duration!($name, $($field).+, Duration::ZERO, LONGEST) };
    ($name:literal, $($field:ident).+, $min:expr, $max:expr) => {
        Key {
            name: $name,
            shape: Shape::Duration,
            reloads: false,
            set: |config, text| {
                config.$($field).+ = value::duration_in(text, $min, $max)?;
                Ok(())
            },
            get: |config| Some(value::show(config.$($field).+).into()),
        }
    };
}

macro_rules! count {
    ($name:literal, $($field:ident).+, $min:expr, $max:expr) => {
        Key {
            name: $name,
            shape: Shape::Count,
            reloads: false,
            set: |config, text| {
                config.$($field).+ = value::count(text, $min, $max)? as _;
                Ok(())
            },
            get: |config| Some(toml::Value::Integer(config.$($field).+ as _)),
        }
    };
}

/// One user's share of a count; by default it follows from the count.
macro_rules! share {
    ($name:literal, $($field:ident).+, $share:expr) => {
        Key {
            name: $name,
            shape: Shape::Count,
            reloads: false,
            set: |config, text| {
                config.$($field).+ = Some(value::count(text, 1, MOST)? as _);
                Ok(())
            },
            get: |config| {
                let share: fn(&Config) -> Share = $share;
                Some(toml::Value::Integer(share(config).per_uid as _))
            },
        }
    };
}

macro_rules! prefix {
    ($name:literal, $field:ident) => {
        Key {
            name: $name,
            shape: Shape::Text,
            reloads: false,
            set: |config, text| {
                config.redis_section.prefixes.$field = value::prefix(text)?;
                Ok(())
            },
            get: |config| Some(config.redis_section.prefixes.$field.clone().into()),
        }
    };
}

macro_rules! optional_path {
    ($name:literal, $($field:ident).+, $parse:path) => {
        Key {
            name: $name,
            shape: Shape::Text,
            reloads: false,
            set: |config, text| {
                config.$($field).+ = Some($parse(text)?);
                Ok(())
            },
            get: |config| Some(config.$($field).+.as_ref()?.display().to_string().into()),
        }
    };
}

macro_rules! path {
    ($name:literal, $field:ident, $parse:path) => {
        Key {
            name: $name,
            shape: Shape::Text,
            reloads: false,
            set: |config, text| {
                config.$field = $parse(text)?;
                Ok(())
            },
            get: |config| Some(config.$field.display().to_string().into()),
        }
    };
}

/// In the order in which `check-config` prints them.
pub(super) static KEYS: [Key; 51] = [
    path!("socket", socket, value::socket),
    Key {
        name: "upstream",
        shape: Shape::Secret,
        reloads: false,
        set: |config, text| {
            config.upstream = UpstreamUrl::parse(text)?;
            Ok(())
        },
        get: |config| Some(config.upstream.shown().into()),
    },
    optional_path!("upstream_secret_file", upstream_secret_file, secret::path),
    path!("state_dir", state_dir, value::path),
    path!("runtime_dir", runtime_dir, value::path),
    Key {
        name: "log",
        shape: Shape::Text,
        reloads: true,
        set: |config, text| {
            crate::telemetry::log::check(text)?;
            config.log = text.to_owned();
            Ok(())
        },
        get: |config| Some(config.log.clone().into()),
    },
    Key {
        name: "log_format",
        shape: Shape::Text,
        reloads: false,
        set: |config, text| {
            config.log_format = LogFormat::parse(text)?;
            Ok(())
        },
        get: |config| Some(config.log_format.word().into()),
    },
    Key {
        name: "metrics_listen",
        shape: Shape::Text,
        reloads: false,
        set: |config, text| {
            config.metrics_listen = Some(value::loopback(text)?);
            Ok(())
        },
        get: |config| Some(config.metrics_listen?.to_string().into()),
    },
    Key {
        name: "host_name",
        shape: Shape::Text,
        reloads: false,
        set: |config, text| {
            if text.is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
                return Err("must be 1 to 200 bytes without control characters".to_owned());
            }
            config.settings.host = Arc::from(text);
            Ok(())
        },
        get: |config| Some(config.settings.host.to_string().into()),
    },
    duration!("session.ttl", settings.session.ttl),
    duration!("session.beat", settings.session.beat),
    duration!("master.ttl", settings.master.ttl),
    duration!("master.beat", settings.master.beat),
    duration!("leader.ttl", settings.leader.ttl),
    duration!("leader.beat", settings.leader.beat),
    duration!("lease.ttl", settings.lease.ttl),
    duration!("lease.beat", settings.lease.beat),
    duration!("lease.grace", settings.grace),
    duration!("semaphore.ttl", settings.semaphore.ttl),
    duration!("semaphore.beat", settings.semaphore.beat),
    duration!("margin.floor", settings.margin_floor, Duration::from_millis(10), LONGEST),
    count!("margin.divisor", settings.margin_divisor, 1, 200),
    duration!("tether.keepalive", settings.keepalive, Duration::from_millis(100), LONGEST),
    duration!("tether.linger", settings.linger),
    duration!("limits.ttl_min", settings.ttl_min),
    duration!("limits.ttl_max", settings.ttl_max),
    count!("limits.sessions_max", settings.sessions_max, 1, MOST),
    share!("limits.sessions_per_uid_max", settings.sessions_per_uid_max, |config| {
        config.settings.sessions()
    }),
    count!("limits.holds_max", settings.holds_max, 1, MOST),
    share!("limits.holds_per_uid_max", settings.holds_per_uid_max, |config| config
        .settings
        .holds()),
    count!("limits.events_kept_max", settings.ring_max, 1, 65_536),
    duration!("limits.remember", settings.remember, Duration::ZERO, Duration::from_secs(3600)),
    count!("limits.connections_max", limits.connections_max, 1, MOST),
    share!("limits.connections_per_uid_max", limits.connections_per_uid_max, |config| {
        config.limits.connections()
    }),
    count!("limits.streams_max", limits.streams_max, 1, MOST),
    share!("limits.streams_per_uid_max", limits.streams_per_uid_max, |config| {
        config.limits.streams()
    }),
    duration!(
        "limits.header_timeout",
        limits.header_timeout,
        Duration::from_millis(100),
        Duration::from_secs(60)
    ),
    duration!("retry.first", settings.retry_min, Duration::from_millis(10), LONGEST),
    duration!("retry.longest", settings.retry_max, Duration::from_millis(10), LONGEST),
    prefix!("redis.session_prefix", session_prefix),
    prefix!("redis.leader_prefix", leader_prefix),
    prefix!("redis.semaphore_namespace", semaphore_namespace),
    prefix!("redis.tenure_prefix", tenure_prefix),
    duration!("redis.timeout", redis_section.timeout, CALL_MIN, CALL_MAX),
    duration!("redis.connect_timeout", redis_section.connect_timeout, CALL_MIN, CALL_MAX),
    duration!("redis.poll", redis_section.poll, Duration::from_millis(10), POLL_MAX),
    optional_path!("redis.tls_ca_file", redis_section.tls_ca_file, value::path),
    optional_path!("redis.tls_cert_file", redis_section.tls_cert_file, value::path),
    optional_path!("redis.tls_key_file", redis_section.tls_key_file, value::path),
    optional_path!("redis.sentinel_secret_file", redis_section.sentinel_secret_file, secret::path),
    duration!(
        "stop.deadline",
        limits.stop_deadline,
        Duration::from_millis(100),
        Duration::from_secs(5)
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_variables_are_unique() {
        let names: HashSet<_> = KEYS.iter().map(|key| key.name).collect();
        let variables: HashSet<_> = KEYS.iter().map(Key::variable).collect();
        assert_eq!((names.len(), variables.len()), (KEYS.len(), KEYS.len()));
        assert_eq!(find("leader.ttl").unwrap().variable(), "TENURED_LEADER_TTL");
    }
}
