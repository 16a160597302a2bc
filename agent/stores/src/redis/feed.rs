//! The push connection: keys that changed, and what programs say on the channels.
//!
//! Tracking needs no setting of the server and tells of every change by any program. Pushes are lost
//! with their connection, so whoever starts to listen must read everything again.

use redis::{PushInfo, PushKind, Value};
use tenure_core::model::{ClaimId, Failure, Resource, SessionId};
use uuid::Uuid;

use super::commands::Line;
use super::layout::{About, Channel, Layout};
use super::tenants::Tracked;
use crate::remote::{Hint, Listening};

/// Keys in one step of a survey.
const SURVEY_STEP: usize = 1000;

/// Gives on what a push says of anything that an agent may want to know.
pub(super) fn hints(layout: &Layout, push: PushInfo, mut give: impl FnMut(Hint)) {
    let changed = |key: Vec<u8>| match layout.about(&key)? {
        About::Resource(resource) | About::Permits(resource) => Some(Hint::Resource(resource)),
        About::Queue(semaphore) => Some(Hint::Queue(semaphore)),
        About::Notification { id } => Some(Hint::Granted(id)),
    };
    match push.kind {
        PushKind::Invalidate => match push.data.into_iter().next() {
            Some(Value::Array(keys)) => {
                keys.into_iter().filter_map(bytes).filter_map(changed).for_each(give);
            }
            // Without keys: the database was emptied.
            _ => give(Hint::Everything),
        },
        PushKind::Message | PushKind::PMessage => {
            let mut data = push.data.into_iter().rev().filter_map(bytes);
            let (Some(payload), Some(channel)) = (data.next(), data.next()) else { return };
            let hint = if is_expired_event(&channel) {
                changed(payload)
            } else {
                layout.channel(&channel).and_then(|channel| said(channel, payload))
            };
            hint.into_iter().for_each(give);
        }
        _ => {}
    }
}

/// The meaning of a message on a channel.
fn said(channel: Channel, payload: Vec<u8>) -> Option<Hint> {
    match channel {
        Channel::ProjectEvents { tenant, project } => {
            Some(Hint::ToProject { tenant, project, payload })
        }
        Channel::SessionEvents { session } => {
            let session = SessionId(Uuid::try_parse(&session).ok()?);
            Some(Hint::ToSession { session, payload })
        }
        Channel::Lost => {
            let claim = std::str::from_utf8(&payload).ok()?;
            Some(Hint::Lost(ClaimId(Uuid::try_parse(claim).ok()?)))
        }
        Channel::Routes { .. } => None,
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

/// Starts to track keys and to listen to channels. Nothing is heard of what changes before it has
/// answered.
///
/// # Errors
///
/// When the connection fails. That the server refuses to track keys is no error, but returned: changes
/// are then found by asking.
pub(super) async fn listen(
    line: &mut Line,
    layout: &Layout,
    database: u32,
    tracked: &Tracked,
) -> Result<Listening, Failure> {
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
    let mut refused = obey(line, &untracking).await?;
    if refused.is_none() {
        refused = obey(line, &tracking).await?;
    }
    let hears_all = refused.is_none();
    let mut subscriptions = vec![patterns, losses];
    if !hears_all {
        // A tracked key that expires is told of anyway. By itself: whoever may not listen to this one
        // must hear the others.
        let mut expiries = redis::cmd("SUBSCRIBE");
        expiries.arg(format!("__keyevent@{database}__:expired"));
        subscriptions.push(expiries);
    }
    for subscription in subscriptions {
        let complaint = obey(line, &subscription).await?;
        refused = refused.or(complaint);
    }
    Ok(Listening { hears_all, refused })
}

/// Sends a command; what the server says against it.
async fn obey(line: &mut Line, command: &redis::Cmd) -> Result<Option<String>, Failure> {
    match line.send(command).await {
        Ok(_) => Ok(None),
        Err(Failure::Unknown(refusal)) if !line.is_broken() => Ok(Some(refusal)),
        Err(failure) => Err(failure),
    }
}

/// Semaphores that a step of a survey found, and where the next one begins.
#[derive(Debug)]
pub struct Surveyed {
    pub(super) next: Vec<u8>,
    pub(super) semaphores: Vec<Resource>,
}

/// A step of a walk through all keys: finds semaphores that somebody waits for already.
///
/// # Errors
///
/// When the server does not answer.
pub(super) async fn survey(
    line: &mut Line,
    layout: &Layout,
    cursor: &[u8],
) -> Result<Surveyed, Failure> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(layout.queues_pattern());
    scan.arg("COUNT").arg(SURVEY_STEP).arg("TYPE").arg("zset");
    let strange = || Failure::Unknown("SCAN has another answer than it should".to_owned());
    let Value::Array(reply) = line.send(&scan).await? else {
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
