//! Every key, once: how it is written, where it goes, how it is shown.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tenure_core::model::Share;
use tenure_stores::settings::{self, Refusal, Shape, Stores, secret};
use tenure_stores::{duration_key, optional_path_key};

use super::{Config, value};
use crate::telemetry::LogFormat;

/// A setting.
pub(super) struct Key {
    /// As in a file: `section.key`.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// True if SIGHUP puts it into effect.
    pub(super) reloads: bool,
    /// `None` for a key of a store.
    own: Option<&'static settings::Key<Config>>,
}

impl Key {
    /// `leader.ttl` is TENURED_LEADER_TTL.
    pub(super) fn variable(&self) -> String {
        format!("TENURED_{}", self.name.to_uppercase().replace('.', "_"))
    }

    pub(super) fn section(&self) -> Option<&'static str> {
        self.name.split_once('.').map(|(section, _)| section)
    }

    pub(super) fn set(&self, config: &mut Config, text: &str) -> Result<(), Refusal> {
        match self.own {
            Some(key) => (key.set)(config, text),
            None => config.stores.set(self.name, text),
        }
    }

    /// `None` when it is not set and has no default.
    pub(super) fn get(&self, config: &Config) -> Option<toml::Value> {
        let value = match self.own {
            Some(key) => (key.get)(config),
            None => config.stores.get(self.name),
        };
        value.map(|value| match value {
            settings::Value::Text(text) => toml::Value::String(text),
            settings::Value::Count(count) => toml::Value::Integer(count),
        })
    }

    /// The value for people, and for error messages: never a secret.
    pub(super) fn show(&self, config: &Config) -> String {
        self.get(config).map(|value| value.to_string()).unwrap_or_default()
    }
}

/// All keys, in the order in which `check-config` prints them: the agent's own, then those of stores.
pub(super) fn all() -> &'static [Key] {
    static ALL: LazyLock<Vec<Key>> = LazyLock::new(|| {
        let own = KEYS.iter().map(|key| Key {
            name: key.name,
            shape: key.shape,
            reloads: key.reloads,
            own: Some(key),
        });
        let stores = Stores::default();
        let of_stores =
            stores.keys().map(|(name, shape)| Key { name, shape, reloads: false, own: None });
        own.chain(of_stores).collect()
    });
    &ALL
}

pub(super) fn find(name: &str) -> Option<&'static Key> {
    all().iter().find(|key| key.name == name)
}

/// Durations that a client or an administrator may wish for end here; a longer one is a slip.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Counts end here: above, the agent's memory would not be bounded by anything sensible.
const MOST: u64 = 1_000_000;

/// A duration up to [`LONGEST`], unless there are other bounds.
macro_rules! duration {
    ($name:literal, $($field:ident).+) => { duration!($name, $($field).+, Duration::ZERO, LONGEST) };
    ($name:literal, $($field:ident).+, $min:expr, $max:expr) => {
        duration_key!($name, $($field).+, $min, $max)
    };
}

macro_rules! count {
    ($name:literal, $($field:ident).+, $min:expr, $max:expr) => {
        settings::Key {
            name: $name,
            shape: Shape::Count,
            reloads: false,
            set: |config, text| {
                config.$($field).+ = settings::value::count(text, $min, $max)? as _;
                Ok(())
            },
            get: |config| Some(settings::Value::Count(config.$($field).+ as _)),
        }
    };
}

/// One user's share of a count; by default it follows from the count.
macro_rules! share {
    ($name:literal, $($field:ident).+, $share:expr) => {
        settings::Key {
            name: $name,
            shape: Shape::Count,
            reloads: false,
            set: |config, text| {
                config.$($field).+ = Some(settings::value::count(text, 1, MOST)? as _);
                Ok(())
            },
            get: |config| {
                let share: fn(&Config) -> Share = $share;
                Some(settings::Value::Count(share(config).per_uid as _))
            },
        }
    };
}

macro_rules! path {
    ($name:literal, $field:ident, $parse:path) => {
        settings::Key {
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

static KEYS: [settings::Key<Config>; 40] = [
    path!("socket", socket, value::socket),
    settings::Key {
        name: "upstream",
        shape: Shape::Secret,
        reloads: false,
        set: |config, text| config.stores.set_url(text),
        get: |config| Some(config.stores.upstream().url().into()),
    },
    optional_path_key!("upstream_secret_file", upstream_secret_file, secret::path),
    path!("state_dir", state_dir, settings::value::path),
    path!("runtime_dir", runtime_dir, settings::value::path),
    settings::Key {
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
    settings::Key {
        name: "log_format",
        shape: Shape::Text,
        reloads: false,
        set: |config, text| {
            config.log_format = LogFormat::parse(text)?;
            Ok(())
        },
        get: |config| Some(config.log_format.word().to_owned().into()),
    },
    settings::Key {
        name: "metrics_listen",
        shape: Shape::Text,
        reloads: false,
        set: |config, text| {
            config.metrics_listen = Some(value::loopback(text)?);
            Ok(())
        },
        get: |config| Some(config.metrics_listen?.to_string().into()),
    },
    settings::Key {
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
        let names: HashSet<_> = all().iter().map(|key| key.name).collect();
        let variables: HashSet<_> = all().iter().map(Key::variable).collect();
        assert_eq!((names.len(), variables.len()), (all().len(), all().len()));
        assert!(find("redis.timeout").is_some());
        assert_eq!(find("leader.ttl").unwrap().variable(), "TENURED_LEADER_TTL");
    }
}
