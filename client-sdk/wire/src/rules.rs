//! What may stand in a request: the rules of names, texts and numbers.
//!
//! Agent, gateway, command and SDK judge by this one text of them, so that a name which one of them takes is refused by
//! none of the others. A refusal names the field, the value (escaped and shortened), the rule and the way out.
//!
//! ```
//! use tenure_wire::rules;
//!
//! assert!(rules::visible("name", "nightly/cleanup").is_ok());
//! let invalid = rules::scope("tenant", "a:b").unwrap_err();
//! assert_eq!(invalid.field(), "tenant");
//! assert!(invalid.to_string().starts_with("tenant is 'a:b'; the rule: no ':'"));
//! ```

mod seen;

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use unicode_normalization::{UnicodeNormalization, is_nfc};

pub use self::seen::is_hidden;
use self::seen::misplaced_joiner;
use crate::{Attributes, Kind, Problem};

/// Longest name of anything, bytes.
pub const NAME_MAX: usize = 200;
/// Most permits of a semaphore.
pub const PERMITS_MAX: u32 = 1_000_000;
/// Most bytes of a lease's attributes together: every agent keeps the routing table.
pub const ATTRIBUTES_MAX: usize = 400;
/// Highest partition of the routing table.
pub const PARTITION_MAX: u16 = 255;
/// Longest time for which a hold is kept from others whatever becomes of its program.
pub const AT_LEAST_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest time for which the loser of a revoked hold may not have the resource again.
pub const BARRED_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest ttl and longest grace.
pub const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Greatest fencing token: stores and programs count with 64 bits and a sign.
pub const TOKEN_MAX: u64 = i64::MAX as u64;
/// Longest cursor of a page, bytes. A gateway's is longer than the store's own, which is sealed in it.
pub const CURSOR_MAX: usize = 2048;
/// A value that a refusal repeats is cut after so many characters.
pub const QUOTED_MAX: usize = 60;

/// The tenant of what gateways keep for themselves in the store, such as the proxies that registered.
pub const GATEWAYS_TENANT: &str = "tenure.gateways";
/// The tenant of the agents that make themselves known.
pub const AGENTS_TENANT: &str = "tenure.agents";

/// True of a tenant in which no program has a part.
pub fn is_own_tenant(tenant: &str) -> bool {
    [GATEWAYS_TENANT, AGENTS_TENANT].contains(&tenant)
}

/// A field that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(Box<Words>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Words {
    field: String,
    /// The value, or that there is none.
    found: String,
    /// The rule and the way out.
    why: String,
}

impl Invalid {
    /// A field whose value breaks a rule.
    pub fn new(field: &str, value: &str, rule: &str, way_out: &str) -> Invalid {
        Invalid::of(field, format!("is {}", quote(value)), rule, way_out)
    }

    /// A field that must be there.
    pub fn missing(field: &str, rule: &str, way_out: &str) -> Invalid {
        Invalid::of(field, "is missing".to_owned(), rule, way_out)
    }

    fn of(field: &str, found: String, rule: &str, way_out: &str) -> Invalid {
        let why = format!("the rule: {rule}; {way_out}");
        Invalid(Box::new(Words { field: field.to_owned(), found, why }))
    }

    /// The field that is wrong.
    pub fn field(&self) -> &str {
        &self.0.field
    }

    /// The rule and the way out, for a caller that names the field in its own words.
    pub fn why(&self) -> &str {
        &self.0.why
    }

    /// The same of a field within another one.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Invalid {
        self.0.field = format!("{outer}.{}", self.0.field);
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words { field, found, why } = &*self.0;
        write!(f, "{field} {found}; {why}")
    }
}

impl std::error::Error for Invalid {}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Problem {
        Problem::invalid(invalid.field(), invalid.to_string())
    }
}

impl From<Invalid> for Box<Problem> {
    fn from(invalid: Invalid) -> Box<Problem> {
        Box::new(invalid.into())
    }
}

/// Whether a value passes its rule.
pub type Checked = Result<(), Invalid>;

/// 1 to [`NAME_MAX`] bytes of UTF-8 that people can see and tell apart in a log, in the normal form NFC: `é` is one
/// character, and not `e` with an accent after it.
///
/// # Errors
///
/// When it is empty, too long, has a hidden character, has white space around it, or is in another form.
pub fn visible(field: &str, value: &str) -> Checked {
    visible_within(field, value, NAME_MAX)
}

