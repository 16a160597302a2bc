//! Keys of gateways in Redis: a hash each, a set with the ids of all, a hash of their last uses, and a text that
//! is another one after each change.

use std::collections::HashMap;
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
use super::exchange::reply::{Items, count, list, text, text_if_any};
use super::exchange::{Invocation, PUT_KEY, RESTORE_KEYS, ReplyError};
use super::layout::Layout;
use super::settings::RedisAccess;
use crate::keyring::{self, Asking, Joined, KEYS_MAX, KeyRecord, Keyring};
use crate::remote::{Dialer, Link, Purpose};

/// The fields of a key's hash, in the order in which they are read.
const FIELDS: [&str; 6] = ["principal", "sha256", "bounds", "expires_at", "created_at", JOINED];
/// The field of a join key that has what it was exchanged for: `id:sha256`.
const JOINED: &str = "joined";

/// Keys that are read together, within the timeout.
const READ_AT_ONCE: usize = 2000;

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

    /// Adds a key, for a join key if one is given, in one step: a part of it is never there.
    async fn add_one(&self, key: KeyRecord, join: Option<String>) -> Result<Joined, Failure> {
        let KeyRecord { id, principal, sha256, bounds, expires_at, created_at, .. } = key;
        let call = Invocation::new(&PUT_KEY)
            .key(self.layout.key(&id))
            .key(self.layout.keys())
            .key(self.layout.keys_version());
        let call = join.into_iter().fold(call, |call, join| call.key(self.layout.key(&join)));
        let call = call.arg(id).arg(&sha256).arg(next_version()).arg(KEYS_MAX);
        let number = |number: Option<u64>| number.map(|it| it.to_string()).unwrap_or_default();
        let values = [principal, sha256, bounds, number(expires_at), number(created_at)];
        let fields = FIELDS.iter().zip(values);
        let call = fields.fold(call, |call, (field, value)| call.arg(field).arg(value));
        // A server that knows it answers the same.
        let replies = self.ask(&[call.script.load(), call.command()]).await?;
        let said = replies.into_iter().last().unwrap_or(Value::Nil);
        Joined::read(&text(said).map_err(strange)?)
    }

    async fn restore_all(&self, keys: Vec<KeyRecord>) -> Result<bool, Failure> {
        let hashes: HashMap<_, _> =
            keys.iter().map(|key| (key.id.clone(), key.sha256.clone())).collect();
        let mut call = Invocation::new(&RESTORE_KEYS)
            .key(self.layout.keys())
            .key(self.layout.keys_version())
            .arg(self.layout.key(""))
            .arg(next_version())
            .arg(FIELDS.len());
        for key in keys {
            let KeyRecord { id, principal, sha256, bounds, expires_at, created_at, joined, .. } =
                key;
            let number = |number: Option<u64>| number.map(|it| it.to_string()).unwrap_or_default();
            // A key that was taken out leaves a mark, which prevents a second exchange.
            let by = joined.map(|by| {
                let sha256 = hashes.get(&by).map_or("", String::as_str);
                format!("{by}:{sha256}")
            });
            let (expires_at, created_at) = (number(expires_at), number(created_at));
            let values =
                [principal, sha256, bounds, expires_at, created_at, by.unwrap_or_default()];
            call = call.arg(id);
            for (field, value) in FIELDS.iter().zip(values) {
                call = call.arg(field).arg(value);
            }
        }
        let replies = self.ask(&[call.script.load(), call.command()]).await?;
        let said = replies.into_iter().last().unwrap_or(Value::Nil);
        Ok(count(said).map_err(strange)? > 0)
    }

    async fn read_ids(&self) -> Result<Vec<String>, Failure> {
        let members = self.ask_one(with("SMEMBERS", &[&self.layout.keys()])).await?;
        let members = match members {
            // With RESP3.
            Value::Set(members) => members,
            members => list(members).map_err(strange)?,
        };
        members.into_iter().map(text).collect::<Result<_, _>>().map_err(strange)
    }

    async fn read_all(&self) -> Result<Vec<KeyRecord>, Failure> {
        let ids = self.read_ids().await?;
        keyring::check_count(ids.len() as u64)?;
        self.read_some(ids).await
    }

    async fn read_some(&self, ids: Vec<String>) -> Result<Vec<KeyRecord>, Failure> {
        let mut keys = Vec::with_capacity(ids.len());
        for ids in ids.chunks(READ_AT_ONCE) {
            let mut commands = Vec::with_capacity(ids.len() + 1);
            commands.extend(ids.iter().map(|id| {
                let mut command = with("HMGET", &[&self.layout.key(id)]);
                command.arg(&FIELDS);
                command
            }));
            let mut used = with("HMGET", &[&self.layout.keys_used()]);
            used.arg(ids);
            commands.push(used);
            let mut replies = self.ask(&commands).await?;
            let used = replies.pop().unwrap_or(Value::Nil);
            keys.extend(read_keys(ids.to_vec(), replies, used).map_err(strange)?);
        }
        Ok(keys)
    }
}

