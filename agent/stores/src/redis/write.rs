//! A write that shows whether the server takes any, and has an effect on nothing.

use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};
use tenure_wire::DEFAULT_TENANT;

use super::commands;
use super::connection::Connection;
use super::examine;
use super::layout::Layout;
use crate::remote::WriteError;

/// Life of the written key, if only that is carried out.
const KEPT: Duration = Duration::from_millis(1);
/// The name of that key among those of claims, whose ids are longer.
const KEY: &str = "try";
/// Words of an error about a right; the second is a script's.
const DENIALS: [&str; 2] = ["NOPERM", "no permissions"];

/// Sets a key for a moment, as claims set theirs. Memory, replicas, the disk and the server's role are looked at by the
/// server before each such command. Rights are of commands and keys, of which this is one: if `why` is about a right,
/// all are looked at.
pub(super) async fn attempt(
    connection: &Connection,
    layout: &Layout,
    why: Option<&str>,
) -> Result<(), WriteError> {
    let key = layout.claim(DEFAULT_TENANT, KEY);
    let mut set = redis::cmd("SET");
    set.arg(&key).arg(1).arg("PX").arg(KEPT.as_millis().to_string());
    let was_set = connection.send(&set);
    let was_deleted = connection.send(redis::cmd("DEL").arg(&key));
    was_set.await.and_then(Value::extract_error).map_err(|error| meaning(&error))?;
    // It would be gone by itself.
    let _ = was_deleted.await;
    if !why.is_some_and(|why| DENIALS.iter().any(|word| why.contains(word))) {
        return Ok(());
    }
    match examine::lacks(connection.clone(), layout).await {
        // In words that have the next try look again.
        Some(lack) => Err(WriteError::Refused(format!("{}: {lack}", DENIALS[0]))),
        None => Ok(()),
    }
}

fn meaning(error: &RedisError) -> WriteError {
    let text = commands::text(error);
    match error.kind() {
        // A server that is busy with a script answers again later.
        ErrorKind::Server(_) | ErrorKind::Extension if error.code() != Some("BUSY") => {
            WriteError::Refused(text)
        }
        _ => WriteError::Silent(text),
    }
}
