//! Rules of fields that go together, and of times that settings bound; [`rules`](tenure_wire::rules) has all others.

use std::time::Duration;

use tenure_core::keeper::{BEAT_MIN, Settings};
use tenure_wire::page::SLOTS_MAX;
use tenure_wire::rules::{
    AT_LEAST_MAX, Checked, Invalid, NAME_MAX, attributes, foreign_text, number, optional, permits,
    scope, visible,
};
use tenure_wire::{Acquire, Kind, Leftovers, Register, Tether, Wait};

/// The greatest number of a process: `PID_MAX_LIMIT` of Linux.
pub(super) const PID_MAX: u32 = 4_194_304;
/// Most processes that a command left behind which its session names.
pub(super) const LEFTOVERS_MAX: usize = 8;
/// Shortest duration of a hold, ms: the upstream's answer takes its part of it.
pub(super) const MAX_HOLD_MIN_MS: u64 = 100;

/// Checks a registration. Of a resumption only the secret matters, as the rest is ignored.
pub(super) fn register(ask: &Register, settings: &Settings) -> Checked {
    if let Some(resume) = &ask.resume {
        return visible("resume.secret", &resume.secret);
    }
    optional("name", ask.name.as_deref(), visible)?;
    optional("surface", ask.surface.as_deref(), visible)?;
    optional("tenant", ask.tenant.as_deref(), scope)?;
    optional("project", ask.project.as_deref(), scope)?;
    if let Some(pid) = ask.pid
        && ask.tether != Some(Tether::Process)
    {
        return refuse(
            "pid",
            pid,
            "only the tether \"process\" is tied to a process that is named",
            "add \"tether\":\"process\", or leave it out",
        );
    }
    between("keepalive_ms", ask.keepalive_ms, BEAT_MIN, settings.ttl_max)?;
    between("linger_ms", ask.linger_ms, Duration::ZERO, settings.ttl_max)?;
    between("progress_ms", ask.progress_ms, BEAT_MIN, settings.ttl_max)?;
    if let Some(holds) = ask.holds
        && !(1..=SLOTS_MAX).contains(&holds)
    {
        let rule = format!("1 to {SLOTS_MAX}");
        return refuse("holds", holds, &rule, "leave it out for the default, 63");
    }
    ttl(ask.ttl_ms, settings)
}

/// Checks what a command left behind.
pub(super) fn leftovers(ask: &Leftovers) -> Checked {
    let count = ask.processes.len();
    if count > LEFTOVERS_MAX {
        let rule = format!("{LEFTOVERS_MAX} processes at most");
        return refuse("processes", format!("{count} processes"), &rule, "name some of them");
    }
    for (pid, program) in &ask.processes {
        number("processes", u64::from(*pid), 1..=u64::from(PID_MAX))?;
        foreign_text("processes", program, NAME_MAX)?;
    }
    Ok(())
}

/// Checks a wish to hold something.
pub(super) fn acquire(ask: &Acquire, settings: &Settings) -> Checked {
    let kind = ask.kind;
    match (&ask.name, kind) {
        (Some(value), Kind::Master) => {
            return refuse(
                "name",
                value,
                "a master has no name: it is its session's project",
                "leave it out, and name the project when the session registers",
            );
        }
        (None, Kind::Master) => {}
        (Some(name), _) => visible("name", name)?,
        (None, _) => {
            let rule = format!("a {kind} has a name of 1 to {NAME_MAX} bytes");
            return Err(Invalid::missing("name", &rule, "add it"));
        }
    }
    optional("request", ask.request.as_deref(), visible)?;
    if let (Some(ms), Wait::None) = (ask.timeout_ms, ask.wait) {
        return refuse(
            "timeout_ms",
            ms,
            "only a wait has it, and \"wait\" is \"none\" here",
            "add \"wait\":\"block\" or \"queue\", or leave it out",
        );
    }
    ttl(ask.ttl_ms, settings)?;
    if let Some(ms) = ask.max_hold_ms
        && ms < MAX_HOLD_MIN_MS
    {
        let rule = format!("at least {MAX_HOLD_MIN_MS}, as it is counted from the request on");
        return refuse("max_hold_ms", ms, &rule, "leave it out to hold without a limit");
    }
    between("hold_at_least_ms", ask.hold_at_least_ms, Duration::ZERO, AT_LEAST_MAX)?;
    only(kind, Kind::Semaphore, "limit", ask.limit)?;
    ask.limit.map_or(Ok(()), |limit| permits("limit", limit))?;
    only(kind, Kind::Master, "priority", ask.priority)?;
    only(kind, Kind::Lease, "grace_ms", ask.grace_ms)?;
    between("grace_ms", ask.grace_ms, Duration::ZERO, settings.ttl_max)?;
    match &ask.attributes {
        None => Ok(()),
        Some(_) if kind != Kind::Lease => only(kind, Kind::Lease, "attributes", Some("{…}")),
        Some(some) => attributes(some),
    }
}

/// A ttl leaves room for two beats, one of which may be lost.
fn ttl(ms: Option<u64>, settings: &Settings) -> Checked {
    let Some(ms) = ms else { return Ok(()) };
    let (min, max) = (millis(settings.ttl_min), millis(settings.ttl_max));
    if (min..=max).contains(&ms) {
        return Ok(());
    }
    let rule =
        format!("ttl > 2 × beat with beat ≥ {} ms, so {min} to {max} ms here", millis(BEAT_MIN));
    refuse("ttl_ms", ms, &rule, "choose a number in between, or leave it out for the default")
}

/// At most so long.
pub(super) fn within(field: &str, ms: Option<u64>, max: Duration) -> Checked {
    between(field, ms, Duration::ZERO, max)
}

fn between(field: &str, ms: Option<u64>, min: Duration, max: Duration) -> Checked {
    let (min, max) = (millis(min), millis(max));
    match ms {
        Some(ms) if !(min..=max).contains(&ms) => refuse(
            field,
            ms,
            &format!("{min} to {max} ms"),
            "choose a number in between, or leave it out for the default",
        ),
        _ => Ok(()),
    }
}

fn only<T: ToString>(kind: Kind, of: Kind, field: &str, value: Option<T>) -> Checked {
    match value {
        Some(value) if kind != of => refuse(
            field,
            value,
            &format!("only a {of} has it, and this is a {kind}"),
            "leave it out",
        ),
        _ => Ok(()),
    }
}

fn refuse(field: &str, value: impl ToString, rule: &str, way_out: &str) -> Checked {
    Err(Invalid::new(field, &value.to_string(), rule, way_out))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
