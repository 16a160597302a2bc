//! What the push connection brings: keys that changed, and what programs say on the channels.
//!
//! Tracking needs no setting of the server and tells of every change by any program. Pushes are lost
//! with their connection, so whoever starts to listen must read everything again.

use redis::{PushInfo, PushKind, Value};

use super::calls::Line;
use super::layout::{About, Layout};
use crate::model::{Failure, Resource};

/// Keys in one step of a survey.
const SURVEY_STEP: usize = 1000;
/// Semaphores that one survey finds at most.
const SURVEY_MAX: usize = 20_000;

/// Something that may concern this agent.
#[derive(Debug, PartialEq)]
pub(super) enum Hint {
    /// A key was changed, expired or was removed.
    Key(Vec<u8>),
    /// Somebody said something on a channel.
    Said { channel: Vec<u8>, payload: Vec<u8> },
    /// Everything may have changed.
    Everything,
}

/// The hints in a push.
pub(super) fn hints(push: PushInfo) -> Vec<Hint> {
    match push.kind {
        PushKind::Invalidate => match push.data.into_iter().next() {
            Some(Value::Array(keys)) => keys.into_iter().filter_map(bytes).map(Hint::Key).collect(),
            // Without keys: the database was emptied.
            _ => vec![Hint::Everything],
        },
        PushKind::Message | PushKind::PMessage => {
            let mut data = push.data.into_iter().rev().filter_map(bytes);
            match (data.next(), data.next()) {
                (Some(payload), Some(channel)) if is_expired_event(&channel) => {
                    vec![Hint::Key(payload)]
                }
                (Some(payload), Some(channel)) => vec![Hint::Said { channel, payload }],
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

fn is_expired_event(channel: &[u8]) -> bool {
    channel.starts_with(b"__keyevent@") && channel.ends_with(b"__:expired")
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

/// Starts to listen, unless this connection does `already`. Returns which connection that is.
///
/// # Errors
///
/// When the connection fails. That the server refuses to track keys is no error, but returned: hints
/// then come from the channels alone, and changes are found by asking.
pub(super) async fn listen(
    line: Line,
    layout: &Layout,
    database: u32,
    already: u64,
) -> Result<(u64, Option<String>), Failure> {
    let mut connected = line.connect().await?;
    if connected.generation == already {
        return Ok((already, None));
    }
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("ON").arg("BCAST");
    for prefix in layout.tracking_prefixes() {
        tracking.arg("PREFIX").arg(prefix);
    }
    let mut complaints = Vec::new();
    match line.send(&mut connected, &tracking).await {
        Ok(_) => {}
        Err(Failure::Unknown(refusal)) if !line.is_broken(&connected) => complaints.push(refusal),
        Err(failure) => return Err(failure),
    }
    let mut patterns = redis::cmd("PSUBSCRIBE");
    for pattern in layout.channel_patterns() {
        patterns.arg(pattern);
    }
    let mut losses = redis::cmd("SUBSCRIBE");
    losses.arg(layout.lost_channel());
    // By itself: whoever may not listen to this one must hear the others.
    let mut expiries = redis::cmd("SUBSCRIBE");
    expiries.arg(format!("__keyevent@{database}__:expired"));
    for subscription in [patterns, losses, expiries] {
        match line.send(&mut connected, &subscription).await {
            Ok(_) => {}
            Err(Failure::Unknown(refusal)) if !line.is_broken(&connected) => {
                complaints.push(refusal)
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok((connected.generation, complaints.into_iter().next()))
}

/// Finds semaphores that have users already, so that they are looked after.
///
/// # Errors
///
/// When the server does not answer.
pub(super) async fn survey(line: Line, layout: &Layout) -> Result<Vec<Resource>, Failure> {
    let mut connected = line.connect().await?;
    let mut found = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor.as_slice()).arg("MATCH").arg(layout.permits_pattern());
        scan.arg("COUNT").arg(SURVEY_STEP).arg("TYPE").arg("zset");
        let Value::Array(reply) = line.send(&mut connected, &scan).await? else { break };
        let mut reply = reply.into_iter();
        let (Some(next), Some(Value::Array(keys))) = (reply.next().and_then(bytes), reply.next())
        else {
            break;
        };
        for key in keys.into_iter().filter_map(bytes) {
            if let Some(About::Permits(semaphore) | About::Queue(semaphore)) = layout.about(&key) {
                found.push(semaphore);
            }
        }
        if next == b"0" || found.len() >= SURVEY_MAX {
            break;
        }
        cursor = next;
    }
    Ok(found)
}
