//! Pure. Checks calls of the control plane (RFC-049), and decides before the store is asked.
//!
//! A mailbox is a lease: its name is the mailbox id, the name of its owner the runner id. The session of a runner is
//! one run of its program, so that two processes that go by one runner id are two.

use std::time::Duration;

use tenure_bounds::Globs;
use tenure_core::model::{ClaimId, LeaseTimes, SessionId};
use tenure_core::time::Boottime;
use tenure_proto::prism::admin::v1::AcquireLeaseRequest;
use tenure_stores::gateway::scope::Mark;
use tenure_wire::Attributes;
use tenure_wire::rules::{
    self, ATTRIBUTES_MAX, Checked, Invalid, optional, visible, visible_within,
};
use uuid::{Builder, Uuid};

/// Longest status, bytes.
const STATUS_MAX: usize = 32;
/// Most bytes of an address and a proxy's id together, so that each status fits beside them.
const ADDRESS_AND_PROXY_MAX: usize = ATTRIBUTES_MAX - STATUS_MAX;
/// Longest and shortest ttl, s.
const TTL_MAX_S: i64 = 24 * 3600;
const TTL_MIN_S: i64 = 1;
/// The status of a route whose runner does well.
pub const ACTIVE: &str = "active";
/// Partitions are numbered below this.
const PARTITIONS: i32 = 256;
/// A run without a connection makes way after this part of its ttl.
const MAKES_WAY_AFTER: u32 = 4;
/// The store counts a time without heartbeats to no less than this.
const STORE_TICK: Duration = Duration::from_millis(10);
/// The space of the names of sessions and claims.
const SPACE: Uuid = Uuid::from_u128(0x2b1f_6c1e_70f4_4c59_9d0a_5e3a_0d2f_8981);

/// The times of the leases of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Of a lease whose runner names none.
    pub ttl: Duration,
    pub heartbeat_interval: Duration,
    pub grace_period: Duration,
    /// A new run takes over at once, as RFC-049 has it.
    pub legacy: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            ttl: Duration::from_secs(300),
            heartbeat_interval: Duration::from_secs(60),
            grace_period: Duration::from_secs(60),
            legacy: false,
        }
    }
}

/// A policy of namespaces; what it leaves open is as for all others.
#[derive(Debug, Clone)]
pub struct Exception {
    pub namespaces: Globs,
    pub ttl: Option<Duration>,
    pub heartbeat_interval: Option<Duration>,
    pub grace_period: Option<Duration>,
    pub legacy: Option<bool>,
}

/// The policies of all namespaces.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    pub default: Policy,
    /// The first one that fits counts.
    pub exceptions: Vec<Exception>,
}

impl Policies {
    /// The policy of a mailbox.
    pub fn of(&self, mailbox_id: &str) -> Policy {
        let namespace = mailbox_id.rsplit_once('@').map_or(mailbox_id, |(namespace, _)| namespace);
        let all = self.default;
        let fits = |it: &&Exception| it.namespaces.is_match(namespace);
        self.exceptions.iter().find(fits).map_or(all, |it| Policy {
            ttl: it.ttl.unwrap_or(all.ttl),
            heartbeat_interval: it.heartbeat_interval.unwrap_or(all.heartbeat_interval),
            grace_period: it.grace_period.unwrap_or(all.grace_period),
            legacy: it.legacy.unwrap_or(all.legacy),
        })
    }
}

/// A lease that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub ttl: Duration,
    pub grace: Duration,
    pub attributes: Attributes,
    pub legacy: bool,
}

/// Checks the ids that every call has.
///
/// # Errors
///
/// With the field and its rule.
pub fn check_ids(mailbox_id: &str, runner_id: &str) -> Checked {
    visible("mailbox_id", mailbox_id)?;
    visible("runner_id", runner_id)
}

