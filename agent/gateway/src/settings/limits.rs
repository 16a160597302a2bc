//! The keys of limits: what callers may have.

use tenure_stores::settings::{self, Doc, Shape, Value, value};

use super::Settings;

/// The largest values of limits.
const CONNECTIONS_MAX: u64 = 65_536;
const NUMBER_MAX: u64 = 10_000_000;
const BYTES_MAX: u64 = 1 << 40;

/// A key with a limit.
macro_rules! count {
    ($name:literal, $min:literal, $max:expr, $($field:ident).+) => {
        settings::Key::<Settings> {
            name: $name,
            shape: Shape::Count,
            reloads: false,
            set: |settings, text| {
                let count = value::count(text, $min, $max)?;
                settings.limits.$($field).+ = usize::try_from(count).unwrap_or(usize::MAX);
                Ok(())
            },
            get: |settings| {
                Some(Value::Count(i64::try_from(settings.limits.$($field).+).unwrap_or(i64::MAX)))
            },
            doc: Doc::NONE,
        }
    };
}

/// A key with a limit that follows from others if it is not set.
macro_rules! optional_count {
    ($name:literal, $min:literal, $max:expr, $($field:ident).+) => {
        settings::Key::<Settings> {
            name: $name,
            shape: Shape::Count,
            reloads: false,
            set: |settings, text| {
                let count = value::count(text, $min, $max)?;
                settings.limits.$($field).+ = usize::try_from(count).ok();
                Ok(())
            },
            get: |settings| {
                let count = settings.limits.$($field).+;
                count.and_then(|count| i64::try_from(count).ok()).map(Value::Count)
            },
            doc: Doc::NONE,
        }
    };
}

/// The keys, in the order in which `check-config` prints them.
pub(super) static LIMITS: [settings::Key<Settings>; 19] = [
    count!("limits.connections", 16, CONNECTIONS_MAX, connections.connections).about(
        "Most open connections. Where no keys are asked for, more wait until one ends; else those of strangers make way.",
    ),
    count!("limits.connections_per_address", 1, CONNECTIONS_MAX, connections.per_address).about(
        "Most open connections from one IPv4 address or IPv6 /64. A balancer is one address. A quarter is left to new \
         connections, and one principal has three eighths: what it has beyond that makes way for new ones when all are open.",
    ),
    optional_count!("limits.anonymous_connections", 1, CONNECTIONS_MAX, connections.anonymous)
        .about(
            "Of them, most whose caller has shown no good key or certificate: beyond, the one that has been there longest, \
             of the address with the most, is closed for another. Left out, a quarter of limits.connections.",
        )
        .example("1024"),
    optional_count!(
        "limits.anonymous_connections_per_address",
        1,
        CONNECTIONS_MAX,
        connections.anonymous_per_address
    )
    .about("The same from one address. Left out, a quarter of limits.connections_per_address.")
    .example("256"),
    count!("limits.body_bytes", 1_048_576, BYTES_MAX, bodies.all).about(
        "Bytes of bodies of all requests that are read or carried out; callers that have shown no key may have an eighth.",
    ),
    count!("limits.body_bytes_per_principal", 1_048_576, BYTES_MAX, bodies.per_principal)
        .about("The same of one principal."),
    count!("limits.body_bytes_per_address", 1_048_576, BYTES_MAX, bodies.per_address)
        .about("The same from one address."),
    count!("limits.reply_bytes", 1_048_576, BYTES_MAX, replies.all)
        .about("Bytes of answers that wait for their readers."),
    count!("limits.reply_bytes_per_principal", 1_048_576, BYTES_MAX, replies.per_principal)
        .about("The same of one principal."),
    count!("limits.reply_bytes_per_address", 1_048_576, BYTES_MAX, replies.per_address)
        .about("The same for one address."),
    count!("limits.sessions_per_principal", 1, NUMBER_MAX, quotas.sessions)
        .about("Sessions of a principal, unless its key has sessions_max; as those that follow."),
    count!("limits.holds_per_principal", 1, NUMBER_MAX, quotas.holds)
        .about("Holds of a principal, waiting ones counted (holds_max)."),
    count!("limits.waiters_per_principal", 1, NUMBER_MAX, quotas.waiters)
        .about("Waiting holds of a principal (waiters_max)."),
    count!("limits.calls_per_principal", 1, NUMBER_MAX, quotas.calls)
        .about("Calls of a principal at a time; as many with beats come on top (calls_max)."),
    count!("limits.streams_per_principal", 1, NUMBER_MAX, quotas.streams)
        .about("Open streams of a principal (streams_max)."),
    count!("limits.proxies_per_principal", 1, 1024, quotas.proxies)
        .about("Proxies that a principal registers (proxies_max)."),
    count!("limits.bytes_kept_per_principal", 65_536, BYTES_MAX, quotas.bytes).about(
        "Bytes that a principal keeps in the store: 256 for each session and hold, and the names in it (bytes_max).",
    ),
    count!("limits.rows_per_second_per_principal", 1, NUMBER_MAX, quotas.rows_per_second).about(
        "Rows of listings and history that a principal with a key reads in a second, in the long run; five times as many come \
         at once, and beyond that its reads wait (rows_per_second).",
    ),
    count!("limits.bytes_kept", 65_536, BYTES_MAX, bytes_kept)
        .about("The same of all principals, as far as it passes through this gateway."),
];