/// The same with another greatest length, bytes.
///
/// # Errors
///
/// Those of [`visible`].
pub fn visible_within(field: &str, value: &str, max: usize) -> Checked {
    let is_short = (1..=max).contains(&value.len());
    // Most names are ASCII. Of those only control characters and outer spaces are refused.
    if is_short && value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        let is_trimmed = !value.starts_with(' ') && !value.ends_with(' ');
        return if is_trimmed { Ok(()) } else { Err(untrimmed(field, value, max)) };
    }
    let rule = format!("1 to {max} bytes of visible UTF-8");
    if !is_short {
        let rule = format!("{rule}; this has {}", value.len());
        return Err(Invalid::new(field, value, &rule, "choose another"));
    }
    if let Some(bad) = value.chars().find(|&c| is_hidden(c)) {
        let rule = format!("{rule}; U+{:04X} cannot be seen", u32::from(bad));
        return Err(Invalid::new(field, value, &rule, "leave that character out"));
    }
    if value.starts_with(char::is_whitespace) || value.ends_with(char::is_whitespace) {
        return Err(untrimmed(field, value, max));
    }
    if let Some(bad) = misplaced_joiner(value) {
        let rule =
            format!("{rule}; U+{:04X} cannot be seen beside white space or ASCII", u32::from(bad));
        return Err(Invalid::new(field, value, &rule, "leave that character out"));
    }
    if !is_nfc(value) {
        let rule = format!("{rule} in the normal form NFC, in which é is one character");
        let way_out = "normalise it, as unicodedata.normalize(\"NFC\", name) does in Python, and name.normalize() in JavaScript";
        return Err(Invalid::new(field, value, &rule, way_out));
    }
    Ok(())
}

/// A text in the normal form NFC, as [`visible`] wants it.
pub fn normal(text: &str) -> String {
    text.nfc().collect()
}

fn untrimmed(field: &str, value: &str, max: usize) -> Invalid {
    let rule = format!("1 to {max} bytes of visible UTF-8 without white space around it");
    Invalid::new(field, value, &rule, "trim it")
}

/// A part of a store's keys, such as a tenant or project: as [`visible`], without the colon that keys are split at.
///
/// # Errors
///
/// Those of [`visible`], and when it has a colon.
pub fn part(field: &str, value: &str) -> Checked {
    visible(field, value)?;
    if value.contains(':') { Err(with_colon(field, value)) } else { Ok(()) }
}

/// A tenant or a project of a program, as its field says: [`tenant`], or [`part`].
///
/// # Errors
///
/// Those of the one that counts.
pub fn scope(field: &str, value: &str) -> Checked {
    if matches!(field, "tenant" | "tenant_id") { tenant(field, value) } else { part(field, value) }
}

/// A tenant of a program: as [`part`], and none that Tenure keeps for itself.
///
/// # Errors
///
/// Those of [`part`], and when the tenant is Tenure's own.
pub fn tenant(field: &str, value: &str) -> Checked {
    part(field, value)?;
    if is_own_tenant(value) {
        let rule = "not one that Tenure keeps for itself";
        return Err(Invalid::new(field, value, rule, "use another one"));
    }
    Ok(())
}

fn with_colon(field: &str, value: &str) -> Invalid {
    let rule = "no ':', which separates the parts of keys";
    Invalid::new(field, value, rule, "use '-' or '/'")
}

/// A resource's name where it says all: that of a master is a project's.
///
/// # Errors
///
/// Those of [`visible`], for a master of [`part`].
pub fn resource_name(kind: Kind, name: &str) -> Checked {
    match kind {
        Kind::Master => part("name", name),
        Kind::Leader | Kind::Lease | Kind::Semaphore => visible("name", name),
    }
}

/// The name of what is there already, which a program without Tenure may have chosen: 1 to [`NAME_MAX`] bytes, and none
/// of them 0, which no store of SQL has a place for.
///
/// # Errors
///
/// When it is empty, too long, or has U+0000.
pub fn existing(field: &str, value: &str) -> Checked {
    if !(1..=NAME_MAX).contains(&value.len()) {
        let rule = format!("1 to {NAME_MAX} bytes; this has {}", value.len());
        return Err(Invalid::new(field, value, &rule, "ask for a name that is there"));
    }
    without_nul(field, value)
}

/// The name of a part of a store's keys that is there already: as [`existing`], without the colon.
///
/// # Errors
///
/// Those of [`existing`], and when it has a colon: it would be the key of another tenant.
pub fn existing_part(field: &str, value: &str) -> Checked {
    existing(field, value)?;
    if value.contains(':') { Err(with_colon(field, value)) } else { Ok(()) }
}

/// A text that others wrote, such as a command line, and that is escaped where it is shown: at most `max` bytes.
///
/// # Errors
///
/// When it is longer, or has U+0000.
pub fn foreign_text(field: &str, value: &str, max: usize) -> Checked {
    if value.len() > max {
        let rule = format!("at most {max} bytes; this has {}", value.len());
        return Err(Invalid::new(field, value, &rule, "cut it"));
    }
    without_nul(field, value)
}

fn without_nul(field: &str, value: &str) -> Checked {
    match value.as_bytes().contains(&0) {
        true => Err(Invalid::new(field, value, "no U+0000", "leave that character out")),
        false => Ok(()),
    }
}