/// A text as a message has it: an empty one is none.
pub fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Checks the wish of a runner.
///
/// # Errors
///
/// With the field and its rule.
pub fn check_acquire(asked: &AcquireLeaseRequest, policy: &Policy) -> Result<Wanted, Invalid> {
    check_ids(&asked.mailbox_id, &asked.runner_id)?;
    optional("proxy_id", text(&asked.proxy_id), visible)?;
    optional("address", text(&asked.address), visible)?;
    let of_id =
        asked.mailbox_id.rsplit_once('@').map(|(_, proxy)| proxy).filter(|it| !it.is_empty());
    if let Some(proxy) = of_id
        && !asked.proxy_id.is_empty()
        && asked.proxy_id != proxy
    {
        let rule = format!("that of mailbox_id, {}", rules::quote(proxy));
        let way_out = "leave proxy_id out, or correct one of them";
        return Err(Invalid::new("proxy_id", &asked.proxy_id, &rule, way_out));
    }
    if !(0..PARTITIONS).contains(&asked.partition) {
        let way_out =
            "choose a number in between; 0 lets the control plane compute it from mailbox_id";
        return Err(Invalid::new("partition", &asked.partition.to_string(), "0 to 255", way_out));
    }
    let ttl = match asked.ttl_seconds {
        ..=0 => policy.ttl,
        seconds @ TTL_MIN_S..=TTL_MAX_S => Duration::from_secs(seconds.unsigned_abs()),
        other => {
            let rule = format!("{TTL_MIN_S} to {TTL_MAX_S}");
            let way_out = format!(
                "choose a number in between; 0 is the namespace's own, {}",
                policy.ttl.as_secs()
            );
            return Err(Invalid::new("ttl_seconds", &other.to_string(), &rule, &way_out));
        }
    };
    let attributes = Attributes {
        address: text(&asked.address).map(str::to_owned),
        proxy_id: text(&asked.proxy_id).or(of_id).map(str::to_owned),
        partition: u16::try_from(asked.partition).ok().filter(|partition| *partition > 0),
        status: None,
    };
    let texts = [&attributes.address, &attributes.proxy_id];
    let bytes: usize = texts.into_iter().flatten().map(String::len).sum();
    if bytes > ADDRESS_AND_PROXY_MAX {
        let rule = format!("at most {ADDRESS_AND_PROXY_MAX} bytes together with proxy_id");
        return Err(Invalid::new(
            "address",
            &format!("{bytes} bytes"),
            &rule,
            "choose a shorter one",
        ));
    }
    let legacy = asked.legacy || policy.legacy;
    Ok(Wanted { ttl, grace: policy.grace_period, attributes, legacy })
}

/// The status of a route, from that of a heartbeat. A healthy runner's is that of every lease.
///
/// # Errors
///
/// With the field and its rule.
pub fn status(said: &str) -> Result<Option<&str>, Invalid> {
    match said {
        "" | "healthy" | "active" => Ok(None),
        "expiring" | "expired" => {
            let rule = "one that the control plane does not say by itself";
            Err(Invalid::new("status", said, rule, "send healthy or degraded"))
        }
        said => visible_within("status", said, STATUS_MAX).map(|()| Some(said)),
    }
}

/// A gateway's run: which gateway, and which run of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatewayRun {
    /// It keeps this.
    pub gateway: [u8; 3],
    pub run: [u8; 2],
}

impl GatewayRun {
    /// True if a connection was to an earlier run of this gateway, and thus is gone.
    pub fn is_before(self, session: SessionId) -> bool {
        let [a, b, c, d, e, ..] = session.0.into_bytes();
        is_of_connection(session) && [a, b, c] == self.gateway && [d, e] != self.run
    }
}

/// A run of a runner's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incarnation {
    /// The program says so.
    Said(String),
    /// Its connection, and to which run of which gateway that is.
    Connection(Uuid, GatewayRun),
}

/// The session of a run. That of a connection can be told from that of a program that names its run, and begins with
/// its gateway and run.
pub fn session(mark: Mark, principal: &str, runner_id: &str, run: &Incarnation) -> SessionId {
    let named =
        |run: &str| Uuid::new_v5(&SPACE, format!("{principal}\0{runner_id}\0{run}").as_bytes());
    SessionId(mark.scoped(match run {
        Incarnation::Said(said) => named(said),
        Incarnation::Connection(id, GatewayRun { gateway, run }) => {
            let mut bytes = named(&id.to_string()).into_bytes();
            bytes.iter_mut().zip(gateway.iter().chain(run)).for_each(|(to, from)| *to = *from);
            Builder::from_custom_bytes(bytes).into_uuid()
        }
    }))
}

