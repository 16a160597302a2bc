//! Everything that a Redis keeps, in a form that tests can compare.

use std::collections::{BTreeMap, BTreeSet};

use redis::Connection;

/// A key's value and expiry.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The value.
    pub contents: Contents,
    /// Until it expires, ms; `None` if it does not.
    pub expires_in_ms: Option<u64>,
}

/// A key's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Contents {
    /// STRING.
    Text(String),
    /// HASH.
    Hash(BTreeMap<String, String>),
    /// LIST.
    List(Vec<String>),
    /// SET.
    Set(BTreeSet<String>),
    /// ZSET: members and scores, lowest score first.
    Scores(Vec<(String, f64)>),
}

impl Entry {
    /// The members of a ZSET, lowest score first.
    #[track_caller]
    pub fn members(&self) -> Vec<&str> {
        self.scores().iter().map(|(member, _)| member.as_str()).collect()
    }

    /// Members and scores of a ZSET, lowest score first.
    #[track_caller]
    pub fn scores(&self) -> &[(String, f64)] {
        match &self.contents {
            Contents::Scores(scores) => scores,
            other => panic!("not a ZSET: {other:?}"),
        }
    }
}

#[track_caller]
pub(super) fn dump(connection: &mut Connection) -> BTreeMap<String, Entry> {
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("*").query(connection).expect("Redis lists its keys");
    keys.into_iter()
        .filter_map(|key| {
            let contents = contents(connection, &key)?;
            let expires: i64 =
                redis::cmd("PTTL").arg(&key).query(connection).expect("every key has a PTTL");
            Some((key, Entry { contents, expires_in_ms: u64::try_from(expires).ok() }))
        })
        .collect()
}

/// `None` when the key has expired meanwhile.
#[track_caller]
fn contents(connection: &mut Connection, key: &str) -> Option<Contents> {
    let kind: String = redis::cmd("TYPE").arg(key).query(connection).expect("every key has a type");
    let mut command = redis::Cmd::new();
    let read = "a key can be read by its type";
    Some(match kind.as_str() {
        "string" => {
            let text: Option<String> = command.arg("GET").arg(key).query(connection).expect(read);
            Contents::Text(text?)
        }
        "hash" => Contents::Hash(command.arg("HGETALL").arg(key).query(connection).expect(read)),
        "list" => {
            command.arg("LRANGE").arg(key).arg(0).arg(-1);
            Contents::List(command.query(connection).expect(read))
        }
        "set" => Contents::Set(command.arg("SMEMBERS").arg(key).query(connection).expect(read)),
        "zset" => {
            command.arg("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES");
            Contents::Scores(command.query(connection).expect(read))
        }
        "none" => return None,
        other => panic!("{key} is a {other}, which nothing here writes"),
    })
}
