//! The file of keys, as the gateway reads it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use tenure_stores::gateway::scope::{Mark, MarkMap};
use uuid::Uuid;

use super::bounds::KeyBounds;
use super::written::{Written, WrittenBounds, WrittenKey};
use super::{Admission, Lapse, Principal, Stranger};
use tenure_stores::gateway::key::{KeyId, New, SecretHash, Shown};
use tenure_wire::rules::NAME_MAX;

/// Most bytes of the file: 40 000 keys with bounds.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Its group or everybody may write a key of their own into it.
const FOR_OTHERS_TO_WRITE: u32 = 0o022;

/// Everybody who is let in. A key takes about 500 bytes, and is found in the same time among ten thousand.
#[derive(Debug, Default, Clone)]
pub struct Keys {
    keys: HashMap<KeyId, Key>,
    principals: HashMap<Arc<str>, Arc<Principal>>,
    marks: MarkMap<Arc<Principal>>,
}

#[derive(Debug, Clone)]
struct Key {
    hash: SecretHash,
    admission: Admission,
    written: Arc<WrittenBounds>,
    /// s since 1970; `None` for never.
    expires_at: Option<u64>,
    created_at: Option<u64>,
    used: Arc<Used>,
    joined: Option<String>,
}

/// When a key was used last, s since 1970; 0 for never.
#[derive(Debug, Default)]
struct Used {
    at: AtomicU64,
    /// What was said of it to others.
    told: AtomicU64,
}

impl Used {
    fn known(at: Option<u64>) -> Used {
        let at = at.unwrap_or(0);
        Used { at: AtomicU64::new(at), told: AtomicU64::new(at) }
    }

    /// When it was used, if nobody was told for so long.
    fn take_news(&self, now: u64, after: u64) -> Option<u64> {
        let (at, told) = (self.at.load(Relaxed), self.told.load(Relaxed));
        let is_news = at > told && now >= told.saturating_add(after);
        is_news.then(|| {
            self.told.store(at, Relaxed);
            at
        })
    }

    fn add(&self, other: &Used) {
        self.at.fetch_max(other.at.load(Relaxed), Relaxed);
        self.told.fetch_max(other.told.load(Relaxed), Relaxed);
    }
}

/// A key, to be shown in a list.
#[derive(Debug)]
pub struct Listed<'a> {
    pub id: KeyId,
    pub principal: &'a str,
    pub expires_at: Option<u64>,
    pub created_at: Option<u64>,
    pub used_at: Option<u64>,
    /// The id of the key that a join key was exchanged for.
    pub joined: Option<&'a str>,
    pub bounds: &'a WrittenBounds,
}

/// Why a file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("cannot be read{}", advice(.0))]
    Unreadable(#[from] std::io::Error),
    #[error("may be written by its group or by everybody (mode {0:04o}): chmod go-w it")]
    NotOurs(u32),
    #[error("has more than {FILE_BYTES_MAX} bytes")]
    TooLong,
    #[error("is no TOML with sections [[key]]: {0}")]
    NotKeys(String),
    #[error("key {id:?}: {rule}")]
    Key { id: String, rule: String },
}

/// The state of a file by which a change is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl Stamp {
    /// That of a file; `None` while it cannot be looked at.
    pub fn of(path: &Path) -> Option<Stamp> {
        let found = std::fs::metadata(path).ok()?;
        let (length, inode) = (found.len(), found.ino());
        Some(Stamp { modified: found.modified().ok(), length, inode })
    }
}

