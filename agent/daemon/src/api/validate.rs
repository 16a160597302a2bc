//! Rules of fields. Pure; every refusal names the field, the value, the rule and the way out.

use std::time::Duration;

use tenure_core::keeper::{BEAT_MIN, Settings};
use tenure_core::model::is_own_tenant;
use tenure_wire::page::SLOTS_MAX;
use tenure_wire::{Acquire, Attributes, Kind, Problem, Register, Wait};

use super::limits::QUOTED_MAX;

/// Shortest duration of a hold, ms: the upstream's answer takes its part of it.
pub(super) const MAX_HOLD_MIN_MS: u64 = 100;
/// Longest time for which a hold is kept from others whatever becomes of its program.
pub(super) const AT_LEAST_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest name of anything, bytes.
pub(super) const NAME_MAX: usize = 200;
/// Most permits of a semaphore.
pub(super) const PERMITS_MAX: u32 = 1_000_000;
/// Most bytes of a lease's attributes together: every agent keeps the routing table.
pub(super) const ATTRIBUTES_MAX: usize = 400;
/// Highest partition of the routing table.
pub(super) const PARTITION_MAX: u16 = 255;

type Checked = Result<(), Box<Problem>>;

/// Checks a registration. Of a resumption only the secret matters, as the rest is ignored.
pub(super) fn register(ask: &Register, settings: &Settings) -> Checked {
    if let Some(resume) = &ask.resume {
        return visible("resume.secret", &resume.secret);
    }
    optional("name", ask.name.as_deref(), visible)?;
    optional("surface", ask.surface.as_deref(), visible)?;
    optional("tenant", ask.tenant.as_deref(), scope)?;
    optional("project", ask.project.as_deref(), scope)?;
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
            return Err(Problem::invalid(
                "name",
                format!("name is missing: a {kind} has one, 1 to {NAME_MAX} bytes; add it"),
            )
            .into());
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
    if let Some(limit) = ask.limit
        && !(1..=PERMITS_MAX).contains(&limit)
    {
        let rule = format!("1 to {PERMITS_MAX} permits");
        return refuse("limit", limit, &rule, "choose a number in between");
    }
    only(kind, Kind::Master, "priority", ask.priority)?;
    only(kind, Kind::Lease, "grace_ms", ask.grace_ms)?;
    between("grace_ms", ask.grace_ms, Duration::ZERO, settings.ttl_max)?;
    match &ask.attributes {
        None => Ok(()),
        Some(_) if kind != Kind::Lease => only(kind, Kind::Lease, "attributes", Some("{…}")),
        Some(some) => attributes(some),
    }
}

fn attributes(ask: &Attributes) -> Checked {
    optional("attributes.address", ask.address.as_deref(), visible)?;
    optional("attributes.proxy_id", ask.proxy_id.as_deref(), visible)?;
    optional("attributes.status", ask.status.as_deref(), visible)?;
    let texts = [&ask.address, &ask.proxy_id, &ask.status];
    let bytes: usize = texts.into_iter().flatten().map(String::len).sum();
    if bytes > ATTRIBUTES_MAX {
        let rule =
            format!("address, proxy_id and status of at most {ATTRIBUTES_MAX} bytes together");
        return refuse("attributes", format!("{bytes} bytes"), &rule, "choose shorter ones");
    }
    match ask.partition {
        Some(partition) if partition > PARTITION_MAX => refuse(
            "attributes.partition",
            partition,
            "0 to 255",
            "choose a number in between, or leave it out to derive it from the name",
        ),
        _ => Ok(()),
    }
}

/// 1–200 bytes of UTF-8 that people can see and tell apart in a log.
pub(super) fn visible(field: &str, value: &str) -> Checked {
    let rule = format!("1 to {NAME_MAX} bytes of visible UTF-8");
    if value.is_empty() || value.len() > NAME_MAX {
        let rule = format!("{rule}; this has {}", value.len());
        return refuse(field, value, &rule, "choose another");
    }
    if let Some(bad) = value.chars().find(|&c| is_hidden(c)) {
        let rule = format!("{rule}; U+{:04X} cannot be seen", u32::from(bad));
        return refuse(field, value, &rule, "leave that character out");
    }
    if value.starts_with(char::is_whitespace) || value.ends_with(char::is_whitespace) {
        let rule = format!("{rule} without white space around it");
        return refuse(field, value, &rule, "trim it");
    }
    if let Some(bad) = misplaced_joiner(value) {
        let rule =
            format!("{rule}; U+{:04X} cannot be seen beside white space or ASCII", u32::from(bad));
        return refuse(field, value, &rule, "leave that character out");
    }
    Ok(())
}

/// A tenant or project: as [`visible`], without the colon that upstream keys are split at.
pub(super) fn scope(field: &str, value: &str) -> Checked {
    visible(field, value)?;
    if field == "tenant" && is_own_tenant(value) {
        return refuse(field, value, "not one that Tenure keeps for itself", "use another one");
    }
    if value.contains(':') {
        return refuse(field, value, "no ':', which separates the parts of keys", "use '-' or '/'");
    }
    Ok(())
}

/// A resource's name where it says all: that of a master is a project's.
pub(super) fn resource_name(kind: Kind, name: &str) -> Checked {
    match kind {
        Kind::Master => scope("name", name),
        Kind::Leader | Kind::Lease | Kind::Semaphore => visible("name", name),
    }
}

/// Control characters, separators and spaces but the ordinary one, bidi controls, fillers, variation
/// selectors, and characters without width: names that look alike must be alike. The joiners of Indic
/// scripts, Persian and emoji stay: they change what is seen.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{ffff}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// A joiner that joins nothing: at an end, or beside a character that it cannot change.
fn misplaced_joiner(value: &str) -> Option<char> {
    let is_joiner = |c: char| matches!(c, '\u{200c}' | '\u{200d}');
    let joins = |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !is_joiner(c));
    let mut before = None;
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        if is_joiner(c) && !(joins(before) && joins(rest.clone().next())) {
            return Some(c);
        }
        before = Some(c);
    }
    None
}

fn optional(field: &str, value: Option<&str>, check: fn(&str, &str) -> Checked) -> Checked {
    value.map_or(Ok(()), |value| check(field, value))
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
    let value = quote(&value.to_string());
    Err(Problem::invalid(field, format!("{field} is {value}; the rule: {rule}; {way_out}")).into())
}

/// A value as an error repeats it: shortened, and with nothing that could forge a line of a log.
pub(super) fn quote(value: &str) -> String {
    let is_long = value.chars().nth(QUOTED_MAX).is_some();
    let mut short = escape(value.chars().take(QUOTED_MAX));
    if is_long {
        short.push('…');
    }
    if value.parse::<i128>().is_ok() { short } else { format!("'{short}'") }
}

/// A text in which nothing can forge a line of a log.
pub(super) fn escape(text: impl Iterator<Item = char>) -> String {
    text.flat_map(|c| if is_hidden(c) { c.escape_default().collect() } else { vec![c] }).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
