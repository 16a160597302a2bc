//! Every key, once: how it is written, where it goes, how it is shown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use axum::http::{HeaderName, header};
use tenure_service::browsers::HostList;
use tenure_service::config::Key;
use tenure_service::telemetry::{LogFormat, log};
use tenure_stores::settings::{self, Doc, Refusal, SectionKey, Shape, Value, secret, value};
use tenure_stores::{duration_key, optional_path_key};

use super::limits::LIMITS;
use super::{Mode, Settings};
use crate::access::Rights;
use crate::delivery::{Network, show};

/// All keys, in the order in which `check-config` prints them: the gateway's own, then those of stores. A
/// gateway has no other gateway behind it.
pub(super) fn all() -> &'static [Key<Settings>] {
    static ALL: LazyLock<Vec<Key<Settings>>> = LazyLock::new(|| {
        let is_of_store = |key: &SectionKey| !key.name.starts_with("gateway.");
        let mut all = Key::list(&KEYS, &super::stores(), is_of_store);
        let at = all.iter().position(|key| key.name == "session.ttl").unwrap_or(all.len());
        all.splice(at..at, Key::list(&LIMITS, &super::stores(), |_| false));
        all
    });
    &ALL
}

const S: Duration = Duration::from_secs(1);
/// Most networks for proxies; each dial looks through them.
const NETWORKS_MAX: usize = 64;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// An address with a port. Of names one is an address for certain: what others are is known to the network alone, and may
/// change while the gateway runs.
fn address(text: &str) -> Result<SocketAddr, Refusal> {
    let of_localhost = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    of_localhost.as_deref().unwrap_or(text).parse().map_err(|_| {
        "must be an address with a port, such as \"127.0.0.1:8740\", \"localhost:8740\" or \"[::]:8740\" for all \
         addresses; other names are not looked up"
            .to_owned()
    })
}

/// Rights with commas between.
pub(super) fn rights(text: &str) -> Result<Rights, Refusal> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    Rights::read(words).map_err(|(_, rule)| format!("{rule}, with commas between"))
}

/// Networks with commas between.
fn networks(text: &str) -> Result<Vec<Network>, Refusal> {
    let networks: Vec<_> =
        text.split(',').map(|one| one.trim().parse()).collect::<Result<_, _>>()?;
    match networks.len() <= NETWORKS_MAX {
        true => Ok(networks),
        false => Err(format!("must be {NETWORKS_MAX} networks at most")),
    }
}

/// The header with a person's identity, which must be none that clients send anyway.
fn identity_header(text: &str) -> Result<HeaderName, Refusal> {
    let refuse = |rule: &str| format!("must be {rule}, such as \"X-Forwarded-User\"");
    let name =
        HeaderName::from_bytes(text.as_bytes()).map_err(|_| refuse("the name of a header"))?;
    let is_taken = [header::AUTHORIZATION, header::HOST, header::ORIGIN, header::COOKIE];
    match is_taken.contains(&name) {
        true => Err(refuse("a header of the proxy alone")),
        false => Ok(name),
    }
}

/// An absolute path, or the standard output.
fn trail(text: &str) -> Result<PathBuf, Refusal> {
    if text == "-" { Ok(PathBuf::from(text)) } else { value::path(text) }
}

/// A time to live; seconds if it is a number alone, as `PRISM_SESSION_TTL_SECONDS` has it.
fn session_ttl(text: &str) -> Result<Duration, Refusal> {
    let (min, max) = (Duration::from_secs(10), Duration::from_secs(3600));
    match text.parse::<u64>() {
        Ok(seconds) => value::duration_in(&format!("{seconds}s"), min, max),
        Err(_) => value::duration_in(text, min, max),
    }
}

macro_rules! path {
    ($name:literal, $field:ident) => {
        settings::Key::<Settings> {
            name: $name,
            shape: Shape::Text,
            reloads: false,
            set: |settings, text| {
                settings.$field = value::path(text)?;
                Ok(())
            },
            get: |settings| Some(settings.$field.display().to_string().into()),
            doc: Doc::NONE,
        }
    };
}

