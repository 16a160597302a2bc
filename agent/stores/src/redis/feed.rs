//! The push connection: keys that changed, and what programs say on the channels.
//!
//! Tracking needs no setting of the server and tells of a change by any program. The server remembers who
//! has read a key on this connection, and tells each of them of its next change, once: an agent costs it
//! nothing for keys that it did not ask about. Pushes are lost with their connection, so whoever starts to
//! listen must read everything again.

use std::collections::HashMap;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tenure_core::model::{ClaimId, Failure, GrantHint, Resource, SessionId};
use tenure_host::clock;
use tenure_wire::Kind;
use uuid::Uuid;

use super::commands::Line;
use super::layout::{
    About, Channel, Layout, SemaphoreKey, agents_of, hyphenated, member, session_text,
};
use crate::relay::{Carried, Told, What};
use crate::remote::{Audience, Hears, Hint, Listening, Seen, StoreClock, Topic};

/// Why a server does not tell of changed keys, for people.
pub(super) const RESP2_ONLY: &str = "the server, or a proxy before it, speaks RESP2 only";
/// Channels in one command, so that it takes the server no longer than a fraction of a millisecond.
const CHANNELS_MAX: usize = 512;
/// Keys in one step of a survey.
const SURVEY_STEP: usize = 1000;

/// Gives on what a push says of anything that an agent may want to know.
pub(super) fn hints(
    layout: &Layout,
    clock: &StoreClock,
    push: PushInfo,
    mut give: impl FnMut(Hint),
) {
    let changed = |key: Vec<u8>| match layout.about(&key)? {
        About::Resource(resource) | About::Permits(resource) => Some(Hint::Resource(resource)),
        About::Queue(semaphore) => Some(Hint::Queue(semaphore)),
        About::Notification { id } => Some(Hint::Granted(id, None)),
        About::Limit(_) => None,
    };
    match push.kind {
        PushKind::Invalidate => match push.data.into_iter().next() {
            Some(Value::Array(keys)) => {
                keys.into_iter().filter_map(bytes).filter_map(changed).for_each(give);
            }
            // Without keys: the database was emptied.
            _ => give(Hint::Everything),
        },
        PushKind::Message => {
            let mut data = push.data.into_iter().rev().filter_map(bytes);
            let (Some(payload), Some(channel)) = (data.next(), data.next()) else { return };
            let hint = if is_expired_event(&channel) {
                changed(payload)
            } else {
                layout.channel(&channel).and_then(|channel| said(clock, channel, payload))
            };
            hint.into_iter().for_each(give);
        }
        _ => {}
    }
}

/// The meaning of a message on a channel.
fn said(clock: &StoreClock, channel: Channel, payload: Vec<u8>) -> Option<Hint> {
    match channel {
        Channel::ProjectEvents { tenant, project } => {
            Some(Hint::ToProject { tenant, project, payload })
        }
        Channel::SessionEvents { session } => {
            let session = SessionId(Uuid::try_parse(&session).ok()?);
            Some(Hint::ToSession { session, payload })
        }
        Channel::Agent => Some(OfClaim::read(&payload)?.hint(clock)),
        Channel::Agents { principal } => {
            let what = match OfClaim::read(&payload) {
                Some(OfClaim::Lost(claim)) => What::Lost(claim),
                Some(OfClaim::Granted(claim, grant)) => {
                    What::Granted(claim, grant.map(|grant| grant.carried))
                }
                None => What::Relayed(payload),
            };
            Some(Hint::ToPrincipal(Told { principal, what }))
        }
        Channel::Routes { .. } => None,
    }
}

/// What a script says of a claim.
enum OfClaim {
    Granted(ClaimId, Option<Grant>),
    Lost(ClaimId),
}

/// What it says of a grant.
struct Grant {
    /// When it was, by the server's clock.
    at: Duration,
    carried: Carried,
}

impl OfClaim {
    fn read(payload: &[u8]) -> Option<OfClaim> {
        let mut words = std::str::from_utf8(payload).ok()?.split(' ').peekable();
        let claim = ClaimId(Uuid::try_parse(words.next()?).ok()?);
        Some(match words.peek() {
            Some(&"lost") => OfClaim::Lost(claim),
            _ => OfClaim::Granted(claim, Grant::read(words)),
        })
    }

    fn hint(self, clock: &StoreClock) -> Hint {
        match self {
            OfClaim::Lost(claim) => Hint::Lost(claim),
            OfClaim::Granted(claim, grant) => {
                Hint::Granted(claim, grant.and_then(|grant| grant.hint(clock)))
            }
        }
    }
}