/// True if a session is that of a connection.
pub fn is_of_connection(session: SessionId) -> bool {
    session.0.get_version_num() == 8
}

/// The first claim of a run for a mailbox.
pub fn claim(mark: Mark, session: SessionId, mailbox_id: &str) -> ClaimId {
    ClaimId(mark.scoped(Uuid::new_v5(&session.0, mailbox_id.as_bytes())))
}

/// The connection of a run, as far as a gateway knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    Open,
    LostAt(Boottime),
    /// It was to an earlier run of this gateway.
    Over,
    /// It is at another gateway, or this one remembers no more of it.
    Unknown,
}

/// The last word to a connection, of a mailbox that another one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// That it is another process's, by which it is.
    Denied,
    /// To ask again, after so long without a heartbeat from the holder.
    Unsure { at: Boottime, unbeaten: Duration },
}

/// The outcome of a heartbeat over another connection than the holder's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Following {
    /// The holder's connection is gone, and this process is taken for the same: it gets a lease of its own if nobody
    /// has renewed that one for so long.
    TakesOver { unbeaten: Duration },
    /// The holder lives.
    Another,
    /// Whether the holder lives is known after this time at the latest.
    Unsure { wait: Duration },
}

/// The name of what a connection was told of a mailbox.
pub fn matter(session: SessionId, tenant: &str, mailbox_id: &str) -> Uuid {
    Uuid::new_v5(&session.0, format!("{tenant}\0{mailbox_id}").as_bytes())
}

/// Decides about a heartbeat over another connection than that of the holder, which was looked up at `asked`.
///
/// A process that goes by this runner id and was denied the mailbox is another one. Else it may be the holder, which has
/// reconnected: so it is if the former connection is known to be gone. A connection elsewhere shows by its heartbeats
/// that it is there.
pub fn follow(
    asked: Boottime,
    times: &LeaseTimes,
    policy: &Policy,
    connection: Connection,
    told: Option<Told>,
) -> Following {
    match (told, connection) {
        (Some(Told::Denied), _) | (_, Connection::Open) => return Following::Another,
        (_, Connection::LostAt(_) | Connection::Over) => {
            return Following::TakesOver { unbeaten: Duration::ZERO };
        }
        (Some(Told::Unsure { at, unbeaten }), Connection::Unknown)
            if unbeaten + asked.since(at) > times.unbeaten + STORE_TICK =>
        {
            return Following::Another;
        }
        (_, Connection::Unknown) => {}
    }
    match take_over_after(asked, times, policy, connection) {
        Ok(unbeaten) => Following::TakesOver { unbeaten },
        Err(wait) => Following::Unsure { wait: wait.unwrap_or_default() },
    }
}

/// For how long nobody must have renewed a lease that a new run of its runner takes over.
///
/// # Errors
///
/// With how long to wait at least; `None` while the old run is connected.
pub fn take_over_after(
    now: Boottime,
    times: &LeaseTimes,
    policy: &Policy,
    connection: Connection,
) -> Result<Duration, Option<Duration>> {
    let part = times.ttl / MAKES_WAY_AFTER;
    let (after, lost_for) = match connection {
        Connection::Open => return Err(None),
        Connection::LostAt(lost) => (part, now.since(lost)),
        // A run that is connected elsewhere shows that by its heartbeats.
        Connection::Over | Connection::Unknown => {
            (part + policy.heartbeat_interval.min(times.ttl), Duration::MAX)
        }
    };
    let quiet = times.unbeaten.min(lost_for);
    if quiet < after { Err(Some(after - quiet)) } else { Ok(after) }
}

/// For how long a lease may be acted on, from the instant at which it was asked for.
pub fn valid_for(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 200 + Duration::from_millis(10))
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
