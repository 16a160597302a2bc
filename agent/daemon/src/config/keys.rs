//! Every key, once: how it is written, where it goes, how it is shown.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tenure_core::model::Share;
use tenure_service::browsers::HostList;
use tenure_service::config::Key;
use tenure_stores::settings::{self, Doc, Shape, Stores, secret};
use tenure_stores::{duration_key, optional_path_key};
use tenure_wire::rules::visible;

use super::{Config, value};
use crate::telemetry::LogFormat;

/// All keys, in the order in which `check-config` prints them: the agent's own, then those of stores.
pub(super) fn all() -> &'static [Key<Config>] {
    static ALL: LazyLock<Vec<Key<Config>>> =
        LazyLock::new(|| Key::list(&KEYS, &Stores::default(), |_| true));
    &ALL
}

/// The documentation of sections; those of stores are their own.
pub(super) const SECTIONS: [(&str, &str); 5] = [
    (
        "session",
        "How long something outlives its last beat (ttl), and how often it is beaten (beat). A ttl must be \
         more than twice its beat, a beat at least 100ms. Clients may ask for another ttl, within \
         limits.ttl_min and limits.ttl_max.
Sessions that are announced in a project.",
    ),
    (
        "margin",
        "A holder must stop this much before the upstream forgets it: floor + ttl / divisor. Covers clocks \
         that run at different speeds, and the time to act.",
    ),
    ("tether", "What ties a session to life when it does not say so itself."),
    (
        "limits",
        "Whatever is beyond a limit is refused with quota_exceeded, or its connection is closed.",
    ),
    (
        "retry",
        "A call to the upstream that failed is tried again after first, then after twice as long each \
         time, up to longest.",
    ),
];

/// Durations that a client or an administrator may wish for end here; a longer one is a slip.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Counts end here: above, the agent's memory would not be bounded by anything sensible.
const MOST: u64 = 1_000_000;

/// A duration up to [`LONGEST`], unless there are other bounds.
macro_rules! duration {
    ($name:literal, $($field:ident).+) => { duration!($name, $($field).+, Duration::ZERO, LONGEST) };
    ($name:literal, $($field:ident).+, $min:expr, $max:expr) => {
        duration_key!(Config, $name, $($field).+, $min, $max)
    };
}

macro_rules! count {
    ($name:literal, $($field:ident).+, $min:expr, $max:expr) => {
        settings::Key::<Config> {
            name: $name,
            shape: Shape::Count,
            reloads: false,
            set: |config, text| {
               config.$($field).+ = settings::value::count(text, $min, $max)? as _;
               Ok(())
            },
            get: |config| Some(settings::Value::Count(config.$($field).+ as _)),
            doc: Doc::NONE,
        }
    };
}

/// One user's share of a count; by default it follows from the count.
macro_rules! share {
    ($name:literal, $($field:ident).+, $share:expr) => {
        settings::Key::<Config> {
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
            doc: Doc::NONE,
        }
    };
}

macro_rules! path {
    ($name:literal, $field:ident, $parse:path) => {
        settings::Key::<Config> {
            name: $name,
            shape: Shape::Text,
            reloads: false,
            set: |config, text| {
                config.$field = $parse(text)?;
                Ok(())
            },
            get: |config| Some(config.$field.display().to_string().into()),
            doc: Doc::NONE,
        }
    };
}