fn with(name: &str, words: &[&str]) -> Cmd {
    let mut command = cmd(name);
    for word in words {
        command.arg(*word);
    }
    command
}

/// Another one than those of all times, also in a store that was emptied.
fn next_version() -> String {
    format!("{:016x}", getrandom::u64().unwrap_or_default())
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
        let joined = text_if_any(field())?;
        let joined = joined.and_then(|by| Some(by.split_once(':')?.0.to_owned()));
        let (Some(principal), Some(sha256)) = (principal, sha256) else { continue };
        let bounds = bounds.unwrap_or_default();
        keys.push(KeyRecord {
            id,
            principal,
            sha256,
            bounds,
            expires_at,
            created_at,
            used_at,
            joined,
        });
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

    fn ids(&self) -> Asking<'_, Vec<String>> {
        Box::pin(self.read_ids())
    }

    fn all(&self) -> Asking<'_, Vec<KeyRecord>> {
        Box::pin(self.read_all())
    }

    fn one(&self, id: String) -> Asking<'_, Option<KeyRecord>> {
        Box::pin(async move { Ok(self.read_some(vec![id]).await?.pop()) })
    }

    fn add(&self, key: KeyRecord, join: Option<String>) -> Asking<'_, Joined> {
        Box::pin(self.add_one(key, join))
    }

    fn remove(&self, ids: Vec<String>) -> Asking<'_, u64> {
        Box::pin(async move {
            if ids.is_empty() {
                return Ok(0);
            }
            let mut index = with("SREM", &[&self.layout.keys()]);
            let mut hashes = cmd("DEL");
            let mut used = with("HDEL", &[&self.layout.keys_used()]);
            for id in &ids {
                index.arg(id);
                hashes.arg(self.layout.key(id));
                used.arg(id);
            }
            // Last: until it has run, nobody need notice.
            let changed = with("SET", &[&self.layout.keys_version(), &next_version()]);
            let replies = self.ask(&[index, hashes, used, changed]).await?;
            let removed = replies.into_iter().next().unwrap_or(Value::Nil);
            count(removed).map_err(strange)
        })
    }

    fn restore(&self, keys: Vec<KeyRecord>) -> Asking<'_, bool> {
        Box::pin(self.restore_all(keys))
    }

    fn end_quarantine(&self) -> Asking<'_, bool> {
        Box::pin(async move {
            let epoch = self.layout.epoch();
            let asked = [cmd("TIME"), with("HGET", &[&epoch, "until"])];
            let [time, until] = <[Value; 2]>::try_from(self.ask(&asked).await?)
                .map_err(|_| Failure::Unknown("an answer is missing".to_owned()))?;
            let time = Items::of(time).map_err(strange)?.next();
            let now = seconds(time).map_err(strange)?.unwrap_or_default();
            let until = seconds(until).map_err(strange)?.unwrap_or_default();
            // `until` is in ms, `now` in s.
            if until / 1000 < now {
                return Ok(false);
            }
            self.ask_one(with("HSET", &[&epoch, "until", "0"])).await.map(|_| true)
        })
    }

    fn is_new(&self) -> Asking<'_, bool> {
        Box::pin(async move { Ok(self.version().await?.is_empty()) })
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
