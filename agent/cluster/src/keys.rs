//! PURE. The keys of the gateways of a cluster, which every node has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_stores::keyring::{Joined, KEYS_MAX, KeyRecord};

/// All keys, by their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    keys: BTreeMap<String, Kept>,
    /// Grows with each change.
    version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    record: KeyRecord,
    /// The secret of the key that a join key was exchanged for.
    joined_sha256: Option<String>,
}

/// A change of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// See [`Keyring::add`](tenure_stores::keyring::Keyring::add).
    Add {
        key: KeyRecord,
        join: Option<String>,
    },
    Remove(Vec<String>),
    /// Keys, and when they were used: s since 1970.
    Used(Vec<(String, u64)>),
}

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Changed {
    Added(Joined),
    /// The number of keys that were there.
    Removed(u64),
    Used,
}

impl Keys {
    /// Makes a change.
    pub fn change(&mut self, change: Change) -> Changed {
        match change {
            Change::Add { key, join: Some(join) } => Changed::Added(self.join(&join, key)),
            Change::Add { key, join: None } => Changed::Added(self.add(key)),
            Change::Remove(ids) => {
                let removed = ids.iter().filter_map(|id| self.keys.remove(id)).count() as u64;
                self.version += u64::from(removed > 0);
                Changed::Removed(removed)
            }
            Change::Used(uses) => {
                for (id, at) in uses {
                    if let Some(kept) = self.keys.get_mut(&id) {
                        kept.record.used_at = Some(at);
                    }
                }
                Changed::Used
            }
        }
    }

    /// Puts a key in the place of one with its id, of which it is known still what became.
    fn add(&mut self, key: KeyRecord) -> Joined {
        if self.keys.len() >= KEYS_MAX && !self.keys.contains_key(&key.id) {
            return Joined::Full;
        }
        let (used_at, joined, joined_sha256) = match self.keys.get(&key.id) {
            Some(Kept { record, joined_sha256 }) => {
                (record.used_at, record.joined.clone(), joined_sha256.clone())
            }
            None => (key.used_at, None, None),
        };
        let record = KeyRecord { used_at, joined, ..key };
        self.keys.insert(record.id.clone(), Kept { record, joined_sha256 });
        self.version += 1;
        Joined::Done
    }

    fn join(&mut self, join: &str, key: KeyRecord) -> Joined {
        let Some(kept) = self.keys.get(join) else { return Joined::Gone };
        let present = self.keys.get(&key.id).map(|kept| &kept.record.sha256);
        if let Some(own) = &kept.record.joined {
            let is_same = *own == key.id && kept.joined_sha256.as_ref() == Some(&key.sha256);
            return match is_same {
                true if present == Some(&key.sha256) => Joined::Again,
                true => Joined::Revoked,
                false => Joined::Used,
            };
        }
        if present.is_some() {
            return Joined::Taken;
        }
        let (own, sha256) = (key.id.clone(), key.sha256.clone());
        let added = self.add(key);
        if added == Joined::Done
            && let Some(kept) = self.keys.get_mut(join)
        {
            kept.record.joined = Some(own);
            kept.joined_sha256 = Some(sha256);
        }
        added
    }

    /// Another number after each change; uses are none.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The ids of all.
    pub fn ids(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    /// All of them.
    pub fn all(&self) -> Vec<KeyRecord> {
        self.keys.values().map(|kept| kept.record.clone()).collect()
    }

    /// The one with that id.
    pub fn one(&self, id: &str) -> Option<KeyRecord> {
        self.keys.get(id).map(|kept| kept.record.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str, sha256: &str) -> KeyRecord {
        KeyRecord { id: id.to_owned(), sha256: sha256.to_owned(), ..KeyRecord::default() }
    }

    #[test]
    fn a_join_key_is_exchanged_once_however_often_it_is_asked() {
        let mut keys = Keys::default();
        let add = |keys: &mut Keys, id, sha256, join: Option<&str>| {
            let (key, join) = (key(id, sha256), join.map(str::to_owned));
            match keys.change(Change::Add { key, join }) {
                Changed::Added(joined) => joined,
                other => panic!("{other:?}"),
            }
        };
        let join = |keys: &mut Keys, id, sha256| add(keys, id, sha256, Some("join"));
        assert_eq!(join(&mut keys, "own", "1"), Joined::Gone);
        assert_eq!(add(&mut keys, "join", "0", None), Joined::Done);
        assert_eq!(join(&mut keys, "join", "1"), Joined::Taken);
        assert_eq!(join(&mut keys, "own", "1"), Joined::Done);
        assert_eq!(join(&mut keys, "own", "1"), Joined::Again);
        assert_eq!(join(&mut keys, "own", "2"), Joined::Used);
        assert_eq!(keys.one("join").unwrap().joined.as_deref(), Some("own"));
        let version = keys.version();
        assert_eq!(keys.change(Change::Used(vec![("own".to_owned(), 7)])), Changed::Used);
        assert_eq!((keys.one("own").unwrap().used_at, keys.version()), (Some(7), version));
        assert_eq!(keys.change(Change::Remove(vec!["own".to_owned()])), Changed::Removed(1));
        assert_eq!(join(&mut keys, "own", "1"), Joined::Revoked);
        assert!(keys.version() > version);
    }
}
