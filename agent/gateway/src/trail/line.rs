//! Pure. Lines of the trail, as they are written.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use tenure_wire::rules::is_hidden;

use super::By;
use super::sources::{Source, Sum};
use crate::access::{Event, Fact};

/// Longest text of an outcome, bytes. What is cut off ends with `…`.
const OUTCOME_MAX: usize = 512;
/// Longest name of a resource, with its tenant and kind, bytes.
const RESOURCE_MAX: usize = 512;
/// Longest name of a principal, bytes.
const PRINCIPAL_MAX: usize = 256;
/// Memory of an entry beside its texts, bytes.
const FIXED: usize = 256;

/// A line that waits for the disk.
#[derive(Debug)]
pub(super) struct Entry {
    wall_us: u64,
    event: Event,
    by: By,
    session: Option<String>,
    claim: Option<String>,
    resource: Option<Box<str>>,
    token: Option<u64>,
    outcome: Box<str>,
    sum: Option<Span>,
}

/// The fields of a sum beside the last reason.
#[derive(Debug)]
struct Span {
    source: Option<String>,
    count: u64,
    /// The first reason; the last is the outcome.
    first_reason: Box<str>,
    since_us: u64,
}

impl Span {
    fn line(&self) -> SumOfLine<'_> {
        let Span { source, count, first_reason, since_us } = self;
        let (source, since) = (source.as_deref(), time(*since_us));
        SumOfLine { source, count: *count, since, first_reason }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(flatten)]
    sum: Option<SumOfLine<'a>>,
    outcome: &'a str,
}

#[derive(Serialize)]
struct SumOfLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    count: u64,
    since: String,
    first_reason: &'a str,
}

impl Entry {
    /// The texts are bounded: an entry takes at most so many bytes as [`Entry::bytes`] says.
    pub(super) fn new(wall_us: u64, by: By, fact: &Fact) -> Entry {
        let By { key, principal, peer } = by;
        let principal = principal.map(|name| match name.len() > PRINCIPAL_MAX {
            true => bounded(&name, PRINCIPAL_MAX).into(),
            false => name,
        });
        let resource = fact.resource.as_ref().map(ToString::to_string);
        Entry {
            wall_us,
            event: fact.event,
            by: By { key, principal, peer },
            session: fact.session.map(|session| session.to_string()),
            claim: fact.claim.map(|claim| claim.to_string()),
            resource: resource.map(|resource| bounded(&resource, RESOURCE_MAX)),
            token: fact.token,
            outcome: bounded(&fact.outcome, OUTCOME_MAX),
            sum: None,
        }
    }

    /// The line for refusals that were left out.
    pub(super) fn of_sum(sum: Sum) -> Entry {
        let Sum { source, count, reasons: [first, last], wall_us: [since_us, wall_us] } = sum;
        let (principal, source) = match source {
            Source::Principal(name) => (Some(name), None),
            Source::Address(address) => (None, Some(address.to_string())),
            Source::Others => (None, Some("others".to_owned())),
        };
        let by = By { principal, ..By::default() };
        let (first_reason, outcome) = (bounded(&first, OUTCOME_MAX), bounded(&last, OUTCOME_MAX));
        let fact = Fact::new(Event::RefusalsLeftOut, &outcome);
        let sum = Some(Span { source, count, first_reason, since_us });
        Entry { sum, ..Entry::new(wall_us, by, &fact) }
    }

    pub(super) fn source(&self) -> Source {
        self.by.source()
    }

    /// Its memory, at most.
    pub(super) fn bytes(&self) -> usize {
        let texts = [self.resource.as_deref(), Some(&*self.outcome), self.by.principal.as_deref()];
        FIXED + texts.into_iter().flatten().map(str::len).sum::<usize>()
    }

    /// Adds it to a text, with the end of its line.
    pub(super) fn write(&self, text: &mut Vec<u8>) -> io::Result<()> {
        let Entry { wall_us, event, by, session, claim, resource, token, outcome, sum } = self;
        let line = Line {
            time: time(*wall_us),
            event: *event,
            key: by.key.map(|key| key.to_string()),
            principal: by.principal.as_deref(),
            peer: by.peer,
            session: session.as_deref(),
            claim: claim.as_deref(),
            resource: resource.as_deref(),
            token: *token,
            sum: sum.as_ref().map(Span::line),
            outcome,
        };
        let line = serde_json::to_string(&line).map_err(io::Error::from)?;
        escape(&line, text);
        text.push(b'\n');
        Ok(())
    }
}

