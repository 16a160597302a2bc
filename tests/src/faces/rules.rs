//! The rules of fields, written a second time: a face that is wrong in the same way as all others is noticed, too.
//!
//! A line here gives the reason of each difference between faces that is intended.

use std::ops::RangeInclusive;

use tenure::wire::Kind;

use super::Face;
use super::names::Rule;
use super::request::{Field, Operation, Request, Sort};
use super::value::{self, Value};

/// The verdict that a face must give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Accepted,
    Refused,
    /// Either, but as all other faces that have the field.
    Alike,
    /// Either: the value means something else there.
    Either,
}

/// The verdict that a face must give to a request of which it has these fields.
pub(super) fn expected(face: Face, request: &Request, carried: &[Field]) -> Expected {
    let of =
        |field: &Field| request.get(*field).map(|value| of_field(face, request, *field, value));
    let all: Vec<_> = carried.iter().filter_map(of).collect();
    [Expected::Refused, Expected::Either, Expected::Alike]
        .into_iter()
        .find(|it| all.contains(it))
        .unwrap_or(match attributes_are_long(face, request, carried) {
            true => Expected::Either,
            false => Expected::Accepted,
        })
}

/// The texts of a route, which have a bound together. The control plane leaves room in it for a status.
fn attributes_are_long(face: Face, request: &Request, carried: &[Field]) -> bool {
    let max = if face == Face::Mailboxes { 368 } else { 400 };
    let texts = [Field::Address, Field::ProxyId, Field::Status];
    let texts = texts.iter().filter(|field| carried.contains(field));
    let bytes = texts.filter_map(|field| request.get(*field)?.text()).map(str::len);
    bytes.sum::<usize>() > max
}

fn of_field(face: Face, request: &Request, field: Field, value: &Value) -> Expected {
    if request.is_of_name && request.odd.contains(&field) {
        return Rule::of(face, request, field).expected(value);
    }
    match (field.sort(), value) {
        (Sort::Unknown, value) => unknown(face, value),
        (_, Value::Missing) => known(!is_required(face, request.operation, field)),
        (_, Value::Twice(_) | Value::Bytes(_)) => Expected::Refused,
        (Sort::Text, Value::Text(text)) => of_text(face, request, field, text),
        (Sort::Number, Value::Number(number)) => of_number(face, field, *number),
        // The seed's backend answers 410 to a session that is none: the client then registers again.
        (Sort::Id, _)
            if face == Face::Sessions
                && matches!(request.operation, Operation::Beat | Operation::Release) =>
        {
            Expected::Either
        }
        _ => Expected::Refused,
    }
}

fn known(is_good: bool) -> Expected {
    if is_good { Expected::Accepted } else { Expected::Refused }
}

/// A field that there is not.
fn unknown(face: Face, value: &Value) -> Expected {
    match face {
        // A misspelt field is a mistake, and its writer is told.
        Face::Agent | Face::People => Expected::Refused,
        // Agents and gateways of other versions, and clients of the seed's, send fields that are not known here.
        Face::Upstream | Face::Sessions if value::is_deep(value) => Expected::Alike,
        _ => Expected::Accepted,
    }
}

fn is_required(face: Face, operation: Operation, field: Field) -> bool {
    use Field::*;
    match face {
        Face::Agent => matches!(field, Name | Id) && operation != Operation::Routes,
        Face::People => field == Name,
        Face::Sessions => match operation {
            Operation::Register => matches!(field, Project | Holder),
            Operation::Members => field == Project,
            _ => field == Id,
        },
        Face::Mailboxes => {
            matches!(field, Name | Holder | Address | ProxyId)
                && !matches!((operation, field), (Operation::Take, Address | ProxyId))
        }
        Face::Keys => field == Subject,
        Face::Command => field == Name && operation != Operation::Routes,
        Face::Upstream => match operation {
            Operation::Routes => matches!(field, Tenant | PageLimit),
            Operation::Hello => matches!(field, Protocol | Version),
            Operation::Revoke => matches!(field, Tenant | Name | By),
            Operation::Record => !matches!(field, Reason | User | Command | By),
            Operation::Members => matches!(field, Tenant | Project | PageLimit),
            _ => !matches!(field, Address | ProxyId | Partition | Status | Cursor),
        },
    }
}

