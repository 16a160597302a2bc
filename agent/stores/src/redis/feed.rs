//! The push connection: keys that changed, and what programs say on the channels.
//!
//! Tracking needs no setting of the server and tells of every change by any program. Pushes are lost
//! with their connection, so whoever starts to listen must read everything again.

use redis::{PushInfo, PushKind, Value};
use tenure_core::model::{Failure, Resource};

use super::calls::Line;
use super::layout::{About, Layout};
use super::link::Connected;
use super::tenants::Tracked;

/// Keys in one step of a survey.
const SURVEY_STEP: usize = 1000;

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

/// How well a connection hears.
#[derive(Debug)]
pub(super) struct Hearing {
    /// The number of the connection.
    pub(super) connection: u64,
    /// True if keys are tracked: else hints come from the channels alone.
    pub(super) tracks: bool,
    /// The server's refusal.
    pub(super) refused: Option<String>,
}

/// Starts to listen, unless this connection does `already`. Nothing is heard of what changes before it has
/// answered.
///
/// # Errors
///
/// When the connection fails. That the server refuses to track keys is no error, but returned: changes
/// are then found by asking.
pub(super) async fn listen(
    line: Line,
    layout: &Layout,
    database: u32,
    tracked: &Tracked,
    already: u64,
) -> Result<Option<Hearing>, Failure> {
    let mut connected = line.connect().await?;
    if connected.generation == already {
        return Ok(None);
    }
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("ON").arg("BCAST");
    for prefix in layout.tracking_prefixes(tracked) {
        tracking.arg("PREFIX").arg(prefix);
    }
    let mut patterns = redis::cmd("PSUBSCRIBE");
    for pattern in layout.channel_patterns() {
        patterns.arg(pattern);
    }
    let mut losses = redis::cmd("SUBSCRIBE");
    losses.arg(layout.lost_channel());
    // Prefixes can be added, but those of all tenants overlap with those of some.
    let mut untracking = redis::cmd("CLIENT");
    untracking.arg("TRACKING").arg("OFF");
    let mut refused = obey(&line, &mut connected, &untracking).await?;
    if refused.is_none() {
        refused = obey(&line, &mut connected, &tracking).await?;
    }
    let tracks = refused.is_none();
    let mut subscriptions = vec![patterns, losses];
    if !tracks {
        // A tracked key that expires is told of anyway. By itself: whoever may not listen to this one
        // must hear the others.
        let mut expiries = redis::cmd("SUBSCRIBE");
        expiries.arg(format!("__keyevent@{database}__:expired"));
        subscriptions.push(expiries);
    }
    for subscription in subscriptions {
        let complaint = obey(&line, &mut connected, &subscription).await?;
        refused = refused.or(complaint);
    }
    Ok(Some(Hearing { connection: connected.generation, tracks, refused }))
}

/// Sends a command; what the server says against it.
async fn obey(
    line: &Line,
    connected: &mut Connected,
    command: &redis::Cmd,
) -> Result<Option<String>, Failure> {
    match line.send(connected, command).await {
        Ok(_) => Ok(None),
        Err(Failure::Unknown(refusal)) if !line.is_broken(connected) => Ok(Some(refusal)),
        Err(failure) => Err(failure),
    }
}

/// Semaphores that a step of a survey found, and where the next one begins.
#[derive(Debug)]
pub(super) struct Surveyed {
    pub(super) next: Vec<u8>,
    pub(super) semaphores: Vec<Resource>,
}

/// A step of a walk through all keys: finds semaphores that somebody waits for already.
///
/// # Errors
///
/// When the server does not answer.
pub(super) async fn survey(
    line: Line,
    layout: &Layout,
    cursor: &[u8],
) -> Result<Surveyed, Failure> {
    let mut connected = line.connect().await?;
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(layout.queues_pattern());
    scan.arg("COUNT").arg(SURVEY_STEP).arg("TYPE").arg("zset");
    let strange = || Failure::Unknown("SCAN has another answer than it should".to_owned());
    let Value::Array(reply) = line.send(&mut connected, &scan).await? else {
        return Err(strange());
    };
    let mut reply = reply.into_iter();
    let (Some(next), Some(Value::Array(keys))) = (reply.next().and_then(bytes), reply.next())
    else {
        return Err(strange());
    };
    let about = keys.into_iter().filter_map(bytes).filter_map(|key| layout.about(&key));
    let semaphores = about.filter_map(|about| match about {
        About::Queue(semaphore) => Some(semaphore),
        _ => None,
    });
    Ok(Surveyed { next, semaphores: semaphores.collect() })
}
