//! From the bytes of a request's body to one of the wire's types, strictly.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use bytes::BytesMut;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_wire::{Code, Problem};

use super::context::Context;
use super::limits::BODY_MAX;
use super::respond::{Refusal, over_budget};
use super::server::Connection;
use super::validate::quote;

/// A body counts as so many bytes at least: that is the buffer it is read into.
const BODY_LEAST: usize = 8 * 1024;
/// For whom the body of a peer counts that the kernel did not name: it is refused anyway.
const NOBODY: u32 = u32::MAX;

/// A request that comes as a body.
pub(super) trait Ask: DeserializeOwned {
    /// An example for the error that somebody gets who sent no JSON at all.
    const EXAMPLE: &'static str;

    /// The meaning of an empty body, if it may be empty.
    fn from_nothing() -> Option<Self> {
        None
    }
}

/// The body of a request. The content type does not matter: `curl -d` sends that of a form.
pub(super) struct Parsed<T>(pub(super) T);

impl<T: Ask> FromRequest<Arc<Context>> for Parsed<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, context: &Arc<Context>) -> Result<Self, Refusal> {
        let connection = request.extensions().get::<Arc<Connection>>().cloned();
        let uid = connection.map_or(NOBODY, |connection| connection.peer().uid);
        let body = request.into_body();
        let expected = body
            .size_hint()
            .upper()
            .map_or(BODY_MAX, |upper| usize::try_from(upper).unwrap_or(usize::MAX).min(BODY_MAX));
        let _charge = match expected {
            0 => None,
            // As it comes, and put together.
            bytes => {
                let charge = context.heart.budget().take(uid, (2 * bytes).max(BODY_LEAST));
                Some(charge.map_err(|over| over_budget(over, uid))?)
            }
        };
        let reading = read(body);
        let bytes =
            tokio::time::timeout(context.limits.body_timeout, reading).await.map_err(|_| {
                let seconds = context.limits.body_timeout.as_secs_f32();
                Problem::new(
                    Code::Invalid,
                    format!("the body was not complete after {seconds} s; send it at once"),
                )
            })??;
        Ok(Parsed(parse(&bytes)?))
    }
}

/// Reads at most [`BODY_MAX`] bytes.
async fn read(mut body: Body) -> Result<Bytes, Box<Problem>> {
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(too_large());
    }
    let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
    if first.len() > BODY_MAX {
        return Err(too_large());
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut whole = BytesMut::from(first);
    while let Some(more) = next(&mut body).await? {
        if whole.len() + more.len() > BODY_MAX {
            return Err(too_large());
        }
        whole.extend_from_slice(&more);
    }
    Ok(whole.freeze())
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, Box<Problem>> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Box::new(Problem::new(Code::Invalid, format!("the body could not be read: {error}")))
        })?;
        // Trailers mean nothing here.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn too_large() -> Box<Problem> {
    let detail = format!("the body is larger than {BODY_MAX} bytes; send less");
    Problem::new(Code::TooLarge, detail).into()
}

/// Parses a body.
///
/// The path to what is wrong is only looked for when something is: tracking it costs allocations.
pub(super) fn parse<T: Ask>(bytes: &[u8]) -> Result<T, Box<Problem>> {
    let trimmed = bytes.trim_ascii_start();
    if trimmed.is_empty()
        && let Some(nothing) = T::from_nothing()
    {
        return Ok(nothing);
    }
    if trimmed.first() != Some(&b'{') {
        let problem = if trimmed.is_empty() { "is empty" } else { "is not a JSON object" };
        let example = T::EXAMPLE;
        return Err(Problem::new(
            Code::Invalid,
            format!("the body {problem}; send one such as {example}"),
        )
        .into());
    }
    match serde_json::from_slice(trimmed) {
        // No request has a list anywhere, but derived types take one for an object.
        Ok(value) if !trimmed.contains(&b'[') => Ok(value),
        Ok(value) => list_in(trimmed).map_or(Ok(value), |field| Err(list(&field))),
        Err(error) => whole_floats(trimmed, &error).ok_or_else(|| explain::<T>(trimmed)),
    }
}

/// Parses again where a whole number is written as a float: 30000.0 is an integer to JSON Schema, and what
/// some languages make of one.
fn whole_floats<T: Ask>(bytes: &[u8], error: &serde_json::Error) -> Option<T> {
    /// Below this every whole float is one integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if !error.to_string().contains("floating point") {
        return None;
    }
    let mut object: serde_json::Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    for value in object.values_mut() {
        if let Some(float) = value.as_f64().filter(|_| value.is_f64())
            && float.fract() == 0.0
            && float.abs() < EXACT
        {
            *value = Value::from(float as i64);
        }
    }
    serde_json::from_value(Value::Object(object)).ok()
}