fn of_text(face: Face, request: &Request, field: Field, text: &str) -> Expected {
    use Field::*;
    let is_master = request.kind == Kind::Master;
    let is_of_gateway = matches!(face, Face::Upstream | Face::People | Face::Sessions);
    if is_of_gateway && is_about_what_is_there(request.operation) {
        return existing(request, field, text);
    }
    match field {
        // Of a key these are patterns, and one that is a good name may be a bad pattern.
        Tenant | Project | Name if face == Face::Keys => match value::has_hidden(text) {
            true => Expected::Refused,
            false => Expected::Either,
        },
        Tenant | Project => known(value::is_part(text)),
        Name if is_master && is_of_kind(request.operation) => known(value::is_part(text)),
        // The proxy's address is one that can be called.
        Address if request.operation == Operation::Proxy => match value::is_name(text) {
            true => Expected::Either,
            false => Expected::Refused,
        },
        // RFC-049 has words there; the table has a few bytes for it.
        Status if face == Face::Mailboxes && text.len() > 32 => Expected::Refused,
        Cursor => cursor(text),
        // An earlier request may have used it for another resource.
        RequestId if value::is_name(text) => Expected::Either,
        // Words for people, which a gateway puts its own in the place of, or keeps without what cannot be seen.
        By | User | Command | Version => Expected::Either,
        Reason if request.operation == Operation::Record => Expected::Either,
        _ => known(value::is_name(text)),
    }
}

pub(super) fn is_about_what_is_there(operation: Operation) -> bool {
    use Operation::*;
    matches!(operation, Beat | Release | Inspect | History | Routes | Listing | Members)
}

/// Programs without Tenure have names of their own in a store that they use, too: an agent beats for them, releases them
/// and tells of them, and its gateway must let it.
fn existing(request: &Request, field: Field, text: &str) -> Expected {
    let is_part = match field {
        Field::Name => request.kind == Kind::Master && is_of_kind(request.operation),
        _ => true,
    };
    let is_short = (1..=value::NAME_MAX).contains(&text.len());
    match field {
        Field::Cursor => cursor(text),
        _ => known(is_short && !text.contains('\0') && !(is_part && text.contains(':'))),
    }
}

/// A store's own words, or a seal that only its gateway can read.
fn cursor(text: &str) -> Expected {
    match text.len() <= 2048 && !text.chars().any(char::is_control) {
        true => Expected::Either,
        false => Expected::Refused,
    }
}

/// True if the name goes with a kind.
pub(super) fn is_of_kind(operation: Operation) -> bool {
    use Operation::*;
    matches!(operation, Take | Beat | Release | Inspect | History | Revoke | Record)
}

fn of_number(face: Face, field: Field, number: i128) -> Expected {
    known(range(face, field).contains(&number))
}

/// The numbers of a field. Times of an agent are bounded by its configuration, those of a gateway by what any agent
/// may be configured for.
fn range(face: Face, field: Field) -> RangeInclusive<i128> {
    use Field::*;
    const DAY: i128 = 24 * 3600 * 1000;
    let most = if face == Face::Upstream { 365 * DAY } else { DAY };
    let whole = i128::from(u64::MAX);
    match field {
        // Nothing, or less, is the namespace's own ttl, as RFC-049 has it. It counts in seconds.
        Ttl if face == Face::Mailboxes => i128::from(i64::MIN)..=most,
        Ttl if face == Face::Upstream => 1..=most,
        Ttl => 300..=most,
        Grace | Linger => 0..=most,
        Keepalive | Progress => 100..=most,
        ForMs | AtLeast => 0..=DAY,
        MaxHold => 100..=whole,
        Timeout => 0..=whole,
        // Stores count with a sign.
        Token => 1..=i128::from(i64::MAX),
        Limit => 1..=1_000_000,
        Priority => i128::from(i32::MIN)..=i128::from(i32::MAX),
        Partition => 0..=255,
        Holds => 1..=4095,
        Protocol => 1..=i128::from(u32::MAX),
        PageLimit => match face {
            Face::People => 1..=100,
            Face::Agent => 1..=1000,
            // All of it is a page, too.
            _ => 1..=whole,
        },
        _ => 0..=whole,
    }
}
