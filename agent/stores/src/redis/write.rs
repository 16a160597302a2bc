//! A write without an effect, which shows whether the server takes writes.

use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};
use tenure_wire::DEFAULT_TENANT;

use super::commands;
use super::connection::Connection;
use super::examine;
use super::layout::Layout;
use crate::remote::WriteError;

/// Life of the key, if its deletion is lost.
const KEPT: Duration = Duration::from_millis(1);
/// The name of the key among the keys of claims, whose ids are longer.
const KEY: &str = "try";
/// Words of an error about a right; the second is a script's.
const DENIALS: [&str; 2] = ["NOPERM", "no permissions"];

/// Sets a key for a moment, as claims set theirs. Before such a command the server checks memory, replicas, the disk
/// and its role. Rights are granted for each command and key, and this write needs only some of them: if `why` is about
/// a right, all rights are checked.
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
    // The key expires by itself.
    let _ = was_deleted.await;
    if !why.is_some_and(|why| DENIALS.iter().any(|word| why.contains(word))) {
        return Ok(());
    }
    match examine::lacks(connection.clone(), layout).await {
        // These words have the next try check the rights again.
        Some(lack) => Err(WriteError::Refused(format!("{}: {lack}", DENIALS[0]))),
        None => Ok(()),
    }
}

fn meaning(error: &RedisError) -> WriteError {
    let text = commands::text(error);
    match error.kind() {
        // A server that is busy with a script is not one that refuses writes.
        ErrorKind::Server(_) | ErrorKind::Extension if error.code() != Some("BUSY") => {
            WriteError::Refused(text)
        }
        _ => WriteError::Silent(text),
    }
}