fn list(field: &str) -> Box<Problem> {
    let detail = format!("{field} is a list, but must be an object; write it as {{…}}");
    Problem::invalid(field, detail).into()
}

fn list_in(bytes: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    value.as_object()?.iter().find(|(_, value)| value.is_array()).map(|(key, _)| key.clone())
}

/// Parses again, to say what is wrong and where.
fn explain<T: Ask>(bytes: &[u8]) -> Box<Problem> {
    let deserializer = &mut serde_json::Deserializer::from_slice(bytes);
    let error = match serde_path_to_error::deserialize::<_, T>(deserializer) {
        Err(error) => error,
        // The object itself is right, so what follows it is wrong.
        Ok(_) => {
            let detail = "the body goes on after its JSON object; send one object only";
            return Problem::new(Code::Invalid, detail).into();
        }
    };
    let path = error.path().to_string();
    if let Some((list_at, _)) = path.split_once('[') {
        return list(list_at);
    }
    let value = serde_json::from_slice::<Value>(bytes).ok();
    let message = error.inner().to_string();
    let (message, place) = message.split_at(message.rfind(" at line ").unwrap_or(message.len()));
    // Words of another type are syntax errors to serde_json, as is a number that fits nowhere.
    if !error.inner().is_data() && value.is_none() && message != "number out of range" {
        let example = T::EXAMPLE;
        let detail = format!("the body is not JSON: {message}{place}; send one such as {example}");
        return Problem::new(Code::Invalid, detail).into();
    }
    let named = message.split('`').nth(1).unwrap_or_default();
    let within = path.rsplit_once('.').map_or("", |(within, _)| within);
    if message.starts_with("missing field") {
        let field = join(&path, named);
        let detail = format!("{field} is missing; add it, as in {}", T::EXAMPLE);
        return Problem::invalid(&field, detail).into();
    }
    if message.starts_with("duplicate field") {
        let field = join(within, named);
        return Problem::invalid(&field, format!("{field} is there twice; leave one of them"))
            .into();
    }
    if message.starts_with("unknown field") {
        let field = join(within, &quote(named).replace('\'', ""));
        let known = expected(message);
        let detail = format!(
            "{field} is not a field of this request; there are: {known}; correct or remove it"
        );
        return Problem::invalid(&field, detail).into();
    }
    let wrong = value.as_ref().and_then(|value| value.pointer(&pointer(&path)));
    // Without: too deep to be read, or not a number that fits.
    let shown = wrong.map_or_else(|| "something else".to_owned(), shown);
    let rule = match message {
        "expected value" | "expected ident" => words::<T>(value, &path),
        _ => rule(message),
    };
    Problem::invalid(&path, format!("{path} is {shown}, but must be {rule}; correct it")).into()
}

fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

/// The words that a field takes: what serde says to one that it does not know.
fn words<T: Ask>(value: Option<Value>, path: &str) -> String {
    let mut value = value.unwrap_or_default();
    if let Some(wrong) = value.pointer_mut(&pointer(path)) {
        *wrong = Value::String(String::new());
    }
    serde_json::from_value::<T>(value)
        .err()
        .map_or_else(String::new, |error| rule(&error.to_string()))
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() || path == "." { field.to_owned() } else { format!("{path}.{field}") }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => other.to_string(),
    }
}

/// The type that serde says it expected.
fn expected(message: &str) -> String {
    let expected = message.split_once("expected ").map_or("", |(_, expected)| expected);
    expected.replace('`', "").replace("one of ", "")
}

/// The same as a rule.
fn rule(message: &str) -> String {
    if message.starts_with("UUID parsing failed") {
        return "a UUID as the agent returned it".to_owned();
    }
    let expected = expected(message);
    match &*expected {
        "u64" => "a whole number from 0 up".to_owned(),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "i32" => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
        "a boolean" => "true or false".to_owned(),
        "" => "a number that fits".to_owned(),
        uuid if uuid.contains("UUID") => "a UUID as the agent returned it".to_owned(),
        structure if structure.starts_with("struct ") => "an object".to_owned(),
        _ if message.starts_with("unknown variant") => format!("one of {expected}"),
        _ => expected,
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