/// A key whose value is read from a text.
macro_rules! text {
    ($name:literal, $shape:ident, $reloads:literal, $set:expr, $get:expr) => {
        settings::Key::<Settings> {
            name: $name,
            shape: Shape::$shape,
            reloads: $reloads,
            set: $set,
            get: $get,
            doc: Doc::NONE,
        }
    };
}

/// A key with a number.
macro_rules! number {
    ($name:literal, $($field:ident).+, $min:expr, $max:expr) => {
        settings::Key::<Settings> {
            name: $name,
            shape: Shape::Count,
            reloads: false,
            set: |settings, text| {
                let number = value::count(text, $min, $max)?;
                settings.$($field).+ = number.try_into().unwrap_or(settings.$($field).+);
                Ok(())
            },
            get: |settings| {
                Some(Value::Count(settings.$($field).+.try_into().unwrap_or(i64::MAX)))
            },
            doc: Doc::NONE,
        }
    };
}

static KEYS: [settings::Key<Settings>; 30] = [
    text!(
        "mode",
        Text,
        false,
        |settings, text| {
            settings.mode = Mode::parse(text)?;
            Ok(())
        },
        |settings| Some(settings.mode.to_string().into())
    )
    .about(
        "What is asked of the store and of callers before the gateway serves.
  local  (personal, development)  embedded:, or a Redis of this host or of the same containers
  lan                             keys, and a password of the Redis that stands in no example;
                                  without upstream it is redis://redis:6379/0
  cloud  (hosted)                 keys (keys_in_store or keys_file), and upstream",
    ),
    text!(
        "listen",
        Text,
        false,
        |settings, text| {
            settings.listen = address(text)?;
            Ok(())
        },
        |settings| Some(settings.listen.to_string().into())
    )
    .about("Address to serve at. Other hosts are served only with keys, in the store or in keys_file."),
    text!(
        "hosts",
        Text,
        false,
        |settings, text| {
            settings.hosts = HostList::parse(text)?;
            Ok(())
        },
        |settings| (!settings.hosts.is_empty()).then(|| settings.hosts.to_string().into())
    )
    .about(
        "Names by which the gateway is called, with commas between, where they are not in its certificate: those of a \
         balancer, a service, a container; *.corp.example for all below that. The addresses that are listened at, \
         localhost and the names of the certificate need not be here. Requests to other names are refused (421): a web page \
         can have its own name lead to this host. Pages of these names may send requests, those of others may not.",
    )
    .example("\"tenure.example, *.corp.example\""),
    text!(
        "upstream",
        Secret,
        false,
        |settings, text| settings.stores.set_url(text),
        |settings| Some(settings.stores.upstream().url().into())
    )
    .about(
        "Where truth is kept, as for an agent: see tenured.toml(5). Any number of gateways may share a \
         Redis or a Postgres; embedded: is one gateway's own. PRISM_REDIS_URL gives it, too, and PRISM_REDIS_PASSWORD the \
         password of a Redis whose URL has none.",
    ),
    optional_path_key!(Settings, "upstream_secret_file", upstream_secret_file, secret::path)
        .about(
            "A file with the store's password: one line, not readable by other users. \
             \"$CREDENTIALS_DIRECTORY/NAME\" is a credential of the service manager. Default: the \
             credential upstream-secret, if there is one. It is read at each sign-in, so a password that is rotated \
             takes no restart; a credential is a copy, and takes one.",
        )
        .example("\"/etc/tenured-gateway/upstream-secret\""),
    optional_path_key!(Settings, "keys_file", keys_file, value::path)
        .about(
            "A file with the keys of those who are let in, as `tenured-gateway keys new` makes them. The \
             gateway only reads it, again when it changes. Default: none; without keys_in_store everybody on \
             this host is let in, and nobody else.",
        )
        .example("\"/etc/tenured-gateway/keys.toml\""),
    text!(
        "keys_in_store",
        Switch,
        false,
        |settings, text| {
            settings.keys_in_store = value::switch(text)?;
            Ok(())
        },
        |settings| Some(Value::Switch(settings.keys_in_store))
    )
    .about(
        "The keys of those who are let in are in the store: every gateway over it goes by them, and \
         `tenured-gateway keys add`, list, rotate and revoke change them for all. A store of this gateway alone has \
         them in state_dir. While the store is away, the keys that were known are good.",
    ),
    text!(
        "require_keys",
        Switch,
        false,
        |settings, text| {
            settings.require_keys = value::switch(text)?;
            Ok(())
        },
        |settings| Some(Value::Switch(settings.require_keys))
    )
    .about(
        "Ask for a key on loopback, too. Without keys_file and keys_in_store the gateway makes one at its start, in the file \
         key of runtime_dir, which its user and root can read; agents of that user find it there, and \
         `tenured-gateway page` prints a link with it. In the modes lan and cloud keys are asked for anyway.",
    ),
    optional_path_key!(Settings, "audit", audit, trail)
        .about(
            "A file for the audit trail: one JSON line for each register, grant, preemption, release, loss, \
             refusal and change of a key. \"-\" is the standard output, where nothing bounds its bytes. Opened again at a \
             reload (SIGHUP). Default: none.",
        )
        .example("\"/var/log/tenured-gateway/audit.jsonl\""),
    number!("audit_bytes_max", audit_limits.bytes_max, 65_536, 1 << 40).about(
        "Most bytes of a file of the audit trail. A full one becomes audit.jsonl.1, that audit.jsonl.2, and so on.",
    ),
    number!("audit_files_max", audit_limits.files_max, 1, 1000).about(
        "Most files of the audit trail, with the one that is written; the oldest is removed.",
    ),
    number!("audit_refusals_per_second", audit_limits.refusals_per_second, 1, 100_000).about(
        "Most refusals of one source that the audit trail has in a second, after five times as many at once. A source is a \
         principal, or the IPv4 address or IPv6 /64 of a caller that was not let in. Of the others each source has one \
         line in 10 s, refusals_left_out, with their count. Nothing that succeeded is left out for them.",
    ),
    text!(
        "insecure",
        Switch,
        false,
        |settings, text| {
            settings.insecure = value::switch(text)?;
            Ok(())
        },
        |settings| Some(Value::Switch(settings.insecure))
    )
    .about("Serve other hosts without TLS. Whoever is on the way can read keys."),
    text!(
        "certificate_rights",
        Text,
        false,
        |settings, text| {
            settings.certificate_rights = rights(text)?;
            Ok(())
        },
        |settings| Some(settings.certificate_rights.to_string().into()).filter(|_| settings.certificate_rights != Rights::NONE)
    )
    .about(
        "The rights of callers that tls.client_ca_file lets in without a key, such as \"owners, history\": revoke, limit, \
         proxy, history, agents, examine, metrics, audit and owners, or all for all of them. Default: none.",
    )
    .example("\"owners, history\""),
    text!(
        "proxy_networks",
        Text,
        false,
        |settings, text| {
            settings.proxy_networks = Some(networks(text)?);
            Ok(())
        },
        |settings| settings.proxy_networks.as_deref().map(|it| show(it).into())
    )
    .about(
        "The networks in which proxies may be that call RegisterProxy: the gateway connects to them. Addresses of \
         loopback, link-local, multicast and of this host are in none but a network that is for such addresses alone, such as \
         \"127.0.0.0/8\". Default: every address but those; loopback, too, if listen is a loopback address. Proxies of \
         [[proxies]] may be anywhere.",
    )
    .example("\"10.0.0.0/8,fd00::/8\""),
    text!(
        "trusted_proxies",
        Text,
        false,
        |settings, text| {
            settings.trusted_proxies = networks(text)?;
            Ok(())
        },
        |settings| Some(show(&settings.trusted_proxies).into()).filter(|_| !settings.trusted_proxies.is_empty())
    )
    .about(
        "The networks of reverse proxies that sign people in, and name them in identity_header. Every program that \
         can connect from these networks can claim to be anyone of [[people]]. Default: none.",
    )
    .example("\"10.0.0.7\""),
    text!(
        "identity_header",
        Text,
        false,
        |settings, text| {
            settings.identity_header = Some(identity_header(text)?);
            Ok(())
        },
        |settings| settings.identity_header.as_ref().map(|name| name.as_str().to_owned().into())
    )
    .about(
        "The header in which these proxies name the person who signed in. They must replace a client's own header, and pass \
         on no Authorization of theirs. It counts on the page alone, and from trusted_proxies alone. It takes a gateway that \
         requires keys, and a section [[people]] with the person's rights. Default: none.",
    )
    .example("\"X-Forwarded-User\""),
    path!("state_dir", state_dir).about("What must survive a reboot."),
    path!("runtime_dir", runtime_dir).about("What may be lost at a reboot. It belongs into memory."),
    text!(
        "log",
        Text,
        true,
        |settings, text| {
            log::check(text)?;
            settings.log = text.to_owned();
            Ok(())
        },
        |settings| Some(settings.log.clone().into())
    )
    .about(
        "error, warn, info, debug or trace, or a filter such as \"info,tenured_gateway::face=debug\"; off \
         for nothing. Can be changed by a reload (SIGHUP).",
    ),
    text!(
        "log_format",
        Text,
        false,
        |settings, text| {
            settings.log_format = LogFormat::parse(text)?;
            Ok(())
        },
        |settings| Some(settings.log_format.word().to_owned().into())
    )
    .about("human, json or journald; auto is human on a terminal, journald in a service, else json."),
    optional_path_key!(Settings, "tls.cert_file", tls.certificate, value::path)
        .about(
            "The gateway's certificate and those that lead to its authority, in PEM format; with it TLS is \
             spoken, and nothing else. A new connection has certificates that were replaced; bad ones change nothing.",
        )
        .example("\"/etc/tenured-gateway/tls.pem\""),
    optional_path_key!(Settings, "tls.key_file", tls.key, value::path)
        .about("The private key of that certificate.")
        .example("\"/etc/tenured-gateway/tls.key\""),
    optional_path_key!(Settings, "tls.client_ca_file", tls.clients, value::path)
        .about(
            "The authorities of clients: who shows a certificate of theirs is let in as its spiffe:// URI, \
             or its common name, without the bounds that a key can have. Who shows a key, too, is whose that \
             is. Without keys nobody else is let in.",
        )
        .example("\"/etc/tenured-gateway/clients.pem\""),
    text!(
        "session.ttl",
        Duration,
        false,
        |settings, text| {
            settings.session_ttl = session_ttl(text)?;
            Ok(())
        },
        |settings| Some(value::show(settings.session_ttl).into())
    )
    .about(
        "How long a session of the session plane outlives its last heartbeat: 10s to 1h. \
         PRISM_SESSION_TTL_SECONDS gives it, too.",
    ),
    duration_key!(Settings, "mailbox.ttl", policies.default.ttl, S, DAY).about(
        "The control plane of RFC-049, over gRPC at the same address (8981 in the RFC): how long the lease of a \
         mailbox outlives its runner's last heartbeat, where the runner does not say; 1s to 24h. For a development \
         machine: 60s, with heartbeats and a grace of 10s.",
    ),
    duration_key!(
        Settings,
        "mailbox.heartbeat_interval",
        policies.default.heartbeat_interval,
        S,
        DAY
    )
    .about(
        "How often a runner is expected to send a heartbeat. A new process of a runner whose connection this \
         gateway does not know waits for so long, and a quarter of the ttl, after the last one.",
    ),
    duration_key!(
        Settings,
        "mailbox.grace_period",
        policies.default.grace_period,
        Duration::ZERO,
        DAY
    )
    .about("For how long after its ttl a lease is kept for its runner; its route says expiring."),
    text!(
        "mailbox.legacy",
        Switch,
        false,
        |settings, text| {
            settings.policies.default.legacy = value::switch(text)?;
            Ok(())
        },
        |settings| Some(Value::Switch(settings.policies.default.legacy))
    )
    .about(
        "Have a new process of a runner take over at once, as RFC-049 does, though the former one may still run.",
    ),
    duration_key!(
        Settings,
        "stop.deadline",
        stop_deadline,
        Duration::from_millis(100),
        Duration::from_secs(60)
    )
    .about("From SIGTERM to the end of the process, at most; at most 60s."),
];
