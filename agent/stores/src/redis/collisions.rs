//! Keys that another program uses for something else.
//!
//! A script meets such a key as `WRONGTYPE`, and the server does not say which of its keys that is. So the types of
//! all of them are asked for, and the error names the key, the type that it has, and the way out.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, Value};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_wire::rules;
use tokio::sync::Mutex;

use super::commands::Line;
use super::exchange::Invocation;
use super::key_use::{KeyType, KeyUse};
use super::layout::Layout;

/// The beginning of an error that names a key of another program, and that has the way out.
pub const FOREIGN_KEY: &str = "Redis refused: the key ";

/// How long the words for a call are kept: a waiter repeats its call.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Most calls whose words are kept. Others have the words of the server until there is room.
const KEPT_MAX: usize = 256;
/// Most keys of a call that are looked at.
const KEYS_MAX: usize = 32;
/// Most keys that an error names.
const NAMED_MAX: usize = 3;
/// Most characters of the name of a type, which a module of the server may have chosen.
const TYPE_NAME_MAX: usize = 32;

/// A script, and the first of its keys.
type Place = (&'static str, Vec<u8>);

/// The collisions of late.
#[derive(Debug, Default)]
pub(super) struct Collisions(Mutex<HashMap<Place, Explanation>>);

#[derive(Debug)]
struct Explanation {
    at: Boottime,
    /// `None` where no key of another program was found.
    words: Option<Arc<str>>,
}

/// A key of another type than it must have.
struct Collision {
    key: String,
    /// The type that it has, for people.
    found: String,
    key_use: KeyUse,
}

impl Collisions {
    /// The words for a call that has met a key of another type; `None` if that key is not found.
    pub(super) async fn explain(
        &self,
        line: &mut Line,
        layout: &Layout,
        call: &Invocation,
    ) -> Option<Arc<str>> {
        let place = (call.script.name(), call.keys.first()?.clone());
        // One looks at a time. Who comes meanwhile does not wait: its caller's time runs.
        let mut kept = self.0.try_lock().ok()?;
        let now = clock::now();
        kept.retain(|_, explanation| now.since(explanation.at) < KEPT_FOR);
        if let Some(explanation) = kept.get(&place) {
            return explanation.words.clone();
        }
        if kept.len() >= KEPT_MAX {
            return None;
        }
        let words = words(&look(line, layout, call).await).map(Arc::from);
        kept.insert(place, Explanation { at: now, words: words.clone() });
        words
    }
}

/// The keys of a call that have another type than they must have.
async fn look(line: &mut Line, layout: &Layout, call: &Invocation) -> Vec<Collision> {
    let keys = call.keys.iter().filter_map(|key| String::from_utf8(key.clone()).ok());
    let keys: Vec<String> = keys.take(KEYS_MAX).collect();
    let found = among(line, layout, &keys).await;
    if !found.is_empty() {
        return found;
    }
    // The session of a master is a key of its own, which only the value of the master's key names.
    let masters = keys.iter().filter(|key| key.starts_with(&layout.masters()));
    let masters: Vec<_> = masters.map(|key| redis::cmd("GET").arg(key).to_owned()).collect();
    let sessions = line.replies(&masters).await.into_iter().filter_map(|reply| match reply {
        Ok(Value::BulkString(session)) => Some(layout.session(&String::from_utf8(session).ok()?)),
        _ => None,
    });
    let sessions: Vec<String> = sessions.collect();
    among(line, layout, &sessions).await
}

async fn among(line: &mut Line, layout: &Layout, keys: &[String]) -> Vec<Collision> {
    let keys = keys.iter().filter_map(|key| Some((key, layout.key_use(key)?)));
    let keys: Vec<(&String, KeyUse)> = keys.collect();
    let commands = keys.iter().map(|(key, _)| redis::cmd("TYPE").arg(key).to_owned());
    let replies = line.replies(&commands.collect::<Vec<_>>()).await;
    let collision = |((key, key_use), reply): ((&String, KeyUse), Result<Value, RedisError>)| {
        // A user may have no right to ask.
        let Ok(Value::SimpleString(name)) = reply else { return None };
        let found = other_type(key_use.key_type, &name)?;
        Some(Collision { key: key.clone(), found, key_use })
    };
    keys.into_iter().zip(replies).filter_map(collision).collect()
}

/// The type of a key for people, if it is not the one that the key must have.
fn other_type(expected: KeyType, name: &str) -> Option<String> {
    let is_good = name == expected.as_str() || name == "none";
    (!is_good).then(|| with_article(name))
}

fn with_article(type_name: &str) -> String {
    match type_name {
        "zset" => "a sorted set".to_owned(),
        "string" | "hash" | "list" | "set" | "stream" => format!("a {type_name}"),
        other => {
            let name = rules::escape(other.chars().take(TYPE_NAME_MAX));
            format!("of the type '{name}'")
        }
    }
}

/// The key, the type that it has, the rule and the way out.
fn words(collisions: &[Collision]) -> Option<String> {
    let first = collisions.first()?;
    let mut words = FOREIGN_KEY.to_owned();
    for (place, Collision { key, found, key_use }) in collisions.iter().take(NAMED_MAX).enumerate()
    {
        if place > 0 {
            words.push_str(", and the key ");
        }
        let expected = with_article(key_use.key_type.as_str());
        let key = rules::escape(key.chars());
        let _ = write!(words, "'{key}' is {found} where {expected} belongs");
    }
    let them = if collisions.len() > 1 { "them" } else { "it" };
    let another_name = if first.key_use.has_name { " take another name here," } else { "" };
    let setting = first.key_use.setting;
    let _ = write!(
        words,
        " (WRONGTYPE): another program uses {them}; rename {them} there,{another_name} or set another \
         redis.{setting} for all agents and gateways"
    );
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_named_if_it_is_another() {
        for (expected, name, found) in [
            (KeyType::String, "hash", Some("a hash")),
            (KeyType::String, "list", Some("a list")),
            (KeyType::SortedSet, "string", Some("a string")),
            (KeyType::Hash, "zset", Some("a sorted set")),
            (KeyType::Hash, "ReJSON-RL", Some("of the type 'ReJSON-RL'")),
            (KeyType::Hash, "\u{1b}[2J", Some("of the type '\\u{1b}[2J'")),
            (KeyType::Hash, "none", None),
            (KeyType::String, "string", None),
            (KeyType::Hash, "hash", None),
            (KeyType::Set, "set", None),
            (KeyType::SortedSet, "zset", None),
        ] {
            assert_eq!(other_type(expected, name).as_deref(), found, "{expected:?} {name}");
        }
    }

    #[test]
    fn the_words_name_key_type_rule_and_way_out() {
        let collision = |key: &str, found: &str| Collision {
            key: key.to_owned(),
            found: found.to_owned(),
            key_use: Layout::default().key_use(key).unwrap(),
        };
        assert_eq!(words(&[]), None);
        assert_eq!(
            words(&[collision("leader:board", "a hash")]).unwrap(),
            "Redis refused: the key 'leader:board' is a hash where a string belongs (WRONGTYPE): another \
             program uses it; rename it there, take another name here, or set another redis.leader_prefix for \
             all agents and gateways"
        );
        assert_eq!(
            words(&[collision("tenure:fence", "a list"), collision("tenure:leases", "a hash")])
                .unwrap(),
            "Redis refused: the key 'tenure:fence' is a list where a string belongs, and the key \
             'tenure:leases' is a hash where a set belongs (WRONGTYPE): another program uses them; rename them \
             there, or set another redis.tenure_prefix for all agents and gateways"
        );
        let many = [1, 2, 3, 4].map(|number| collision(&format!("leader:{number}"), "a list"));
        let words = words(&many).unwrap();
        assert!(words.contains("'leader:3'") && !words.contains("'leader:4'"), "{words}");
    }
}
