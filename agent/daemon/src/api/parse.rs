//! From the bytes of a request's body to one of the wire's types, strictly.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use bytes::BytesMut;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_wire::rules::{escape, quote};
use tenure_wire::{Code, Problem};

use super::context::Context;
use super::limits::BODY_MAX;
use super::respond::{Refused, over_budget};
use super::server::Connection;

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
    type Rejection = Refused;

    async fn from_request(request: Request, context: &Arc<Context>) -> Result<Self, Refused> {
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
        Err(_) => explain(trimmed),
    }
}

/// Parses again where a whole number is written as a float: 30000.0 is an integer to JSON Schema, and what
/// some languages make of one.
fn whole_floats<T: Ask>(mut body: Value) -> Option<T> {
    /// Below this every whole float is one integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    for value in body.as_object_mut()?.values_mut() {
        if let Some(float) = value.as_f64().filter(|_| value.is_f64())
            && float.fract() == 0.0
            && float.abs() < EXACT
        {
            *value = Value::from(float as i64);
        }
    }
    serde_json::from_value(body).ok()
}

fn list(field: &str) -> Box<Problem> {
    let detail = format!("{field} is a list, but must be an object; write it as {{…}}");
    Problem::invalid(field, detail).into()
}

fn list_in(bytes: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    value.as_object()?.iter().find(|(_, value)| value.is_array()).map(|(key, _)| key.clone())
}

/// Parses again, to say in serde's words what is wrong, and where.
fn explain<T: Ask>(bytes: &[u8]) -> Result<T, Box<Problem>> {
    let deserializer = &mut serde_json::Deserializer::from_slice(bytes);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(deserializer) else {
        let detail = "the body goes on after its JSON object; send one object only";
        return Err(Problem::new(Code::Invalid, detail).into());
    };
    let path = error.path().to_string();
    let path = match &*path {
        "." => "",
        // Between two fields.
        "?" if !error.inner().is_data() => "",
        path => path,
    };
    if let Some((list_at, _)) = path.split_once('[') {
        return Err(list(quote(list_at).trim_matches('\'')));
    }
    let body = serde_json::from_slice::<Value>(bytes).ok();
    let pointer = format!("/{}", path.replace('.', "/"));
    let found = body.as_ref().and_then(|body| body.pointer(&pointer));
    if found.is_some_and(Value::is_f64)
        && let Some(parsed) = body.clone().and_then(whole_floats)
    {
        return Ok(parsed);
    }
    let words = match &body {
        // A number where a word is wanted is bad syntax to serde_json. Asked about a word that it does not
        // know, it says which there are.
        Some(body) if !error.inner().is_data() => unknown_word::<T>(body.clone(), &pointer),
        _ => error.inner().to_string(),
    };
    // Both are told of the object around the field.
    let of_object =
        ["missing field `", "duplicate field `"].iter().find_map(|told| words.strip_prefix(*told));
    let named = of_object.and_then(|rest| rest.split('`').next());
    let field = match (named, path) {
        (None, "") => {
            let detail = format!("the body is not JSON: {words}; send one such as {}", T::EXAMPLE);
            return Err(Problem::new(Code::Invalid, detail).into());
        }
        (Some(named), "") => named.to_owned(),
        (Some(named), object) => format!("{object}.{named}"),
        (None, field) => quote(field).trim_matches('\'').to_owned(),
    };
    let is = match found.filter(|_| named.is_none()) {
        Some(value) => format!(" is {}", shown(value)),
        None => String::new(),
    };
    let words = plain(&words);
    let detail = format!("{field}{is}: {words}; correct it, as in {}", T::EXAMPLE);
    Err(Problem::invalid(&field, detail).into())
}

fn unknown_word<T: Ask>(mut body: Value, pointer: &str) -> String {
    if let Some(wrong) = body.pointer_mut(pointer) {
        *wrong = Value::String(String::new());
    }
    serde_json::from_value::<T>(body).err().map_or_else(String::new, |error| error.to_string())
}

/// Serde's words, in which the value that they repeat is shortened.
fn plain(words: &str) -> String {
    let (found, expected) = words.split_at(words.rfind("expected ").unwrap_or(words.len()));
    format!("{}{}", quote(found).trim_matches('\''), escape(expected.chars()))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