/// The cursor of a page, in a store's own words: at most [`CURSOR_MAX`] bytes without control characters.
///
/// # Errors
///
/// When it is longer, or has a control character.
pub fn cursor(field: &str, value: &str) -> Checked {
    if value.len() > CURSOR_MAX || value.chars().any(char::is_control) {
        let rule = format!("at most {CURSOR_MAX} bytes without control characters");
        return Err(Invalid::new(field, value, &rule, "start without one"));
    }
    Ok(())
}

/// A glob: without hidden characters, which no name has.
///
/// # Errors
///
/// When it has one.
pub fn glob(field: &str, value: &str) -> Checked {
    match value.chars().find(|&c| is_hidden(c)) {
        None => Ok(()),
        Some(bad) => {
            let rule = format!("visible UTF-8; U+{:04X} cannot be seen", u32::from(bad));
            Err(Invalid::new(field, value, &rule, "leave that character out"))
        }
    }
}

/// A glob of tenants or projects: as [`glob`], and not one that covers names with a colon alone, which none of them has.
///
/// # Errors
///
/// Those of [`glob`], and when it has a colon that is neither in a class nor in a choice.
pub fn scope_glob(field: &str, value: &str) -> Checked {
    glob(field, value)?;
    let mut depth = 0_usize;
    for c in value.chars() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => return Err(with_colon(field, value)),
            _ => {}
        }
    }
    Ok(())
}

/// The attributes of a lease.
///
/// # Errors
///
/// When a text is none that is visible, they are too long together, or the partition is beyond [`PARTITION_MAX`].
pub fn attributes(ask: &Attributes) -> Checked {
    optional("attributes.address", ask.address.as_deref(), visible)?;
    optional("attributes.proxy_id", ask.proxy_id.as_deref(), visible)?;
    optional("attributes.status", ask.status.as_deref(), visible)?;
    let texts = [&ask.address, &ask.proxy_id, &ask.status];
    let bytes: usize = texts.into_iter().flatten().map(String::len).sum();
    if bytes > ATTRIBUTES_MAX {
        let rule =
            format!("address, proxy_id and status of at most {ATTRIBUTES_MAX} bytes together");
        let value = format!("{bytes} bytes");
        return Err(Invalid::new("attributes", &value, &rule, "choose shorter ones"));
    }
    match ask.partition {
        Some(partition) if partition > PARTITION_MAX => Err(Invalid::new(
            "attributes.partition",
            &partition.to_string(),
            "0 to 255",
            "choose a number in between, or leave it out to derive it from the name",
        )),
        _ => Ok(()),
    }
}

/// The limit of a semaphore.
///
/// # Errors
///
/// When it is 0, or more than [`PERMITS_MAX`].
pub fn permits(field: &str, limit: u32) -> Checked {
    if (1..=PERMITS_MAX).contains(&limit) {
        return Ok(());
    }
    let rule = format!("1 to {PERMITS_MAX} permits");
    Err(Invalid::new(field, &limit.to_string(), &rule, "choose a number in between"))
}

/// A fencing token.
///
/// # Errors
///
/// When it is 0, which no grant has, or more than [`TOKEN_MAX`].
pub fn token(field: &str, token: u64) -> Checked {
    number(field, token, 1..=TOKEN_MAX)
}

/// A number.
///
/// # Errors
///
/// When it is outside of the range.
pub fn number(field: &str, value: u64, range: RangeInclusive<u64>) -> Checked {
    if range.contains(&value) {
        return Ok(());
    }
    let rule = format!("{} to {}", range.start(), range.end());
    Err(Invalid::new(field, &value.to_string(), &rule, "choose a number in between"))
}

/// A duration.
///
/// # Errors
///
/// When it is outside of the range.
pub fn duration(field: &str, value: Duration, range: RangeInclusive<Duration>) -> Checked {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start().as_millis(), range.end().as_millis());
    let rule = format!("{least} to {most} ms");
    let value = format!("{} ms", value.as_millis());
    Err(Invalid::new(field, &value, &rule, "choose a time in between"))
}

/// A value that may be left out.
///
/// # Errors
///
/// Those of `check`.
pub fn optional(field: &str, value: Option<&str>, check: fn(&str, &str) -> Checked) -> Checked {
    value.map_or(Ok(()), |value| check(field, value))
}

/// A value as a refusal repeats it: shortened, and with nothing that could forge a line of a log.
pub fn quote(value: &str) -> String {
    let is_long = value.chars().nth(QUOTED_MAX).is_some();
    let mut short = escape(value.chars().take(QUOTED_MAX));
    if is_long {
        short.push('…');
    }
    if value.parse::<i128>().is_ok() { short } else { format!("'{short}'") }
}

/// A text in which nothing can forge a line of a log.
pub fn escape(text: impl Iterator<Item = char>) -> String {
    text.flat_map(|c| if is_hidden(c) { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
