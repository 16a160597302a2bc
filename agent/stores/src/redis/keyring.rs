//! Keys of gateways in Redis: a hash each, a set with the ids of all, a hash of their last uses, and a text that
//! is another one after each change.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, Value, cmd};
use tenure_core::model::Failure;
use tenure_wire::DEFAULT_TENANT;
use tokio::time::timeout;

use super::address::Address;
use super::commands;
use super::connection::Connection;
use super::exchange::ReplyError;
use super::exchange::reply::{Items, count, list, text, text_if_any};
use super::layout::Layout;
use super::settings::RedisAccess;
use crate::keyring::{Asking, Joined, KEYS_MAX, KeyRecord, Keyring};
use crate::remote::{Dialer, Link, Purpose};

/// The fields of a key's hash, in the order in which they are read.
const FIELDS: [&str; 5] = ["principal", "sha256", "bounds", "expires_at", "created_at"];

const SHA256: &str = "sha256";
/// Fields of a join key: what it was exchanged for …
const JOINED: &str = "joined";
/// … and that this was there: it is not added again once somebody takes it out.
const JOIN_DONE: &str = "join_done";

/// The keys in a Redis, over a connection of their own.
#[derive(Debug)]
pub struct RedisKeyring {
    link: Link<Connection>,
    layout: Layout,
    timeout: Duration,
}

impl Layout {
    /// HASH: a key of a gateway. Keys belong to no tenant.
    fn key(&self, id: &str) -> String {
        self.tenure(DEFAULT_TENANT, &format!("key:{id}"))
    }

    /// SET: the ids of the keys of gateways.
    fn keys(&self) -> String {
        self.tenure(DEFAULT_TENANT, "keys")
    }

    /// STRING: another one after each change of a key.
    fn keys_version(&self) -> String {
        self.tenure(DEFAULT_TENANT, "keys:version")
    }

    /// HASH: when the keys of gateways were used last, by id.
    fn keys_used(&self) -> String {
        self.tenure(DEFAULT_TENANT, "keys:used")
    }
}

impl RedisKeyring {
    /// Starts to connect. Must be called in a runtime.
    pub fn open(access: RedisAccess, layout: Layout) -> RedisKeyring {
        let timeout = access.timeout;
        let dialer = Arc::new(Dialer::new(Address::new(access, layout.clone())));
        RedisKeyring { link: Link::open(dialer, Purpose::Commands), layout, timeout }
    }

    /// The replies to commands that are sent together.
    async fn ask(&self, commands: &[Cmd]) -> Result<Vec<Value>, Failure> {
        let connected = self.link.ready().await?;
        let replies = commands.iter().map(|command| connected.connection.send(command));
        let replies = join_all(replies.collect::<Vec<_>>());
        let Ok(replies) = timeout(self.timeout, replies).await else {
            self.link.suspect(connected.generation);
            let ms = self.timeout.as_millis();
            return Err(Failure::Unknown(format!("Redis gave no answer within {ms} ms")));
        };
        let values = replies.into_iter().map(|reply| reply.and_then(Value::extract_error));
        values.collect::<Result<_, _>>().map_err(|error| {
            if commands::is_suspicious(&error) {
                self.link.suspect(connected.generation);
            }
            Failure::Unknown(commands::text(&error))
        })
    }

    /// The same for a single command.
    async fn ask_one(&self, command: Cmd) -> Result<Value, Failure> {
        let replies = self.ask(&[command]).await?;
        Ok(replies.into_iter().next().unwrap_or(Value::Nil))
    }

    /// The last command of a change: until it has run, nobody need notice.
    fn changed(&self) -> Cmd {
        let mut command = cmd("SET");
        // Another one than those of all times, also in a store that was emptied.
        let version = getrandom::u64().unwrap_or_default();
        command.arg(self.layout.keys_version()).arg(format!("{version:016x}"));
        command
    }