impl Keys {
    /// The same of a file that a gateway keeps by itself, and that is made with the first key.
    ///
    /// # Errors
    ///
    /// See [`KeysError`].
    pub fn read_if_there(path: &Path) -> Result<Keys, KeysError> {
        match Keys::read(path) {
            Err(KeysError::Unreadable(error)) if error.kind() == ErrorKind::NotFound => {
                Ok(Keys::default())
            }
            read => read,
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    ///
    /// See [`KeysError`].
    pub fn read(path: &Path) -> Result<Keys, KeysError> {
        Keys::parse(&read_text(path)?)
    }

    pub(super) fn parse(text: &str) -> Result<Keys, KeysError> {
        // Its own text would quote the line, and with it a key that somebody put there by mistake.
        let not_keys = |error: toml::de::Error| KeysError::NotKeys(error.message().to_owned());
        let Written { keys: written } = toml::from_str(text).map_err(not_keys)?;
        let mut keys = Keys::default();
        // Many keys have the same bounds.
        let mut bounds = HashMap::new();
        written.into_iter().try_for_each(|key| keys.add(key, &mut bounds))?;
        Ok(keys)
    }

    /// Adds a key whose bounds may be those of none before it.
    pub(super) fn add_one(&mut self, key: WrittenKey) -> Result<(), KeysError> {
        self.add(key, &mut HashMap::new())
    }

    fn add(
        &mut self,
        key: WrittenKey,
        known: &mut HashMap<Arc<WrittenBounds>, Arc<KeyBounds>>,
    ) -> Result<(), KeysError> {
        let WrittenKey { id, principal, sha256, expires_at, created_at, used_at, joined, bounds } =
            key;
        let wrong = |rule: &str| KeysError::Key { id: id.clone(), rule: rule.to_owned() };
        let parsed = KeyId::parse(&id);
        let parsed = parsed.ok_or_else(|| wrong("id must be 8 characters a to z and 2 to 7"))?;
        let hash = SecretHash::parse(&sha256);
        let hash = hash.ok_or_else(|| wrong("sha256 must be 64 hexadecimal digits"))?;
        if !Principal::is_name(&principal) {
            let rule =
                format!("principal must be 1 to {NAME_MAX} bytes without control characters");
            return Err(wrong(&rule));
        }
        let principal = match self.principals.get(&*principal) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::new(Principal::new(&principal));
                self.principals.insert(Arc::clone(&new.name), Arc::clone(&new));
                self.marks.insert(new.mark, Arc::clone(&new));
                new
            }
        };
        let (written, bounds) = match known.get_key_value(&bounds) {
            Some((written, bounds)) => (Arc::clone(written), Arc::clone(bounds)),
            None => {
                let read = bounds.read().map_err(|rule| wrong(&rule))?;
                let (written, read) = (Arc::new(bounds), Arc::new(read));
                known.insert(Arc::clone(&written), Arc::clone(&read));
                (written, read)
            }
        };
        let admission = Admission { principal, bounds };
        let used = Arc::new(Used::known(used_at));
        let key = Key { hash, admission, written, expires_at, created_at, used, joined };
        match self.keys.insert(parsed, key) {
            Some(_) => Err(wrong("is there twice: take one of the two out")),
            None => Ok(()),
        }
    }

    /// Takes over the accounts of principals that earlier keys have, too, and the bounds that have not changed.
    pub(super) fn adopt(&mut self, earlier: &Keys) {
        let known = |principal: &mut Arc<Principal>| {
            if let Some(known) = earlier.principals.get(&principal.name) {
                *principal = Arc::clone(known);
            }
        };
        for (id, key) in &mut self.keys {
            known(&mut key.admission.principal);
            if let Some(earlier) = earlier.keys.get(id) {
                key.used.add(&earlier.used);
                // The same object: by it a stream knows that its caller's bounds have not changed.
                if earlier.written == key.written {
                    key.written = Arc::clone(&earlier.written);
                    key.admission.bounds = Arc::clone(&earlier.admission.bounds);
                }
            }
        }
        self.principals.values_mut().for_each(known);
        self.marks.values_mut().for_each(known);
    }

    /// The ids of keys, with their principal and what is different from earlier keys.
    pub(super) fn changes(&self, earlier: &Keys) -> Vec<(KeyId, Arc<str>, &'static str)> {
        let mut changes = Vec::new();
        for (id, key) in &self.keys {
            let change = match earlier.keys.get(id) {
                None => "added",
                Some(was) if !was.is_same(key) => "changed",
                Some(_) => continue,
            };
            changes.push((*id, Arc::clone(&key.admission.principal.name), change));
        }
        for (id, key) in &earlier.keys {
            if !self.keys.contains_key(id) {
                changes.push((*id, Arc::clone(&key.admission.principal.name), "revoked"));
            }
        }
        changes.sort_unstable();
        changes
    }

    /// What a key lets its principal have.
    pub fn admission(&self, now: u64, shown: &Shown<'_>) -> Option<Admission> {
        let known = self.keys.get(&shown.id);
        let hash = known.map_or(SecretHash::of_nothing(), |key| key.hash);
        let is_right = hash.is_of(shown);
        let key = known.filter(|_| is_right)?;
        key.lasts(now).then(|| {
            key.used.at.fetch_max(now, Relaxed);
            key.admission.clone()
        })
    }

    /// True if there is a key with that id, whatever its secret.
    pub fn has(&self, id: KeyId) -> bool {
        self.keys.contains_key(&id)
    }

