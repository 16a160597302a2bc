//! The commands: `tenure`, and those about keys. A process each, so that few requests come this way.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use tenure::wire::Kind;

use super::Face;
use super::call::{Call, Sent};
use super::json::Carrier;
use super::request::{Field, Operation, Request, Sort};
use super::value::Value;

/// Longest argument of a process.
const ARGUMENT_MAX: usize = 100_000;

/// The request, as somebody types it.
pub(super) fn call(request: &Request) -> Option<Call> {
    let mut carrier = Carrier::of(request);
    let (face, program, arguments) = match request.operation {
        Operation::Key => (Face::Keys, "tenured-gateway", keys(&mut carrier)?),
        _ if !request.is_dear => return None,
        _ => (Face::Command, "tenure", typed(&mut carrier)?),
    };
    Some(Call::new(face, carrier, Sent::Process { program, arguments }))
}

fn keys(carrier: &mut Carrier<'_>) -> Option<Vec<OsString>> {
    let mut arguments: Vec<OsString> = vec!["keys".into(), "new".into()];
    let options = [
        ("--subject", Field::Subject),
        ("--tenant", Field::Tenant),
        ("--project", Field::Project),
        ("--name", Field::Name),
        ("--priority-max", Field::Priority),
    ];
    for (option, field) in options {
        option_of(carrier, option, field, &mut arguments)?;
    }
    Some(arguments)
}

fn typed(carrier: &mut Carrier<'_>) -> Option<Vec<OsString>> {
    let Request { operation, kind, id, .. } = *carrier.request;
    let command = match operation {
        Operation::Inspect => "standing",
        Operation::History if id % 2 == 0 => "why",
        Operation::History => "history",
        Operation::Routes => "routes",
        Operation::Revoke => "revoke",
        Operation::Register | Operation::Take => return held(carrier),
        _ => return None,
    };
    let mut arguments: Vec<OsString> = vec![command.into()];
    option_of(carrier, "--tenant", Field::Tenant, &mut arguments)?;
    if operation == Operation::Revoke {
        option_of(carrier, "--reason", Field::Reason, &mut arguments)?;
        option_of(carrier, "--token", Field::Token, &mut arguments)?;
    }
    arguments.push("--".into());
    if operation != Operation::Routes {
        arguments.push(kind.as_str().into());
    }
    if let Some(value) = carrier.request.get(Field::Name) {
        if *value != Value::Missing {
            arguments.push(argument(Field::Name, value)?);
        }
        carrier.take(Field::Name);
    }
    Some(arguments)
}

/// Something is held for a moment; for a session that begins, the master's place in its project.
fn held(carrier: &mut Carrier<'_>) -> Option<Vec<OsString>> {
    let Request { operation, kind, .. } = *carrier.request;
    let mut arguments: Vec<OsString> =
        ["acquire", "--for=100ms", "--no-wait"].map(OsString::from).into();
    option_of(carrier, "--tenant", Field::Tenant, &mut arguments)?;
    option_of(carrier, "--name", Field::Holder, &mut arguments)?;
    let (option, field) = match kind {
        _ if operation == Operation::Register => ("--project", Field::Project),
        // Without one it is the default project.
        Kind::Master if carrier.request.get(Field::Name) == Some(&Value::Missing) => return None,
        Kind::Master => ("--project", Field::Name),
        Kind::Leader => ("--leader", Field::Name),
        Kind::Lease => ("--lease", Field::Name),
        Kind::Semaphore => {
            arguments.push("--limit=8".into());
            ("--semaphore", Field::Name)
        }
    };
    if field == Field::Project || kind == Kind::Master {
        arguments.push("--master".into());
    }
    option_of(carrier, option, field, &mut arguments)?;
    Some(arguments)
}

/// Adds an option; `None` if no command line can have it.
fn option_of(
    carrier: &mut Carrier<'_>,
    option: &str,
    field: Field,
    arguments: &mut Vec<OsString>,
) -> Option<()> {
    let Some(value) = carrier.request.get(field) else { return Some(()) };
    carrier.take(field);
    if *value != Value::Missing {
        let mut argument_of = OsString::from(format!("{option}="));
        argument_of.push(argument(field, value)?);
        arguments.push(argument_of);
    }
    Some(())
}

/// Every number is a text here.
fn argument(field: Field, value: &Value) -> Option<OsString> {
    let bytes = match value {
        Value::Text(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        Value::Number(number) if field.sort() == Sort::Number => {
            return Some(number.to_string().into());
        }
        _ => return None,
    };
    let is_fit = !bytes.contains(&0) && bytes.len() <= ARGUMENT_MAX;
    is_fit.then(|| OsStr::from_bytes(bytes).to_owned())
}