    async fn read_all(&self) -> Result<Vec<KeyRecord>, Failure> {
        let members = self.ask_one(with("SMEMBERS", &[&self.layout.keys()])).await?;
        let members = match members {
            // With RESP3.
            Value::Set(members) => members,
            members => list(members).map_err(strange)?,
        };
        let ids = members.into_iter().map(text);
        let ids: Vec<String> = ids.collect::<Result<_, _>>().map_err(strange)?;
        if ids.len() > KEYS_MAX {
            let cause = format!("there are {} keys, and {KEYS_MAX} at most are read", ids.len());
            return Err(Failure::Unavailable(cause));
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut commands = Vec::with_capacity(ids.len() + 1);
        commands.extend(ids.iter().map(|id| {
            let mut command = with("HMGET", &[&self.layout.key(id)]);
            command.arg(&FIELDS);
            command
        }));
        let mut used = with("HMGET", &[&self.layout.keys_used()]);
        used.arg(&ids);
        commands.push(used);
        let mut replies = self.ask(&commands).await?;
        let used = replies.pop().unwrap_or(Value::Nil);
        read_keys(ids, replies, used).map_err(strange)
    }
}

fn with(name: &str, words: &[&str]) -> Cmd {
    let mut command = cmd(name);
    for word in words {
        command.arg(*word);
    }
    command
}

fn strange(error: ReplyError) -> Failure {
    Failure::Unknown(error.to_string())
}

/// Keys whose hash is not there are left out: they were removed while they were read.
fn read_keys(
    ids: Vec<String>,
    hashes: Vec<Value>,
    used: Value,
) -> Result<Vec<KeyRecord>, ReplyError> {
    let mut used = Items::of(used)?;
    let mut keys = Vec::with_capacity(ids.len());
    for (id, hash) in ids.into_iter().zip(hashes) {
        let used_at = seconds(used.next())?;
        let mut fields = Items::of(hash)?;
        let mut field = || fields.next();
        let (principal, sha256) = (text_if_any(field())?, text_if_any(field())?);
        let (bounds, expires_at, created_at) =
            (text_if_any(field())?, seconds(field())?, seconds(field())?);
        let (Some(principal), Some(sha256)) = (principal, sha256) else { continue };
        let bounds = bounds.unwrap_or_default();
        keys.push(KeyRecord { id, principal, sha256, bounds, expires_at, created_at, used_at });
    }
    Ok(keys)
}

/// A number of seconds; nothing where there is none, or the text is no number.
fn seconds(value: Value) -> Result<Option<u64>, ReplyError> {
    Ok(text_if_any(value)?.and_then(|text| text.parse().ok()))
}

impl Keyring for RedisKeyring {
    fn version(&self) -> Asking<'_, String> {
        Box::pin(async move {
            let version = self.ask_one(with("GET", &[&self.layout.keys_version()])).await?;
            Ok(text_if_any(version).map_err(strange)?.unwrap_or_default())
        })
    }

    fn all(&self) -> Asking<'_, Vec<KeyRecord>> {
        Box::pin(self.read_all())
    }

    fn put(&self, key: KeyRecord) -> Asking<'_, ()> {
        Box::pin(async move {
            let KeyRecord { id, principal, sha256, bounds, expires_at, created_at, .. } = key;
            let name = self.layout.key(&id);
            let number = |number: Option<u64>| number.map(|it| it.to_string()).unwrap_or_default();
            let values = [principal, sha256, bounds, number(expires_at), number(created_at)];
            let mut hash = with("HSET", &[&name]);
            for (field, value) in FIELDS.iter().zip(values) {
                hash.arg(*field).arg(value);
            }
            let index = with("SADD", &[&self.layout.keys(), &id]);
            self.ask(&[hash, index, self.changed()]).await.map(drop)
        })
    }

    fn join(&self, join: String, key: KeyRecord) -> Asking<'_, Joined> {
        Box::pin(async move {
            let (join, own) = (self.layout.key(&join), self.layout.key(&key.id));
            let by = format!("{}:{}", key.id, key.sha256);
            let mut found = self
                .ask(&[
                    with("HSETNX", &[&join, JOINED, &by]),
                    with("HMGET", &[&join, JOINED, JOIN_DONE]),
                    with("HGET", &[&own, SHA256]),
                ])
                .await?;
            let sha256 = text_if_any(found.pop().unwrap_or(Value::Nil)).map_err(strange)?;
            let mut join_has = Items::of(found.pop().unwrap_or(Value::Nil)).map_err(strange)?;
            let joined = text_if_any(join_has.next()).map_err(strange)?;
            let is_done = text_if_any(join_has.next()).map_err(strange)?.is_some();
            if joined.as_ref() != Some(&by) {
                return Ok(Joined::Used);
            }
            match sha256 {
                Some(sha256) if sha256 != key.sha256 => return Ok(Joined::Taken),
                Some(_) if is_done => return Ok(Joined::Done),
                None if is_done => return Ok(Joined::Revoked),
                _ => {}
            }
            self.put(key).await?;
            self.ask_one(with("HSET", &[&join, JOIN_DONE, "1"])).await?;
            Ok(Joined::Done)
        })
    }

    fn remove(&self, id: String) -> Asking<'_, bool> {
        Box::pin(async move {
            let replies = self
                .ask(&[
                    with("SREM", &[&self.layout.keys(), &id]),
                    with("DEL", &[&self.layout.key(&id)]),
                    with("HDEL", &[&self.layout.keys_used(), &id]),
                    self.changed(),
                ])
                .await?;
            let removed = replies.into_iter().next().unwrap_or(Value::Nil);
            Ok(count(removed).map_err(strange)? > 0)
        })
    }

    fn used(&self, keys: Vec<(String, u64)>) -> Asking<'_, ()> {
        Box::pin(async move {
            let mut command = with("HSET", &[&self.layout.keys_used()]);
            for (id, at) in &keys {
                command.arg(id).arg(*at);
            }
            if keys.is_empty() { Ok(()) } else { self.ask_one(command).await.map(drop) }
        })
    }
}