    /// True if it is a join key, and was exchanged.
    pub(super) fn is_exchanged(&self, id: KeyId) -> bool {
        self.keys.get(&id).is_some_and(|key| key.joined.is_some())
    }

    /// The same keys without those that have other ids.
    pub(super) fn only(&self, ids: &HashSet<KeyId>) -> Keys {
        let mut keys = self.clone();
        keys.keys.retain(|id, _| ids.contains(id));
        keys
    }

    /// The uses of keys that nobody was told of for so many seconds.
    pub fn uses(&self, now: u64, after: u64) -> Vec<(KeyId, u64)> {
        let news = |(id, key): (&KeyId, &Key)| Some((*id, key.used.take_news(now, after)?));
        self.keys.iter().filter_map(news).collect()
    }

    /// Judges a caller that was let in by a key.
    ///
    /// # Errors
    ///
    /// When the key is not good any more, of another principal, or has other bounds.
    pub(super) fn still_lets_in(
        &self,
        now: u64,
        id: KeyId,
        was: (&Principal, &Arc<KeyBounds>),
    ) -> Result<(), Lapse> {
        let (principal, bounds) = was;
        let key = self.keys.get(&id).filter(|key| key.lasts(now));
        let key = key.filter(|key| key.admission.principal.name == principal.name);
        // Equal ones are the same, by [`Keys::adopt`].
        match key {
            None => Err(Stranger::WrongKey.into()),
            Some(key) if !Arc::ptr_eq(&key.admission.bounds, bounds) => Err(Lapse::Bounds),
            Some(_) => Ok(()),
        }
    }

    /// One that has a key.
    pub fn principal(&self, name: &str) -> Option<Arc<Principal>> {
        self.principals.get(name).cloned()
    }

    /// Those that have a key.
    pub fn principals(&self) -> Vec<Arc<Principal>> {
        self.principals.values().cloned().collect()
    }

    /// The owner of an id.
    pub fn owner(&self, id: Uuid) -> Option<&Arc<Principal>> {
        self.marks.get(&Mark::at_end_of(id))
    }

    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// All keys, by principal and id.
    pub fn list(&self) -> Vec<Listed<'_>> {
        let each = self.keys.iter().map(|(id, key)| Listed {
            id: *id,
            principal: &key.admission.principal.name,
            expires_at: key.expires_at,
            created_at: key.created_at,
            used_at: Some(key.used.at.load(Relaxed)).filter(|at| *at > 0),
            joined: key.joined.as_deref(),
            bounds: &key.written,
        });
        let mut keys = Vec::from_iter(each);
        keys.sort_unstable_by_key(|key| (key.principal, key.id));
        keys
    }

    /// A key alone.
    ///
    /// # Errors
    ///
    /// Those of [`Keys::line`].
    pub fn one(new: &New, principal: &str, bounds: &WrittenBounds) -> Result<Keys, KeysError> {
        Keys::parse(&Keys::line(new, principal, None, bounds)?)
    }

    /// The lines of the file for a new key.
    ///
    /// # Errors
    ///
    /// When the principal has no good name, or a bound no meaning.
    pub fn line(
        new: &New,
        principal: &str,
        expires_at: Option<u64>,
        bounds: &WrittenBounds,
    ) -> Result<String, KeysError> {
        let keys = vec![WrittenKey::of(new, principal, expires_at, bounds)];
        let line = toml::to_string(&Written { keys });
        let line = line.map_err(|error| KeysError::NotKeys(error.to_string()))?;
        Keys::parse(&line).map(|_| line)
    }
}

fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "; `tenured-gateway keys add` makes it with its first key",
        ErrorKind::PermissionDenied => "; make it the gateway's user's (chown, chmod)",
        _ => "",
    }
}

/// The text of a file of keys, which nobody else may have written.
pub(super) fn read_text(path: &Path) -> Result<String, KeysError> {
    let file = File::open(path)?;
    let mode = file.metadata()?.mode();
    if mode & FOR_OTHERS_TO_WRITE != 0 {
        return Err(KeysError::NotOurs(mode & 0o7777));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match u64::try_from(text.len()) {
        Ok(length) if length <= FILE_BYTES_MAX => Ok(text),
        _ => Err(KeysError::TooLong),
    }
}

impl Key {
    fn lasts(&self, now: u64) -> bool {
        self.expires_at.is_none_or(|at| now < at)
    }

    fn is_same(&self, other: &Key) -> bool {
        self.admission.principal.name == other.admission.principal.name
            && self.expires_at == other.expires_at
            && self.written == other.written
            && self.hash.to_string() == other.hash.to_string()
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