static KEYS: [settings::Key<Config>; 43] = [
    path!("socket", socket, value::socket)
        .about(
            "Where programs connect: a path, or a URI such as \"unix:///run/tenured/api.sock\". \
             Default: api.sock in runtime_dir. Clients look at TENURE_SOCKET, then in \
             $XDG_RUNTIME_DIR/tenured, then in /run/tenured. With a socket unit, ListenStream= \
             must name the same path.",
        )
        .example("\"/run/tenured/api.sock\""),
    settings::Key {
        name: "upstream",
        shape: Shape::Secret,
        reloads: false,
        set: |config, text| config.stores.set_url(text),
        get: |config| Some(config.stores.upstream().url().into()),
        doc: Doc {
            about: "Where truth is kept.
  embedded:                                    in this agent, for this host alone
  redis://[USER:PASSWORD@]HOST[:PORT][/DB]     in a Redis (6.2 or later) or Valkey, for every host
  rediss://…                                   the same over TLS
  redis+unix:///PATH[?db=DB&user=USER]         the same over a Unix socket
  redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST…/MASTER-NAME[/DB]
                                               the master that these Sentinels name, wherever it
                                               moves; rediss+sentinel:// over TLS. For Sentinels
                                               with a password of their own add
                                               ?sentinel_user=USER&sentinel_password=PASSWORD
  https://HOST[:PORT][,HOST[:PORT]…]           a gateway, or several that share one store: one is
                                               used, and another when that fails; whole URLs with
                                               commas between them mean the same
A character such as @ : / ? # or % in a user or password is written %40 %3A %2F %3F %23 %25. A \
             Cluster is not supported.",
            example: None,
        },
    },
    optional_path_key!(Config, "upstream_secret_file", upstream_secret_file, secret::path)
        .about(
            "A file with the upstream's password, so that it need not be in the URL: one line, \
             not readable by other users. \"$CREDENTIALS_DIRECTORY/NAME\" is a credential of the \
             service manager. Default: the credential upstream-secret, if there is one. It is read at \
             each sign-in, so a password that is rotated takes no restart; a credential is a copy, and takes one. Not needed by embedded:.",
        )
        .example("\"/etc/tenured/upstream-secret\""),
    path!("state_dir", state_dir, settings::value::path)
        .about(
            "What must survive a reboot. Default: /var/lib/tenured for the whole host, \
             $XDG_STATE_HOME/tenured for one user.",
        )
        .example("\"/var/lib/tenured\""),
    path!("runtime_dir", runtime_dir, settings::value::path)
        .about(
            "Socket, validity pages and journal; may be lost at a reboot. Default: /run/tenured \
             for the whole host, $XDG_RUNTIME_DIR/tenured for one user. It belongs into memory \
             (tmpfs): the agent writes to it in every turn.",
        )
        .example("\"/run/tenured\""),
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
        doc: Doc {
            about: "error, warn, info, debug or trace, or a filter such as \"info,tenured::api=debug\"; \
             off for nothing. Can be changed by a reload (SIGHUP), and for the time being with \
             `tenure log FILTER`: that lasts until `tenure log --reset`, a restart, or a reload \
             that finds another value here.",
            example: None,
        },
    },
    settings::Key {
        name: "require",
        shape: Shape::Text,
        reloads: false,
        set: |config, text| {
            config.requires_fleet = match text {
                "host" => false,
                "fleet" => true,
                _ => return Err("must be host or fleet".to_owned()),
            };
            Ok(())
        },
        get: |config| Some(if config.requires_fleet { "fleet" } else { "host" }.to_owned().into()),
        doc: Doc {
            about: "What a hold has to exclude.
  host:   at least the other programs of this host
  fleet:  those of all hosts: while the upstream is the agent's own store, which no other host has,
          every acquire is refused (forbidden, exit status 77), and so is `tenure limit NAME N`.
          `tenure lock --fleet` and the field fleet of a request ask for that one by one",
            example: None,
        },
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
        doc: Doc {
            about: "How log lines are written.
  human:     for people, with colours on a terminal
  json:      one JSON object a line, on standard error
  journald:  to the journal of systemd, with the fields TENURE_SESSION, TENURE_HOLD, TENURE_TENANT,
             TENURE_KIND, TENURE_NAME, TENURE_TOKEN, TENURE_REASON, TENURE_UID, TENURE_PID,
             TENURE_EXIT_STATUS; for builds with the Cargo feature systemd, as packages are
  auto:      human on a terminal, journald where standard error leads to the journal, else json
Lines that nobody takes in time are dropped and counted; the agent never waits for its log. Of one \
             user at most 1000 lines at once, and 50 a second for long, are written; the log says \
             how many it left out.",
            example: None,
        },
    },
    settings::Key {
        name: "metrics_listen",
        shape: Shape::Text,
        reloads: false,
        set: |config, text| {
            config.metrics_listen = Some(value::address(text)?);
            Ok(())
        },
        get: |config| Some(config.metrics_listen?.to_string().into()),
        doc: Doc {
            about: "Where to serve /metrics besides the socket, for a scraper that cannot open one: a \
             loopback address with a port, or any with metrics_listen_public. Nobody signs in there: \
             whoever reaches it can read it. It has numbers of sessions and holds, but neither names \
             nor secrets. Default: nowhere.",
            example: Some("\"127.0.0.1:9464\""),
        },
    },
    settings::Key {
        name: "metrics_hosts",
        shape: Shape::Text,
        reloads: false,
        set: |config, text| {
            config.metrics_hosts = HostList::parse(text)?;
            Ok(())
        },
        get: |config| {
            let hosts = &config.metrics_hosts;
            (!hosts.is_empty()).then(|| hosts.to_string().into())
        },
        doc: Doc {
            about: "Names by which a scraper calls metrics_listen, with commas between; *.corp.example for all below \
             that. Addresses and localhost need not be here. Requests to other names are refused (421): a web \
             page can have its own name lead to this host.",
            example: Some("\"node7.corp.example\""),
        },
    },
    settings::Key {
        name: "metrics_listen_public",
        shape: Shape::Switch,
        reloads: false,
        set: |config, text| {
            config.metrics_listen_public = settings::value::switch(text)?;
            Ok(())
        },
        get: |config| Some(settings::Value::Switch(config.metrics_listen_public)),
        doc: Doc {
            about: "Metrics may be served at an address that other hosts reach, such as \"0.0.0.0:9464\": \
             for a scraper of the cluster that an agent in a pod cannot do without.",
            example: None,
        },
    },
    settings::Key {
        name: "host_name",
        shape: Shape::Text,
        reloads: false,
        set: |config, text| {
            visible("host_name", text).map_err(|invalid| invalid.why().to_owned())?;
            config.settings.host = Arc::from(text);
            Ok(())
        },
        get: |config| Some(config.settings.host.to_string().into()),
        doc: Doc {
            about: "This host's name as others see it. Default: what hostname(1) says.",
            example: Some("\"build-7\""),
        },
    },
    duration!("session.ttl", settings.session.ttl),
    duration!("session.beat", settings.session.beat),
    duration!("master.ttl", settings.master.ttl),
    duration!("master.beat", settings.master.beat),
    duration!("leader.ttl", settings.leader.ttl),
    duration!("leader.beat", settings.leader.beat),
    duration!("lease.ttl", settings.lease.ttl),
    duration!("lease.beat", settings.lease.beat),
    duration!("lease.grace", settings.grace)
        .about("How long after expiry only the former holder may have it again."),
    duration!("semaphore.ttl", settings.semaphore.ttl),
    duration!("semaphore.beat", settings.semaphore.beat),
    duration!("margin.floor", settings.margin_floor, Duration::from_millis(10), LONGEST)
        .about("At least 10ms."),
    count!("margin.divisor", settings.margin_divisor, 1, 200).about("1 to 200."),
    duration!("tether.keepalive", settings.keepalive, Duration::from_millis(100), LONGEST)
        .about("Time between two calls."),
    duration!("tether.linger", settings.linger)
        .about("How long a session outlives its last event stream while its process lives."),
    duration!("limits.ttl_min", settings.ttl_min)
        .about("Shortest and longest ttl that a client may ask for."),
    duration!("limits.ttl_max", settings.ttl_max),
    count!("limits.sessions_max", settings.sessions_max, 1, MOST).about(
        "One place in 32 of each of these is for root and the agent's own user. Of the others \
         one user has three quarters, and of holds at most 50000, unless a number for one \
         user is given. With fewer descriptors or less memory (of the machine or its cgroup) \
         than all of it would take, the agent starts with less, and says so.",
    ),
    share!("limits.sessions_per_uid_max", settings.sessions_per_uid_max, |config| {
        config.settings.sessions()
    })
    .example("15000"),
    count!("limits.holds_max", settings.holds_max, 1, MOST).about("Waiting holds are counted too."),
    share!("limits.holds_per_uid_max", settings.holds_per_uid_max, |config| config
        .settings
        .holds())
    .example("50000"),
    count!("limits.events_kept_max", settings.ring_max, 1, 65_536)
        .about("Events kept for a session that reconnects."),
    duration!("limits.remember", settings.remember, Duration::ZERO, Duration::from_secs(3600))
        .about(
            "How long an ended hold is answered with hold_lost, and its request id with the same \
             hold.",
        ),
    count!("limits.connections_max", limits.connections_max, 1, MOST)
        .about("Each takes a file descriptor, and each session another one."),
    share!("limits.connections_per_uid_max", limits.connections_per_uid_max, |config| {
        config.limits.connections()
    })
    .example("12288"),
    count!("limits.streams_max", limits.streams_max, 1, MOST).about("Open event streams."),
    share!("limits.streams_per_uid_max", limits.streams_per_uid_max, |config| {
        config.limits.streams()
    })
    .example("9216"),
    duration!(
        "limits.header_timeout",
        limits.header_timeout,
        Duration::from_millis(100),
        Duration::from_secs(60)
    )
    .about("For the headers of a request, so that slow senders hold nothing up. 100ms to 60s."),
    duration!("retry.first", settings.retry_min, Duration::from_millis(10), LONGEST),
    duration!("retry.longest", settings.retry_max, Duration::from_millis(10), LONGEST),
    duration!(
        "stop.deadline",
        limits.stop_deadline,
        Duration::from_millis(100),
        Duration::from_secs(5)
    )
    .about("From SIGTERM to the end of the process, at most; at most 5s."),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tenure_service::config::Configuration;

    use super::*;

    #[test]
    fn names_and_variables_are_unique() {
        let names: HashSet<_> = all().iter().map(|key| key.name).collect();
        let variables: HashSet<_> = all().iter().map(Key::variable).collect();
        assert_eq!((names.len(), variables.len()), (all().len(), all().len()));
        assert!(Config::find("redis.timeout").is_some());
        assert_eq!(Config::find("leader.ttl").unwrap().variable(), "TENURED_LEADER_TTL");
    }
}