fn time(wall_us: u64) -> String {
    humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(wall_us)).to_string()
}

/// As much of an outcome as is written, without a mark where it was cut off.
pub(super) fn beginning(outcome: &str) -> &str {
    outcome.get(..outcome.floor_char_boundary(OUTCOME_MAX)).unwrap_or_default()
}

/// A text, or its beginning.
fn bounded(text: &str, bytes_max: usize) -> Box<str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let end = text.floor_char_boundary(bytes_max);
    format!("{}…", text.get(..end).unwrap_or_default()).into()
}

/// JSON writes most control characters of ASCII as escapes. So is here what else terminals obey, what changes the
/// direction of a line, and what cannot be seen.
fn escape(json: &str, text: &mut Vec<u8>) {
    let mut units = [0; 2];
    for c in json.chars() {
        if !is_hidden(c) && !matches!(c, '\u{200c}' | '\u{200d}') {
            text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            text.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tenure_core::model::Resource;
    use tenure_wire::Kind;

    use super::*;

    fn written(entry: &Entry) -> (String, Value) {
        let mut text = Vec::new();
        entry.write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        (text, value)
    }

    #[test]
    fn nothing_that_a_terminal_interprets_is_in_a_line_and_all_of_it_can_be_read_back() {
        let odd = "\u{1b}[2J\r\n\0\u{7f}\u{9b}31m\u{85}\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{e0041} Zoë, 東京 \"\\";
        let resource = Resource { tenant: "t".into(), kind: Kind::Leader, name: odd.into() };
        let fact = Fact { resource: Some(resource), ..Fact::new(Event::Refusal, odd) };
        let by = By { principal: Some(odd.into()), ..By::default() };
        let (text, value) = written(&Entry::new(7, by, &fact));
        let is_plain = |c: char| (' '..='~').contains(&c) || (!c.is_ascii() && !is_hidden(c));
        let line = text.strip_suffix('\n').unwrap();
        assert!(line.chars().all(is_plain), "{line}");
        assert!(line.contains("Zoë, 東京"), "{line}");
        assert_eq!((&value["outcome"], &value["principal"]), (&odd.into(), &odd.into()));
        assert_eq!(value["resource"], format!("t:leader/{odd}"));
    }

    #[test]
    fn texts_are_bounded() {
        let long = "ö".repeat(100_000);
        let resource =
            Resource { tenant: "t".into(), kind: Kind::Leader, name: long.as_str().into() };
        let fact = Fact { resource: Some(resource), ..Fact::new(Event::Grant, &long) };
        let by = By { principal: Some(long.as_str().into()), ..By::default() };
        let entry = Entry::new(7, by, &fact);
        assert!(entry.bytes() < 2048 && written(&entry).0.len() < 4096);
        assert!(written(&entry).1["outcome"].as_str().unwrap().ends_with("ö…"));
    }

    #[test]
    fn a_sum_names_its_source_its_span_and_its_reasons() {
        let sum = |source| Sum {
            source,
            count: 9,
            reasons: ["first".into(), "last".into()],
            wall_us: [1_000_000, 2_000_000],
        };
        let (_, line) = written(&Entry::of_sum(sum(Source::Address([192, 0, 2, 1].into()))));
        assert_eq!((&line["event"], &line["count"]), (&"refusals_left_out".into(), &9.into()));
        assert_eq!(
            (&line["source"], &line["first_reason"]),
            (&"192.0.2.1".into(), &"first".into())
        );
        assert_eq!(line["outcome"], "last");
        assert_eq!(line["since"], "1970-01-01T00:00:01.000000Z");
        assert_eq!(line["time"], "1970-01-01T00:00:02.000000Z");
        let (_, line) = written(&Entry::of_sum(sum(Source::Principal("p".into()))));
        assert!(line["principal"] == "p" && line["source"].is_null());
        assert_eq!(written(&Entry::of_sum(sum(Source::Others))).1["source"], "others");
    }
}
