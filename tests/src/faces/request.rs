//! Requests, whatever face they come to: an operation and its fields, drawn from a seed by their types.

use std::fmt;

use tenure::wire::Kind;

use super::value::{self, Chance, Value};

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operation {
    /// A session begins.
    Register,
    /// A resource is asked for.
    Take,
    /// A hold or a session is renewed.
    Beat,
    /// A hold or a session ends.
    Release,
    Inspect,
    History,
    Routes,
    /// All that is held.
    Listing,
    /// The sessions of a project.
    Members,
    Revoke,
    /// Changes for the history.
    Record,
    /// An agent makes itself known.
    Hello,
    /// A proxy makes itself known.
    Proxy,
    /// A key is made.
    Key,
}

/// A field that one face or several have, by the field's own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Field {
    Tenant,
    Project,
    Name,
    /// The name of the session: holder, runner, identity.
    Holder,
    Host,
    Surface,
    Ttl,
    Grace,
    Limit,
    Priority,
    Address,
    ProxyId,
    Partition,
    Status,
    Reason,
    By,
    ForMs,
    Token,
    /// The client's own id of a request.
    RequestId,
    Timeout,
    MaxHold,
    AtLeast,
    Keepalive,
    Linger,
    Progress,
    Holds,
    PageLimit,
    Cursor,
    /// The id of a session or a claim.
    Id,
    User,
    Command,
    Protocol,
    Version,
    Subject,
    /// A field that there is not.
    Unknown,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub seed: u64,
    pub operation: Operation,
    pub kind: Kind,
    /// An id that is the request's own.
    pub id: u128,
    /// Stays in the queue if the resource is taken.
    pub waits: bool,
    /// Its grant is not given back at once.
    pub stays: bool,
    /// For a command or a process, which few requests are.
    pub is_dear: bool,
    /// Only its name may be odd, and may be any.
    pub is_of_name: bool,
    fields: Vec<(Field, Value)>,
    /// The fields that were not drawn as good ones.
    pub odd: Vec<Field>,
}

impl Request {
    /// The request of a seed.
    pub(super) fn draw(seed: u64) -> Request {
        let mut chance = Chance::of(seed);
        let operation = operation(&mut chance);
        let kind = match operation {
            Operation::Register | Operation::Members => Kind::Master,
            _ => *chance.pick(&Kind::ALL),
        };
        let mut request = Request::good(seed, operation, kind, &mut chance);
        let odd = match chance.below(8) {
            0 | 1 => 0,
            2..=6 => 1,
            _ => 2,
        };
        for _ in 0..odd {
            let field = *chance.pick(fields(operation, kind));
            let value = odd_one(field, &mut chance);
            request.set(field, value);
        }
        request
    }

    /// One that is good but for its name, about which nothing is said.
    pub(super) fn with_name(
        seed: u64,
        operation: Operation,
        kind: Kind,
        (field, name): (Field, Value),
        is_dear: bool,
    ) -> Request {
        let mut request = Request::good(seed, operation, kind, &mut Chance::of(seed));
        (request.is_dear, request.is_of_name) = (is_dear, true);
        // An '@' in the id of a mailbox says which proxy is meant, and another one is refused.
        if field == Field::Name && name.text().is_some_and(|name| name.contains('@')) {
            request.fields.retain(|(field, _)| *field != Field::ProxyId);
        }
        request.set(field, name);
        request
    }

    fn good(seed: u64, operation: Operation, kind: Kind, chance: &mut Chance) -> Request {
        let id = chance.id();
        let (waits, stays) = (chance.one_in(3), chance.one_in(64));
        let is_dear = chance.one_in(128);
        let mut request = Request {
            seed,
            operation,
            kind,
            id,
            waits,
            stays,
            is_dear,
            is_of_name: false,
            fields: Vec::new(),
            odd: Vec::new(),
        };
        for field in fields(operation, kind) {
            if let Some(good) = good(*field, chance) {
                request.fields.push((*field, good));
            }
        }
        request
    }

    fn set(&mut self, field: Field, value: Value) {
        let is_new = !self.odd.contains(&field);
        match self.fields.iter_mut().find(|(it, _)| *it == field) {
            Some((_, place)) if is_new => *place = value,
            Some(_) => return,
            None => self.fields.push((field, value)),
        }
        self.odd.push(field);
    }

    pub(super) fn get(&self, field: Field) -> Option<&Value> {
        self.fields.iter().find(|(it, _)| *it == field).map(|(_, value)| value)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {:?} of a {}", self.seed, self.operation, self.kind)?;
        for (field, value) in &self.fields {
            let is_odd = self.odd.contains(field);
            let mut text = format!("{value:?}");
            if let Some((at, _)) = text.char_indices().nth(120) {
                text.truncate(at);
                text.push('…');
            }
            write!(f, "\n  {}{field:?}: {text}", if is_odd { "! " } else { "" })?;
        }
        Ok(())
    }
}

fn operation(chance: &mut Chance) -> Operation {
    use Operation::*;
    const OFTEN: [Operation; 24] = [
        Take, Take, Take, Take, Take, Take, Take, Register, Register, Register, Register, Beat,
        Beat, Beat, Release, Inspect, Inspect, History, Routes, Members, Revoke, Revoke, Record,
        Hello,
    ];
    match chance.below(256) {
        // Dear: the page of all, a process, and a connection to wherever it says.
        0 => Listing,
        1 => Key,
        2 => Proxy,
        _ => *chance.pick(&OFTEN),
    }
}

