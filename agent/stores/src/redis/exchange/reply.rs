//! Reading replies.

use redis::Value;

/// A reply that is not what its script returns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Redis answered a script with {found} where {expected} belongs")]
pub struct ReplyError {
    expected: &'static str,
    found: String,
}

type Read<T> = Result<T, ReplyError>;

/// Longest part of a strange reply that an error repeats, characters.
const QUOTED_MAX: usize = 80;

pub(super) fn unexpected(expected: &'static str, found: &Value) -> ReplyError {
    let found = format!("{found:?}").chars().take(QUOTED_MAX).collect();
    ReplyError { expected, found }
}

pub(super) fn integer(value: Value) -> Read<i64> {
    match value {
        Value::Int(number) => Ok(number),
        other => Err(unexpected("a number", &other)),
    }
}

pub(in crate::redis) fn count(value: Value) -> Read<u64> {
    match value {
        Value::Int(number) if number >= 0 => Ok(number.unsigned_abs()),
        other => Err(unexpected("a number from 0", &other)),
    }
}

/// A number, or nothing where the script says -1 or nothing at all.
pub(super) fn count_if_any(value: Value) -> Read<Option<u64>> {
    match value {
        Value::Nil | Value::Int(-1) => Ok(None),
        other => count(other).map(Some),
    }
}

/// A text. Programs may write others than UTF-8.
pub(in crate::redis) fn text(value: Value) -> Read<String> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) => Ok(text),
        other => Err(unexpected("a text", &other)),
    }
}

pub(in crate::redis) fn text_if_any(value: Value) -> Read<Option<String>> {
    match value {
        Value::Nil => Ok(None),
        other => text(other).map(Some),
    }
}

pub(in crate::redis) fn list(value: Value) -> Read<Vec<Value>> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(unexpected("a list", &other)),
    }
}

/// The items of a list, one after the other.
pub(in crate::redis) struct Items(std::vec::IntoIter<Value>);

impl Items {
    pub(in crate::redis) fn of(value: Value) -> Read<Items> {
        Ok(Items(list(value)?.into_iter()))
    }

    /// The next item; nothing after the last, as a script's list ends before a trailing nothing.
    pub(in crate::redis) fn next(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Nil)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}