impl Grant {
    /// Reads its token, when it was and for how long it is kept, in ms, and the limit of a semaphore.
    fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Grant> {
        let token = words.next()?.parse().ok()?;
        let mut ms = || words.next()?.parse().ok().map(Duration::from_millis);
        let (at, kept) = (ms()?, ms()?);
        let limit = words.next().and_then(|it| it.parse().ok());
        Some(Grant { at, carried: Carried { token, limit, kept } })
    }

    /// `None` if it cannot be told until when it is kept.
    fn hint(self, store: &StoreClock) -> Option<GrantHint> {
        let Grant { at, carried: Carried { token, limit, kept } } = self;
        let confirm_by = store.not_after(clock::now(), at.checked_add(kept)?, kept)?;
        Some(GrantHint { token, limit, confirm_by })
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

/// Starts to track keys that are read here, and to listen to the agent's channel. Nothing is heard of what
/// changes before it has answered. Returns the number of the connection, too.
///
/// # Errors
///
/// When the connection fails. That the server refuses to track keys, or cannot tell of them, is no error,
/// but returned: changes are then found by asking.
pub(super) async fn listen(
    line: &mut Line,
    layout: &Layout,
    database: u32,
    agent: &str,
) -> Result<(Listening, i64), Failure> {
    let (mut refused, id) = match line.connection().speaks_resp2() {
        true => (Some(RESP2_ONLY.to_owned()), 0),
        false => track(line).await?,
    };
    let hears = if refused.is_none() { Hears::Watched } else { Hears::Part };
    let subscribe = |channel| redis::cmd("SUBSCRIBE").arg(channel).to_owned();
    let mut subscriptions = vec![subscribe(layout.agent_channel(agent))];
    if hears == Hears::Part {
        // A tracked key that expires is told of anyway. By itself: whoever may not listen to this one
        // must hear the others.
        subscriptions.push(subscribe(format!("__keyevent@{database}__:expired")));
    }
    for subscription in subscriptions {
        let complaint = obey(line, &subscription).await?;
        refused = refused.or(complaint);
    }
    Ok((Listening { hears, refused }, id))
}

/// Starts to track keys that are read here. The server's refusal, and the number of the connection.
async fn track(line: &mut Line) -> Result<(Option<String>, i64), Failure> {
    // The only command that tells the number and that no ACL can forbid.
    let hello = line.send(&redis::cmd("HELLO")).await?;
    let hello: HashMap<String, Value> = redis::from_redis_value(hello).unwrap_or_default();
    let id = match hello.get("id") {
        Some(Value::Int(id)) => *id,
        _ => 0,
    };
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("ON");
    Ok((obey(line, &tracking).await?, id))
}

/// Listens to messages to these, or no longer; what the server says against it.
///
/// # Errors
///
/// When the connection fails.
pub(super) async fn hear(
    line: &mut Line,
    layout: &Layout,
    command: &str,
    audiences: &[Audience],
) -> Result<Option<String>, Failure> {
    let (mut projects, mut sessions, mut agents) = (Vec::new(), Vec::new(), Vec::new());
    for audience in audiences {
        match audience {
            Audience::Project { tenant, project } => {
                projects.push(layout.project_channel(tenant, project));
            }
            Audience::Session(session) => {
                sessions.push(layout.session_channel(&session_text(*session)));
            }
            Audience::Principal(principal) => {
                agents.push(layout.agent_channel(&agents_of(principal)));
            }
        }
    }
    // By themselves: whoever may not listen to the ones must hear the others.
    let parts = [&projects, &sessions, &agents].into_iter().flat_map(|it| it.chunks(CHANNELS_MAX));
    let commands: Vec<_> = parts.map(|part| redis::cmd(command).arg(part).to_owned()).collect();
    let mut refused = None;
    for reply in line.try_all(&commands).await {
        refused = refused.or(complaint(line, reply)?);
    }
    Ok(refused)
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
    let (mut reads, mut leaders, mut projects) = (Vec::new(), redis::cmd("MGET"), Vec::new());
    for topic in topics {
        match topic {
            Topic::Held(_, resource) if resource.kind == Kind::Leader => {
                leaders.arg(layout.main(resource));
            }
            _ => reads.push(read(layout, topic)),
        }
        if let Topic::Resource(Resource { tenant, kind: Kind::Master, name }) = topic {
            projects.push(redis::cmd("PTTL").arg(layout.sessions(tenant, name)).to_owned());
        }
    }
    if leaders.args_iter().len() > 1 {
        projects.push(leaders);
    }
    let asked = reads.len();
    reads.append(&mut projects);
    let mut replies = line.try_all(&reads).await;
    let rest = replies.split_off(asked);
    let holders = match rest.into_iter().collect::<Result<Vec<_>, _>>()?.pop() {
        Some(Value::Array(holders)) => holders,
        _ => Vec::new(),
    };
    let (mut replies, mut holders) = (replies.into_iter(), holders.into_iter());
    let seen = topics.iter().map(|topic| match topic {
        Topic::Held(claim, resource) => {
            let reply = match resource.kind {
                Kind::Leader => Ok(holders.next().unwrap_or(Value::Nil)),
                _ => replies.next().unwrap_or(Ok(Value::Nil)),
            };
            match reply {
                // Somebody put something else in its place.
                Err(Failure::Unknown(_)) if !line.is_broken() => Ok(Seen::CameAbout),
                reply => reply.map(|reply| held(*claim, resource.kind, &reply)),
            }
        }
        _ => replies.next().unwrap_or(Ok(Value::Nil)).map(|reply| come(topic, &reply)),
    });
    seen.collect()
}

/// The command that tells how far a topic has come; held leaders are asked about together.
fn read(layout: &Layout, topic: &Topic) -> redis::Cmd {
    let command = |name: &str, key: String| redis::cmd(name).arg(key).to_owned();
    match topic {
        Topic::Held(_, resource) if resource.kind == Kind::Semaphore => {
            command("ZCARD", layout.main(resource))
        }
        Topic::Held(_, resource) => command("HGET", layout.main(resource)).arg("owner").to_owned(),
        // The key that is there as long as a resource is taken …
        Topic::Resource(resource) => command("PTTL", layout.main(resource)),
        // … and that as soon as a claim is granted.
        Topic::Grant(claim, resource) => {
            command("PTTL", layout.notification(&resource.tenant, &member(*claim)))
        }
    }
}

fn held(claim: ClaimId, kind: Kind, reply: &Value) -> Seen {
    match (kind, reply) {
        (Kind::Semaphore, Value::Int(holders @ 1..)) => Seen::Holders(holders.unsigned_abs()),
        (Kind::Leader | Kind::Lease, Value::BulkString(holder))
            if *holder == hyphenated(claim.0).into_bytes() =>
        {
            Seen::NotYet
        }
        _ => Seen::CameAbout,
    }
}

fn come(topic: &Topic, reply: &Value) -> Seen {
    // Redis says -2 of a key that is not there, and -1 of one that stays.
    match (topic, reply) {
        (Topic::Resource(_), Value::Int(left @ 0..)) => {
            Seen::ComesIn(Duration::from_millis(left.unsigned_abs()))
        }
        (Topic::Resource(_), Value::Int(-2)) => Seen::CameAbout,
        (Topic::Grant(..), Value::Int(left)) if *left != -2 => Seen::CameAbout,
        _ => Seen::NotYet,
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
    let reply = line.send(command).await;
    complaint(line, reply)
}

/// What the server says against a command, unless the connection failed.
fn complaint(line: &Line, reply: Result<Value, Failure>) -> Result<Option<String>, Failure> {
    match reply {
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

/// A step of a walk through all keys: finds semaphores that somebody waits for already, and limits that the last
/// user left behind while nobody looked.
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
    scan.arg(cursor).arg("MATCH").arg(layout.survey_pattern());
    scan.arg("COUNT").arg(SURVEY_STEP);
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
    let (mut semaphores, mut limited) = (Vec::new(), Vec::new());
    for about in about {
        match about {
            About::Queue(semaphore) => semaphores.push(semaphore),
            About::Limit(semaphore) => limited.push(semaphore),
            _ => {}
        }
    }
    let users = |it: &Resource| {
        let users = [SemaphoreKey::Main, SemaphoreKey::Waiting];
        let keys = users.map(|key| layout.semaphore(&it.tenant, key, &it.name));
        redis::cmd("EXISTS").arg(&keys).to_owned()
    };
    let users: Vec<_> = limited.iter().map(users).collect();
    let used = line.send_all(&users).await?;
    let unused = limited.into_iter().zip(used).filter(|(_, users)| *users == Value::Int(0));
    semaphores.extend(unused.map(|(semaphore, _)| semaphore));
    Ok(Surveyed { next, semaphores })
}