/// The fields of an operation on any face.
fn fields(operation: Operation, kind: Kind) -> &'static [Field] {
    use Field::*;
    match (operation, kind) {
        (Operation::Register, _) => &[
            Tenant, Project, Holder, Host, Surface, Ttl, Keepalive, Linger, Progress, Holds, Id,
            Unknown,
        ],
        (Operation::Take, Kind::Lease) => &[
            Tenant, Name, Holder, Host, Ttl, Grace, Address, ProxyId, Partition, Status, RequestId,
            Timeout, MaxHold, AtLeast, Id, Unknown,
        ],
        (Operation::Take, Kind::Semaphore) => {
            &[Tenant, Name, Holder, Host, Ttl, Limit, RequestId, Timeout, MaxHold, Id, Unknown]
        }
        (Operation::Take, Kind::Master) => {
            &[Tenant, Name, Holder, Host, Ttl, Priority, RequestId, MaxHold, Id, Unknown]
        }
        (Operation::Take, Kind::Leader) => {
            &[Tenant, Name, Holder, Host, Ttl, RequestId, AtLeast, Id, Unknown]
        }
        (Operation::Beat, _) => &[Tenant, Name, Holder, Ttl, Status, ProxyId, Id, Unknown],
        (Operation::Release, _) => &[Tenant, Name, Holder, Id, Unknown],
        (Operation::Inspect | Operation::History, _) => &[Tenant, Name, Unknown],
        (Operation::Routes, _) => &[Tenant, Name, PageLimit, Cursor, Unknown],
        (Operation::Listing, _) => &[PageLimit, Cursor, Unknown],
        (Operation::Members, _) => &[Tenant, Project, PageLimit, Cursor, Unknown],
        (Operation::Revoke, _) => &[Tenant, Name, Token, Reason, By, ForMs, Unknown],
        (Operation::Record, _) => {
            &[Tenant, Name, Holder, Host, Token, Reason, User, Command, By, Id, Unknown]
        }
        (Operation::Hello, _) => &[Protocol, Version, Host, Unknown],
        (Operation::Proxy, _) => &[ProxyId, Address],
        (Operation::Key, _) => &[Subject, Tenant, Project, Name, Ttl, Priority],
    }
}

/// The sort of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// A name.
    Text,
    Number,
    Id,
    Unknown,
}

impl Field {
    pub(super) fn sort(self) -> Sort {
        use Field::*;
        match self {
            Tenant | Project | Name | Holder | Host | Surface | Address | ProxyId | Status
            | Reason | By | RequestId | Cursor | User | Command | Version | Subject => Sort::Text,
            Ttl | Grace | Limit | Priority | Partition | ForMs | Token | Timeout | MaxHold
            | AtLeast | Keepalive | Linger | Progress | Holds | PageLimit | Protocol => {
                Sort::Number
            }
            Id => Sort::Id,
            Unknown => Sort::Unknown,
        }
    }
}

/// Tenants of this run.
pub(super) const TENANTS: [&str; 3] = ["default", "acme", "größe"];

/// A value that every face takes; `None` for a field that is left out unless something is to be wrong with it.
fn good(field: Field, chance: &mut Chance) -> Option<Value> {
    let one_of = |chance: &mut Chance, texts: &[&str]| {
        let text = (*chance.pick(texts)).to_owned();
        Some(Value::Text(text))
    };
    match field {
        Field::Tenant => one_of(chance, &TENANTS),
        Field::Project | Field::Name | Field::Holder => Some(Value::Text(value::name(chance))),
        Field::Subject => one_of(chance, &["somebody"]),
        Field::Host => one_of(chance, &["host-a", "host-b"]),
        Field::Surface => one_of(chance, &["cli", "claude_desktop", "editor"]),
        Field::Address => one_of(chance, &["127.0.0.1:1", "127.0.0.1:9"]),
        Field::ProxyId => one_of(chance, &["proxy-01"]),
        Field::Status => one_of(chance, &["active", "degraded"]),
        Field::Version => one_of(chance, &["0.1.0"]),
        Field::Reason | Field::By if chance.one_in(2) => one_of(chance, &["an upgrade"]),
        Field::RequestId if chance.one_in(4) => Some(Value::Text(format!("r-{}", chance.id()))),
        Field::Protocol => Some(Value::Number(1)),
        Field::Ttl => Some(Value::Number(*chance.pick(&[1000, 5000, 30_000]))),
        Field::Grace => Some(Value::Number(*chance.pick(&[0, 1000]))),
        Field::Limit => Some(Value::Number(*chance.pick(&[1, 2, 1000]))),
        Field::Priority => Some(Value::Number(*chance.pick(&[-5, 0, 100]))),
        Field::Partition => Some(Value::Number(*chance.pick(&[1, 255]))),
        Field::PageLimit => Some(Value::Number(*chance.pick(&[1, 100]))),
        Field::Token => Some(Value::Number(1_763_450_000_000_000)),
        _ => None,
    }
}

/// A value that something may be wrong with.
fn odd_one(field: Field, chance: &mut Chance) -> Value {
    if field == Field::Unknown {
        return match chance.one_in(2) {
            true => Value::Text("unknown".to_owned()),
            false => value::word(chance),
        };
    }
    let another = match field.sort() {
        Sort::Text => value::text(chance),
        Sort::Number => value::number(chance),
        Sort::Id | Sort::Unknown => value::text(chance),
    };
    match chance.below(12) {
        0 => value::word(chance),
        1 => Value::Missing,
        2 => Value::Twice(Box::new(good(field, chance).unwrap_or(another))),
        3 if field.sort() == Sort::Text => value::number(chance),
        3 => value::text(chance),
        _ => another,
    }
}
