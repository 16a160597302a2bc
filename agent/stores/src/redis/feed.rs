//! The push connection: keys that changed, and what programs say on the channels.
//!
//! Tracking needs no setting of the server and tells of a change by any program. The server remembers who
//! has read a key on this connection, and tells each of them of its next change, once: an agent costs it
//! nothing for keys that it did not ask about. Pushes are lost with their connection, so whoever starts to
//! listen must read everything again.

use std::collections::HashMap;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tenure_core::model::{ClaimId, Failure, Resource, SessionId};
use tenure_wire::Kind;
use uuid::Uuid;

use super::commands::Line;
use super::layout::{About, Channel, Layout, member};
use crate::remote::{Hears, Hint, Listening, Seen, Topic};

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
        Channel::Granted => {
            // The claim comes first, and is all that makes an agent ask.
            let claim = std::str::from_utf8(&payload).ok()?.split(' ').next()?;
            Some(Hint::Granted(ClaimId(Uuid::try_parse(claim).ok()?)))
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

/// Starts to track keys that are read here, and to listen to channels. Nothing is heard of what changes
/// before it has answered. Returns the number of the connection, too.
///
/// # Errors
///
/// When the connection fails. That the server refuses to track keys is no error, but returned: changes
/// are then found by asking.
pub(super) async fn listen(
    line: &mut Line,
    layout: &Layout,
    database: u32,
    agent: &str,
) -> Result<(Listening, i64), Failure> {
    // The only command that tells the number and that no ACL can forbid.
    let hello = line.send(&redis::cmd("HELLO")).await?;
    let hello: HashMap<String, redis::Value> = redis::from_redis_value(hello).unwrap_or_default();
    let id = match hello.get("id") {
        Some(Value::Int(id)) => *id,
        _ => 0,
    };
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("ON");
    let mut patterns = redis::cmd("PSUBSCRIBE");
    for pattern in layout.channel_patterns() {
        patterns.arg(pattern);
    }
    let mut losses = redis::cmd("SUBSCRIBE");
    losses.arg(layout.lost_channel()).arg(layout.agent_channel(agent));
    let mut refused = obey(line, &tracking).await?;
    let hears = if refused.is_none() { Hears::Watched } else { Hears::Part };
    let mut subscriptions = vec![patterns, losses];
    if hears == Hears::Part {
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
    Ok((Listening { hears, refused }, id))
}

/// Has the server tell of the next change of each. Whether each has come about already, or when it will.
///
/// # Errors
///
/// When it was refused, or the connection fails.
pub(super) async fn watch(
    line: &mut Line,
    layout: &Layout,
    topics: &[Topic],
) -> Result<Vec<Seen>, Failure> {
    // Unlike a script, a command that reads a key registers it with servers of every version, and once.
    let read = |key: String| redis::cmd("PTTL").arg(key).to_owned();
    let mut reads: Vec<_> = topics.iter().map(|topic| read(key(layout, topic))).collect();
    for topic in topics {
        if let Topic::Resource(Resource { tenant, kind: Kind::Master, name }) = topic {
            reads.push(read(layout.sessions(tenant, name)));
        }
    }
    let lefts = line.send_all(&reads).await?.into_iter().map(|reply| match reply {
        Value::Int(left) => left,
        _ => -1,
    });
    let seen = topics.iter().zip(lefts).map(|(topic, left)| match (topic, u64::try_from(left)) {
        (Topic::Resource(_), Ok(left)) => Seen::ComesIn(Duration::from_millis(left)),
        // Redis says -2 of a key that is not there, and -1 of one that stays.
        (Topic::Resource(_), Err(_)) if left == -2 => Seen::CameAbout,
        (Topic::Grant(..), _) if left != -2 => Seen::CameAbout,
        _ => Seen::NotYet,
    });
    Ok(seen.collect())
}

/// The key that is there as long as a resource is taken, or as soon as a claim is granted.
fn key(layout: &Layout, topic: &Topic) -> String {
    match topic {
        Topic::Resource(resource) => layout.main(resource),
        Topic::Grant(claim, resource) => layout.notification(&resource.tenant, &member(*claim)),
    }
}

/// Has the server tell `listener` of every change of what programs without Tenure share, whoever reads it,
/// as long as this connection lasts. Changes by this connection itself excepted.
///
/// # Errors
///
/// When it was refused, or the connection fails.
pub(super) async fn overhear(
    line: &mut Line,
    layout: &Layout,
    listener: i64,
) -> Result<(), Failure> {
    stop_overhearing(line).await?;
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("ON").arg("REDIRECT").arg(listener).arg("BCAST").arg("NOLOOP");
    for prefix in layout.shared_prefixes() {
        tracking.arg("PREFIX").arg(prefix);
    }
    line.send(&tracking).await.map(drop)
}

/// The opposite of [`overhear`].
///
/// # Errors
///
/// When it was refused, or the connection fails.
pub(super) async fn stop_overhearing(line: &mut Line) -> Result<(), Failure> {
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("OFF");
    line.send(&tracking).await.map(drop)
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
    pub next: Vec<u8>,
    pub semaphores: Vec<Resource>,
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
